"""The requests that wait: for jobs to end, or for actors to reply."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID


class _HasId(Protocol):
    @property
    def id(self) -> UUID:
        """What it is about."""


T = TypeVar("T", bound=_HasId)


class Waiter(Generic[T]):
    """A request that waits for any of some jobs (or replies), or for every one."""

    def __init__(self, jobs: Sequence[UUID], every: bool) -> None:
        self.missing = set(jobs)
        self.ended: dict[UUID, T] = {}
        self.done = asyncio.Event()
        self._every = every

    def tell(self, ended: T) -> None:
        """One of the jobs has ended."""
        if ended.id in self.missing:
            self.missing.discard(ended.id)
            self.ended[ended.id] = ended
            if not self._every or not self.missing:
                self.done.set()


class Waiters(Generic[T]):
    """All waiting requests of one dispatcher, by job, the oldest first."""

    def __init__(self) -> None:
        self._by_job: dict[UUID, dict[Waiter[T], int]] = {}
        self.added = 0
        """How many requests have ever waited."""

    def add(self, waiter: Waiter[T]) -> None:
        """A request waits from now on."""
        self.added += 1
        for job in waiter.missing:
            self._by_job.setdefault(job, {})[waiter] = self.added

    def remove(self, waiter: Waiter[T], jobs: Iterable[UUID]) -> None:
        """A request waits no longer."""
        for job in jobs:
            waiting = self._by_job.get(job)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self._by_job[job]

    def tell(self, ended: T) -> None:
        """A job has ended: tells the requests that wait for it."""
        for waiter in self._by_job.pop(ended.id, ()):
            waiter.tell(ended)

    def tell_first(self, ended: T, added: int) -> None:
        """What a read found that began when so many had waited: tells only those requests.

        A retry may have come since. Whoever waits for the new round must not hear of the last one,
        and has a read of its own.
        """
        waiting = self._by_job.get(ended.id, {})
        for waiter in [one for one, number in waiting.items() if number <= added]:
            self.remove(waiter, [ended.id])
            waiter.tell(ended)

    def is_awaited(self, job: UUID) -> bool:
        """Whether a request waits for this job."""
        return job in self._by_job

    def awaited(self) -> list[UUID]:
        """All jobs that requests wait for."""
        return list(self._by_job)
