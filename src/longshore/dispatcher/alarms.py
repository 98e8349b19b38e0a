"""Alarms: what a dispatcher has to look at, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from longshore.model.job import Submission
from longshore.ports import Clock


class Alarm:
    """A clock that rings at the earliest time it was set to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = float("inf")
        self._changed = asyncio.Event()

    def set_in(self, seconds: float) -> None:
        """Rings after so many seconds, or earlier if it was set so."""
        at = self._clock.now() + seconds
        if at < self._at:
            self._at = at
            self._changed.set()

    def set_for(self, jobs: Iterable[Submission]) -> None:
        """Rings when the first delayed job of these is due."""
        for job in jobs:
            if job.delay_s is not None:
                self.set_in(job.delay_s)
            # A worker may send a time without a zone; the store refuses that job.
            elif job.run_at is not None and job.run_at.utcoffset() is not None:
                self.set_in((job.run_at - self._clock.utc()).total_seconds())

    async def wait(self, at_most_s: float) -> None:
        """Returns when it rings, or after `at_most_s`."""
        self.set_in(at_most_s)
        while (left := self._at - self._clock.now()) > 0:
            self._changed.clear()
            try:
                # Not `wait_for`: before Python 3.12 it can lose a cancellation.
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._at = float("inf")


class Alarms:
    """Alarms for due jobs, cancels and drains, what clients wait for, groups, watchers and more."""

    def __init__(self, clock: Clock) -> None:
        self.due = Alarm(clock)
        self.cancels = Alarm(clock)
        self.outcomes = Alarm(clock)
        self.groups = Alarm(clock)
        self.actors = Alarm(clock)
        self.watchers = Alarm(clock)
        self.lanes = Alarm(clock)
        self.sends = Alarm(clock)
        self.schedules = Alarm(clock)
        self.limits = Alarm(clock)
        self.bulks = Alarm(clock)
