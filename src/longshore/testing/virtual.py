"""An event loop whose clock jumps: an hour of waiting takes no time, and nothing depends on luck.

When everything that can run has run, the loop moves its clock to the next timer instead of waiting
for it. Code that takes its time from the loop, or from the `VirtualClock` here, cannot tell.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Stalled(RuntimeError):
    """Everybody waits for somebody else: no timer is set and nothing can run."""


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: says how far the clock jumps instead."""

    now = 0.0
    has_sockets = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0) if self.has_sockets else []
        if not ready:
            if timeout is None:
                raise Stalled("no timer is set and nothing can run")
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time. Without sockets it asks the kernel nothing; no thread can wake it."""

    def __init__(self, *, has_sockets: bool = True) -> None:
        self._jumping = _JumpingSelector()
        self._jumping.has_sockets = has_sockets
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class VirtualClock:
    """The virtual loop's time, as the clock of everything that runs on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()

    def now(self) -> float:
        """Seconds since the loop began."""
        return self._loop.time()

    def utc(self) -> datetime:
        """The same as a date, counted from a fixed one."""
        return EPOCH + timedelta(seconds=self._loop.time())


def run_virtually(main: Coroutine[None, None, T]) -> T:
    """Runs a coroutine to its end on a loop of its own, on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
