"""Work in a thread that ends with the task that waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
IsStopped = Callable[[], bool]


class Stopped(Exception):
    """Nobody waits for this work any more."""


async def in_thread(work: Callable[[IsStopped], T]) -> T:
    """Does work in a thread; it looks now and then whether it is to stop, and raises `Stopped`.

    If the task is cancelled, it waits for the thread: descriptors that the work uses must stay
    open until then, or another file gets their numbers.
    """
    stopped = threading.Event()
    working = asyncio.ensure_future(asyncio.to_thread(work, stopped.is_set))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.gather(working, return_exceptions=True)
        raise
