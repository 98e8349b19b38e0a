"""Who waits for which job to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from uuid import UUID

from longshore.model.job import Ended


class Waiter:
    """One request that waits for any, or all, of some jobs."""

    def __init__(self, jobs: Sequence[UUID], every: bool) -> None:
        self.missing = set(jobs)
        self.ended: dict[UUID, Ended] = {}
        self.done = asyncio.Event()
        self._every = every

    def tell(self, ended: Ended) -> None:
        """One of the jobs has ended."""
        if ended.id in self.missing:
            self.missing.discard(ended.id)
            self.ended[ended.id] = ended
            if not self._every or not self.missing:
                self.done.set()


class Waiters:
    """All waiting requests of one dispatcher, by job; who came first is told first."""

    def __init__(self) -> None:
        self._by_job: dict[UUID, dict[Waiter, None]] = {}

    def add(self, waiter: Waiter) -> None:
        """From now on this request hears of its jobs."""
        for job in waiter.missing:
            self._by_job.setdefault(job, {})[waiter] = None

    def remove(self, waiter: Waiter, jobs: Iterable[UUID]) -> None:
        """This request waits no longer."""
        for job in jobs:
            waiting = self._by_job.get(job)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self._by_job[job]

    def tell(self, ended: Ended) -> None:
        """A job has ended: everybody who waits for it hears of it."""
        for waiter in self._by_job.pop(ended.id, ()):
            waiter.tell(ended)

    def is_awaited(self, job: UUID) -> bool:
        """Whether anybody waits for this job."""
        return job in self._by_job

    def awaited(self) -> list[UUID]:
        """All jobs that somebody waits for."""
        return list(self._by_job)
