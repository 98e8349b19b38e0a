"""Jobs that behave, and jobs that do not. Files are how the tests and the jobs meet."""

# ruff: noqa: ASYNC110, ASYNC240, ASYNC251

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import sys
import termios
import time
from pathlib import Path

import longshore

app = longshore.App("harbour")


def note(path: str, text: str) -> None:
    """Appends a line to a file, whole or not at all."""
    with Path(path).open("a") as file:
        file.write(text + "\n")


@app.job
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@app.job
def multiply(a: int, b: int) -> int:
    """Multiplies, in a child process."""
    return a * b


@app.job
async def repeat(text: str, fails: bool) -> dict[str, str]:
    """Says a text in each way there is: in its log, as its step, in its result or its error."""
    print(text)
    longshore.current().step(text[:40])
    if fails:
        raise ValueError(text)
    return {text: text}


@app.job
async def speak(said: str) -> None:
    """Says what is written to a file, line by line, until it is `end`."""
    told = 0
    while True:
        found = Path(said).read_text().splitlines() if Path(said).exists() else []
        for line in found[told:]:
            print(line, flush=True)
            if line == "end":
                return
        told = len(found)
        await asyncio.sleep(0.01)


@app.job
async def chat(lines: int) -> None:
    """Says so many lines."""
    for at in range(lines):
        print(f"line {at}")


@app.job
async def nap(seconds: float) -> None:
    """Takes a while."""
    await asyncio.sleep(seconds)


@app.job
async def hold(started: str, until: str) -> str:
    """Says that it has begun, and ends once a file appears."""
    note(started, str(longshore.current().attempt))
    while not Path(until).exists():
        await asyncio.sleep(0.01)
    return "held"


@app.job
async def moor(noted: str, ship: str, until: str) -> None:
    """Notes its begin, and its end once a file has appeared."""
    note(noted, f"began {ship}")
    while not Path(until).exists():
        await asyncio.sleep(0.01)
    note(noted, f"ended {ship}")


@app.job
async def task(ran: str, key: str, seconds: float, fails: bool) -> str:
    """A task of a workflow: notes its begin and its end, and then fails or not."""
    note(ran, f"began {key}")
    await asyncio.sleep(seconds)
    note(ran, f"ended {key}")
    if fails:
        raise ValueError(f"{key} was made to fail")
    return key


@app.job
async def measure(text: str) -> int:
    """Answers how long a text is."""
    return len(text)


@app.job
async def hold_a_load(started: str, until: str, ended: str, size: int) -> str:
    """Holds, then answers with so many characters."""
    await hold(started, until)
    note(ended, "ended")
    return "x" * size


@app.job
def hold_process(started: str, until: str) -> int:
    """The same in a child process; answers its process id."""
    note(started, str(os.getpid()))
    while not Path(until).exists():
        time.sleep(0.01)
    return os.getpid()


@app.job(isolation="thread")
def hold_thread(started: str, until: str) -> int:
    """The same in a thread; answers its process id."""
    note(started, str(os.getpid()))
    while not Path(until).exists():
        time.sleep(0.01)
    return os.getpid()


@app.job(isolation="thread")
def doze_in_thread(started: str, stopped: str) -> None:
    """Sleeps for ever, in short naps; notes how it is stopped."""
    note(started, str(os.getpid()))
    try:
        while True:
            time.sleep(0.01)
    except longshore.Cancelled:
        note(stopped, f"cancelled: {longshore.current().cancelled}")
        raise


@app.job(isolation="thread")
def rest_in_thread(log: str, go: str, seconds: float) -> int:
    """Notes when it begins and ends; sleeps once a file appears. Answers its process id."""
    note(log, "+")
    while not Path(go).exists():
        time.sleep(0.01)
    time.sleep(seconds)
    note(log, "-")
    return os.getpid()


@app.job(retries=3, backoff_s=0.05, jitter=0)
async def recover(fail: int) -> int:
    """Fails as often as it is told to, then succeeds."""
    attempt = longshore.current().attempt
    if attempt <= fail:
        raise ConnectionError(f"attempt {attempt} of {fail} to fail")
    return attempt


