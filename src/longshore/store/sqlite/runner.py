"""Where a SQLite store's work runs: on threads of its own, or at once in a simulation.

One thread writes and one reads, each with a connection of its own, so that a long list never delays
a claim. What waits for the writer goes by turn: the keeper's small, urgent verbs before the pump.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from itertools import count
from queue import PriorityQueue
from threading import Thread
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")


class Turn(IntEnum):
    """Which thread does a piece of work, and before which others."""

    KEEPER = 0
    PUMP = 1
    READ = 2


class Runner(Protocol):
    """Does pieces of work one at a time; those of `READ` apart from all others."""

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        """Answers what the work answers, or raises what it raises."""

    async def close(self) -> None:
        """Returns when all that was asked for is done. Nothing may be asked for afterwards."""


class InlineRunner:
    """Does everything at once where it is asked for: no threads, the same order every time."""

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        """Answers what the work answers, or raises what it raises."""
        return work()

    async def close(self) -> None:
        """Nothing is ever left to do."""


class ThreadRunner:
    """Two threads, started when there is first something to do."""

    def __init__(self, name: str = "longshore-sqlite") -> None:
        self._writer = _Worker(f"{name}-writer")
        self._reader = _Worker(f"{name}-reader")

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        """Answers what the work answers, or raises what it raises."""
        worker = self._reader if turn is Turn.READ else self._writer
        return await worker.run(turn, work)

    async def close(self) -> None:
        """Returns when both threads have ended."""
        await asyncio.gather(self._writer.close(), self._reader.close())


class _Task(Generic[T]):
    """A piece of work, and the future of whoever waits for it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.future: Final[asyncio.Future[T]] = self._loop.create_future()

    def do(self) -> None:
        """Runs on the thread. Work that nobody waits for any more is not begun."""
        if self.future.cancelled():
            return
        try:
            answer = self._work()
        except BaseException as error:
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, answer)

    def _tell(self, settle: Callable[..., None], outcome: object) -> None:
        # A closed event loop raises RuntimeError: nobody is left to hear it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle, outcome)

    def _succeed(self, answer: T) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


_LAST: Final = 99


class _Worker:
    """One thread, and what waits for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._serial = count()
        self._waiting: PriorityQueue[tuple[int, int, Callable[[], None] | None]] = PriorityQueue()
        self._thread: Thread | None = None

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        task = _Task(work)
        self._waiting.put((turn, next(self._serial), task.do))
        if self._thread is None:
            self._thread = Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        return await task.future

    async def close(self) -> None:
        if self._thread is None:
            return
        ended = _Task(lambda: None)
        self._waiting.put((_LAST, next(self._serial), ended.do))
        self._waiting.put((_LAST, next(self._serial), None))
        await ended.future
        self._thread.join()

    def _live(self) -> None:
        while True:
            _, _, do = self._waiting.get()
            if do is None:
                return
            do()
