"""Deadlines of jobs that may expire, as the promises have them: none begins after its own.

It counts by itself. A deadline is set by the submit, or by a retry. It holds until an attempt ends
that has begun. An attempt that was handed back before it began left no trace in the count of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from longshore.core.lifecycle import OWNED
from longshore.model.job import Job, JobState
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.snapshots import Change


class Deadlines:
    """By when each job must begin that has not begun; `job` reads one from the store."""

    def __init__(self, utc: Callable[[], datetime], job: Callable[[UUID], Job]) -> None:
        self._utc = utc
        self._job = job
        self._deadlines: dict[UUID, datetime] = {}

    def check(self, verb: str, changes: Sequence[Change], fresh: Sequence[UUID]) -> None:
        """What one call did to jobs that may expire."""
        for job in fresh:
            self._set(job)
        for change in changes:
            self._check(verb, change)

    def _set(self, job: UUID) -> None:
        row, now = self._job(job), self._utc()
        if row.options.expires_s is not None and row.state is not JobState.WAITING:
            due = row.run_at if row.state is JobState.DELAYED and row.run_at else now
            self._deadlines[job] = due + timedelta(seconds=row.options.expires_s)

    def _check(self, verb: str, change: Change) -> None:
        job, before, after = change
        claimed = after.state is JobState.RUNNING and after.token != before.token
        if before.state in OWNED and after.attempt - claimed == before.attempt:
            self._end(change, claimed)
        if after.state is JobState.WAITING:
            self._deadlines.pop(job, None)
        elif before.state is JobState.WAITING:
            self._set(job)
        deadline, now = self._deadlines.get(job), self._utc()
        if claimed and deadline is not None and now >= deadline:
            raise BrokenPromise(Promise.IN_TIME, f"it began at {now}, after {deadline}", job)
        if verb == "expire" and (deadline is None or now < deadline):
            raise BrokenPromise(Promise.IN_TIME, f"it expired at {now}, not {deadline}", job)
        if verb == "retry":
            self._set(job)

    def _end(self, change: Change, claimed: bool) -> None:
        """An attempt that had begun is over: the job has met its deadline."""
        if claimed or change.after.state not in OWNED:
            self._deadlines.pop(change.job, None)
