"""The coroutines that are measured: they do nothing, or say when they began."""

import asyncio
import time

import longshore

app = longshore.App("bench")


@app.job
async def noop(data: str) -> None:
    """Does nothing, asynchronously."""


@app.job
async def begun(data: str) -> int:
    """When it began, on the clock that all processes of a machine share."""
    return time.monotonic_ns()


@app.job
async def begun_at(data: str) -> int:
    """When it began, in nanoseconds since 1970, on the clock that stores take their times from."""
    return time.time_ns()


@app.job
async def nap(data: str) -> None:
    """Takes long enough for a busy worker to hold some at any moment."""
    await asyncio.sleep(0.05)


@app.job
async def unserved(data: str) -> None:
    """Waits in its queue for good, if nobody serves that."""
