"""Attempts that share one run of their body, in the process of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from longshore.executors.attempts import timed_out
from longshore.executors.host.failures import refused
from longshore.executors.host.shared_run import (
    Alike,
    BatchHandler,
    Member,
    Reports,
    SharedRun,
    joining,
)
from longshore.model.attempt import Attempt
from longshore.model.job import Reason
from longshore.model.reports import CancelReport, Report
from longshore.ports import Handlers
from longshore.testing.attempt import ENDS, InlineAttempt
from longshore.testing.inline_dispatcher import StillClock

MOST_GATHERED: Final = 100
"""So many attempts gather at most, as in a worker with so many slots."""


class BatchedAttempt(InlineAttempt):
    """One attempt of a batch, or one that cannot be in any."""

    def __init__(self, claimed: Attempt, handlers: Handlers, clock: StillClock) -> None:
        super().__init__(claimed, handlers, clock)
        handler = handlers[claimed.kind]
        assert isinstance(handler, BatchHandler)
        self.handler = handler
        self.batch: InlineBatch | None = None
        self.joined: tuple[Alike, Member] | Report = (
            refused(self._assignment, Reason.INVALID_ARGUMENTS, claimed.problem)
            if claimed.problem
            else joining(self._assignment, self.context, handler)
        )

    @property
    def alike(self) -> Alike | None:
        """What it has in common with those that it may share a run with."""
        return self.joined[0] if isinstance(self.joined, tuple) else None

    def cancel(self) -> None:
        """Only this one is cancelled; the body goes on unless all are."""
        super().cancel()
        if self.batch is not None:
            self.batch.stop_if_unwanted()


class _ToldErrors(SharedRun):
    """A shared run that keeps what was raised, for the test."""

    def __init__(self, first: BatchedAttempt, alike: Alike) -> None:
        super().__init__(first.handler, alike)
        self.errors: dict[int, BaseException] = {}

    def failed(self, error: BaseException) -> Reports:
        self.errors = dict.fromkeys(self.members, error)
        return super().failed(error)

    def _outcome(self, member: Member, outcome: object) -> Report:
        if isinstance(outcome, BaseException):
            self.errors[member.assignment.token] = outcome
        return super()._outcome(member, outcome)


class InlineBatch:
    """Runs the body of some attempts once, as a worker's host process would."""

    is_async: Final = True

    def __init__(self, attempts: Sequence[BatchedAttempt]) -> None:
        self.attempts = attempts
        self._task: asyncio.Task[Reports] | None = None
        self._run: _ToldErrors | None = None

    async def run_async(self) -> list[Report]:
        """The reports of the attempts, in their order."""
        first = self.attempts[0]
        if not isinstance(first.joined, tuple):
            return [first.joined]
        self._run = run = _ToldErrors(first, first.joined[0])
        for attempt in self.attempts:
            assert isinstance(attempt.joined, tuple)
            attempt.batch = self
            run.add(attempt.joined[1])
        reports = await self._performed(run)
        for attempt in self.attempts:
            attempt.error = run.errors.get(attempt.claimed.token) if reports else None
        return [self._judged(attempt, reports) for attempt in self.attempts]

    async def _performed(self, run: SharedRun) -> Reports | None:
        """The reports by token; None if it took too long."""
        timeout_s = run.alike[2]
        self._task = asyncio.create_task(run.perform(ENDS))
        try:
            await asyncio.wait({self._task}, timeout=timeout_s)
            in_time = self._task.done()
        finally:
            self._task.cancel()
        await asyncio.wait({self._task})
        if not in_time or self.attempts[0].has_taken_too_long:
            return None
        return (
            run.failed(asyncio.CancelledError()) if self._task.cancelled() else self._task.result()
        )

    def _judged(self, attempt: BatchedAttempt, reports: Reports | None) -> Report:
        claimed = attempt.claimed
        if attempt.context.cancelled:
            return CancelReport(claimed.id, claimed.token)
        if reports is None:
            return timed_out(attempt.assignment)
        return reports[claimed.token]

    def stop_if_unwanted(self) -> None:
        """Stops the body at its next await, if all attempts were told to stop."""
        if self._run is not None and self._run.is_unwanted and self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)


class Gathered:
    """Attempts that were claimed for a batch, and wait for one that has their key."""

    def __init__(self) -> None:
        self._waiting: list[BatchedAttempt] = []

    def next(self) -> BatchedAttempt | None:
        """The one that has waited longest."""
        return self._waiting.pop(0) if self._waiting else None

    def batch_of(
        self, first: BatchedAttempt, claim: Callable[[], BatchedAttempt | None]
    ) -> InlineBatch:
        """An attempt with those that may share its run, as far as there are such."""
        if first.alike is None:
            return InlineBatch([first])
        found = [first]
        for waiting in list(self._waiting):
            if waiting.alike == first.alike and len(found) < first.handler.size:
                self._waiting.remove(waiting)
                found.append(waiting)
        most = MOST_GATHERED
        while len(found) < first.handler.size and len(found) + len(self._waiting) < most:
            if (more := claim()) is None:
                break
            (found if more.alike == first.alike else self._waiting).append(more)
        return InlineBatch(found)
