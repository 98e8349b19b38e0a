"""Where a SQLite store's work runs: on threads of its own, or at once in a simulation.

One thread writes and one reads, each with a connection of its own, so that a long list never delays
a claim. The writer takes the keeper's small, urgent verbs before those of the pump.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class Turn(IntEnum):
    """Which thread does a piece of work, and before which others."""

    KEEPER = 0
    PUMP = 1
    READ = 2


class Runner(Protocol):
    """Does pieces of work one at a time; those of the turn `READ` apart from all others."""

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        """Answers what the work answers, or raises what it raises."""

    async def close(self) -> None:
        """Returns when all work is done. No work may be given to it afterwards."""


class InlineRunner:
    """Does work at once, on the thread of its caller: the order is the same every time."""

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        """Answers what the work answers, or raises what it raises."""
        return work()

    async def close(self) -> None:
        """Nothing is ever left to do."""


class ThreadRunner:
    """Two threads, which start with their first work."""

    def __init__(self, name: str = "longshore-sqlite") -> None:
        self._writer = _Worker(f"{name}-writer")
        self._reader = _Worker(f"{name}-reader")

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        """Answers what the work answers, or raises what it raises."""
        worker = self._reader if turn is Turn.READ else self._writer
        return await worker.add(turn, work)

    async def close(self) -> None:
        """Returns when both threads have ended."""
        await asyncio.gather(self._writer.close(), self._reader.close())


_LAST: Final = 99


class _Worker:
    """One thread, and the work that waits for it.

    The bell rings once for each piece of work. It wakes the thread in one call, where a priority
    queue takes a dozen.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._serial = count()
        self._waiting: list[tuple[int, int, Callable[[], None] | None]] = []
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._thread: Thread | None = None

    def add(self, turn: int, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._put(turn, partial(_do, work, future))
        if self._thread is None:
            self._thread = Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        return future

    def _put(self, turn: int, do: Callable[[], None] | None) -> None:
        heappush(self._waiting, (turn, next(self._serial), do))
        self._bell.put(None)

    async def close(self) -> None:
        if self._thread is None:
            return
        await self.add(_LAST, lambda: None)
        self._put(_LAST, None)
        self._thread.join()

    def _live(self) -> None:
        while (do := self._next()) is not None:
            do()

    def _next(self) -> Callable[[], None] | None:
        self._bell.get()
        return heappop(self._waiting)[2]


def _do(work: Callable[[], T], future: asyncio.Future[T]) -> None:
    """Does the work, unless its caller stopped waiting before it began."""
    if future.cancelled():
        return
    settle: Callable[[Any], None]
    outcome: object
    try:
        settle, outcome = future.set_result, work()
    except BaseException as error:
        settle, outcome = future.set_exception, error
    # A closed event loop raises RuntimeError: no caller is left.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_settle, future, settle, outcome)


def _settle(future: asyncio.Future[T], settle: Callable[[Any], None], outcome: object) -> None:
    if not future.done():
        settle(outcome)
