"""The plain functions that are measured, in processes and in threads."""

import time

import longshore

app = longshore.App("bench-plain")


@app.job
def noop_process(data: str) -> None:
    """Does nothing, in a process."""


@app.job(isolation="thread")
def noop_thread(data: str) -> None:
    """Does nothing, in a thread."""


@app.job(isolation="thread")
def block(seconds: float) -> None:
    """Waits, and holds its thread meanwhile."""
    time.sleep(seconds)


@app.job
def sleep(seconds: float) -> None:
    """Waits, and holds its process meanwhile."""
    time.sleep(seconds)


@app.job
def burn(rounds: int) -> int:
    """Computes for so many rounds."""
    total = 0
    for number in range(rounds):
        total += number * number & 7
    return total
