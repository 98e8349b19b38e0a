"""An app with hooks, resources and middleware, which note in a file what they do and where."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import longshore

app = longshore.App("hooks")
request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
opened_in: contextvars.ContextVar[str] = contextvars.ContextVar("opened_in", default="nothing")
neighbours = threading.Barrier(2)


def note(text: str) -> None:
    """Adds a line to the file that the test named."""
    with Path(os.environ["HOOKS_NOTES"]).open("a") as file:
        file.write(f"{text}\n")


def fail(when: str) -> None:
    """Raises if the test wants it just there."""
    if os.environ.get("HOOKS_FAIL") == when:
        raise ConnectionError(f"nobody there to {when}")


@app.resource
async def pool() -> AsyncIterator[list[int]]:
    fail("open")
    opened_by = asyncio.current_task()
    note("pool opened")
    yield [1]
    assert asyncio.current_task() is opened_by
    note("pool closed")


@app.resource
def files() -> Iterator[str]:
    note("files opened")
    yield "files"
    note("files closed")


@app.resource
def shelf() -> Iterator[list[int]]:
    note("shelf opened")
    opened_in.set("the resource")
    yield []
    note("shelf closed")


@app.resource
def unused() -> None:
    note("unused opened")


@app.on_start
async def begin() -> None:
    fail("begin")
    note("began")


@app.on_stop
def finish() -> None:
    note("finished")
    fail("finish")


@app.middleware
async def outer(ctx: longshore.Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    request.set(f"{ctx.kind} {ctx.attempt}")
    return f"outer({await call_next()})"


@app.middleware
async def inner(ctx: longshore.Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return f"inner({await call_next()})"
    except ValueError as error:
        raise longshore.Fail("caught on the way") from error


@app.middleware
def plain(ctx: longshore.Context, call_next: Callable[[], Any]) -> Any:
    request.set(f"{ctx.kind} {ctx.attempt}")
    return f"plain({call_next()})"


@app.job
async def draw(amount: int, pool: list[int] = longshore.GIVEN) -> str:
    pool[0] += amount
    return f"{pool[0]} {request.get()}"


@app.job
async def refuse(ctx: longshore.Context) -> str:
    raise ValueError(ctx.kind)


@app.job
def read(name: str, files: str = longshore.GIVEN) -> str:
    return f"{name} from {files} {request.get()}"


@app.job(isolation="thread")
def borrow(shelf: list[int] = longshore.GIVEN) -> str:
    """Ends when two of them have changed the shelf."""
    shelf.append(1)
    before = opened_in.get()
    opened_in.set("a job")
    neighbours.wait()
    return f"{len(shelf)} of {id(shelf)} {before} {request.get()}"


@app.job
def die() -> None:
    os._exit(3)