@app.job
def segfault() -> None:
    """Takes its process down."""
    ctypes.string_at(0)


@app.job
def kill_myself() -> None:
    """Kills its own process."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def fork(started: str) -> str:
    """Forks, and returns from the job in both copies."""
    pid = os.fork()
    note(started, f"{'original' if pid else 'copy'}")
    return "original" if pid else "copy"


@app.job
def unserialisable() -> object:
    """Returns what cannot be stored."""
    return object()


@app.job
async def unserialisable_async() -> object:
    """Returns what cannot be stored."""
    return {"it": {1, object()}}


@app.job
async def ignore_cancelling(started: str) -> None:
    """Goes on however often it is cancelled."""
    note(started, "x")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@app.job(timeout_s=0.3)
async def block_the_loop(started: str) -> None:
    """Blocks the event loop it runs on."""
    note(started, "x")
    time.sleep(3600)


@app.job(timeout_s=0.3)
def burn() -> None:
    """Burns CPU for ever."""
    while True:
        pass


@app.job
async def report(steps: int) -> int:
    """Says how far it is."""
    context = longshore.current()
    for step in range(steps):
        context.progress(step + 1, steps, f"step {step + 1}")
        context.step(f"doing {step + 1}")
        await asyncio.sleep(0)
    return steps


@app.job
async def order_more(n: int) -> int:
    """Causes other jobs, exactly once."""
    for i in range(n):
        longshore.current().submit(add.call(i, i))
    return n


@app.job
def tick(ran: str, number: int, kills: str = "") -> None:
    """Takes a moment. With `kills` it kills its process, the first time that it runs."""
    with open(ran, "a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    if kills and not os.path.exists(kills):
        open(kills, "w", encoding="utf-8").close()
        os.kill(os.getpid(), signal.SIGKILL)


@app.job
def die_in_company(ran: str, number: int, dead: str) -> None:
    """Takes a moment. The first that finds others in its process's queue kills the process."""
    note(ran, str(number))
    ahead = waiting_bytes()
    if ahead and not os.path.exists(dead):
        note(dead, f"{number} {ahead}")
        os.kill(os.getpid(), signal.SIGKILL)


def waiting_bytes() -> int:
    """How many bytes lie in the packet sockets that this process has."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        if link.is_socket():
            with socket.socket(fileno=os.dup(int(link.name))) as sock:
                if sock.type == socket.SOCK_SEQPACKET:
                    size = fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4))
                    found += int.from_bytes(size, sys.byteorder)
    return found


@app.job
async def load(manifest: str, weight: int) -> int:
    """Adds the number in a file, which must be there."""
    return int(Path(manifest).read_text()) + weight


@app.job
async def crates(count: int) -> list[int]:
    """As many crates, by number."""
    return list(range(count))


@app.job
async def lift(ran: str, crate: int, factor: int = 1) -> int:
    """Notes the crate that it lifts."""
    note(ran, str(crate))
    await asyncio.sleep(0.01)
    return crate * factor


@app.job
def total(numbers: list[int]) -> int:
    """Adds up, in a child process."""
    return sum(numbers)


@app.job
async def unload(ctx: longshore.Context, ran: str, depth: int) -> str:
    """Adds two of itself to its group, and these two more, down to depth 0."""
    note(ran, f"unload {depth}")
    if depth:
        for side in ("port", "starboard"):
            ctx.group.add(unload.call(ran, depth - 1), key=side)
    return "unloaded"


@app.job
def split(ran: str, count: int) -> int:
    """Adds a map and the sum of it, from a child process."""
    group = longshore.current().group
    lifted = group.map(lift, over=list(range(count)), parameter="crate", ran=ran, key="lifts")
    group.add(total.call(lifted.results))
    return count


@app.job(isolation="thread")
def chain(numbers: list[int]) -> int:
    """Adds a job for each number, each after the one before, from a thread."""
    group = longshore.current().group
    before = group.add(add.call(0, 0), key="start")
    for number in numbers:
        before = group.add(add.call(before.result, number), key=f"plus-{number}")
    return len(numbers)
