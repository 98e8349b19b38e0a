"""What one batch did: finishes first, then submits, then claims; each verdict and each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from longshore.core import growth
from longshore.core.lifecycle import MOVES, OWNED, Event
from longshore.model.attempt import Attempt
from longshore.model.ends import (
    Cancelled,
    Crashed,
    End,
    Failed,
    NotBegun,
    PutAside,
    ReadDone,
    Released,
    Retried,
    Skipped,
    Snoozed,
    Succeeded,
    TurnTaken,
)
from longshore.model.job import Finished, JobState, Verdict
from longshore.ports import Batch, BatchResult
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.running_bodies import RunningBodies
from longshore.testing.simulation.snapshots import Change, Snapshot


class BatchCheck:
    """A batch and its answers, over the jobs as they were before it."""

    def __init__(
        self,
        batch: Batch,
        pumped: BatchResult,
        known: Mapping[UUID, Snapshot],
        bodies: RunningBodies,
        in_group: Callable[[UUID], bool],
        is_turn: Callable[[UUID], bool],
    ) -> None:
        self._in_group = in_group
        self._is_turn = is_turn
        self._batch = batch
        self._pumped = pumped
        self._known = known
        self._bodies = bodies
        self._begun = [*pumped.started, *pumped.dependents, *pumped.claimed]
        self._claimed = {one.id: one for one in self._begun}
        self._recorded: dict[UUID, End] = {}

    def check(self, changes: Sequence[Change], fresh: Sequence[UUID]) -> None:
        """Every verdict is right, and every difference follows from the batch."""
        for finish, answer in zip(self._batch.finishes, self._pumped.finished, strict=True):
            self._check_verdict(finish, answer)
        for change in changes:
            self._check_change(change)
        for job in fresh:
            self._check_fresh(job)
        for claimed in self._begun:
            self._check_claim(claimed)
        if len(self._claimed) < len(self._begun):
            raise BrokenPromise(Promise.ONE_OWNER, "a batch claimed a job twice")

    def _check_verdict(self, finish: End, answer: Finished) -> None:
        """Only the owner's finish counts, and only the first."""
        shot = self._known.get(finish.job)
        if answer.verdict not in self._right_verdicts(finish, shot):
            owner = shot.token if shot else None
            text = (
                f"a finish under token {finish.token} was {answer.verdict}; its token was {owner}"
            )
            raise BrokenPromise(Promise.ONE_OWNER, text, finish.job)
        if answer.verdict is Verdict.RECORDED:
            self._recorded[finish.job] = finish
            self._bodies.check_recorded(finish)
        elif answer.verdict is Verdict.STALE:
            self._bodies.check_refused(finish)

    def _right_verdicts(self, finish: End, shot: Snapshot | None) -> set[Verdict]:
        if shot is None or finish.token != shot.token:
            return {Verdict.STALE}
        if finish.job in self._recorded:
            return {Verdict.ALREADY_RECORDED, Verdict.STALE}
        if shot.state not in OWNED:
            return {Verdict.ALREADY_RECORDED}
        # A worker that came back under a new id still has the token, but owns the job no more.
        return {Verdict.RECORDED if finish.worker in (None, shot.worker) else Verdict.STALE}

    def _check_change(self, change: Change) -> None:
        job, before, after = change
        if self._is_turn(job):
            self._check_turn(change)
            return
        finish, claimed = self._recorded.get(job), self._claimed.get(job)
        woken = before.state is JobState.WAITING and self._in_group(job)
        if finish is None and claimed is None and not woken:
            text = f"a batch changed it that had nothing to say about it: {before} → {after}"
            raise BrokenPromise(Promise.ONE_OWNER, text, job)
        state = MOVES[before.state][_event(finish)] if finish else before.state
        if woken:
            state = JobState.READY if claimed is not None else _woken_state(after)
        if state is JobState.CANCELLED and before.state is not JobState.CANCELLING:
            raise BrokenPromise(Promise.ONE_OUTCOME, "cancelled, but nobody asked for it", job)
        if claimed is not None:
            if state is not JobState.READY:
                raise BrokenPromise(Promise.ONE_OWNER, f"claimed while it was {state}", job)
            state = JobState.RUNNING
        if after.state is not state or after.round != before.round:
            text = f"it is {after.state} where {state} follows"
            raise BrokenPromise(Promise.ONE_OUTCOME, text, job)
        if finish is not None:
            _check_outcome(change, finish)

    def _check_turn(self, change: Change) -> None:
        """A turn that nobody runs may be woken or held too; `ActorCheck` asks whether rightly."""
        job, before, after = change
        finish = self._recorded.get(job)
        state = MOVES[before.state][_event(finish)] if finish else before.state
        right = {state, *UNCLAIMED} if state in UNCLAIMED else {state}
        if job in self._claimed:
            right = {JobState.RUNNING} if JobState.READY in right else set()
        if after.state not in right or after.round != before.round:
            text = f"the turn was {before.state} and is {after.state}, after {finish}"
            raise BrokenPromise(Promise.ONE_OUTCOME, text, job)
        if finish is not None:
            _check_outcome(change, finish)

    def _check_fresh(self, job: UUID) -> None:
        submitted = {one.id for one in self._batch.submits}
        for finish in self._recorded.values():
            submitted.update(item.job.id for item in growth.sent(finish))
            submitted.update(item.job.id for item in growth.added(finish))
        if job not in submitted:
            raise BrokenPromise(Promise.DURABLE, "it appeared though nobody submitted it", job)

    def _check_claim(self, claimed: Attempt) -> None:
        known = self._known.get(claimed.id)
        if known is not None and claimed.token <= known.token:
            text = f"it was claimed under token {claimed.token}, which is not new"
            raise BrokenPromise(Promise.ONE_OWNER, text, claimed.id)


def _woken_state(after: Snapshot) -> JobState:
    """The state that the end of another job brought a job to; `GroupCheck` asks whether rightly."""
    moves = MOVES[JobState.WAITING]
    return after.state if after.state in [moves[event] for event in WOKEN] else JobState.WAITING


def _check_outcome(change: Change, finish: End) -> None:
    job, before, after = change
    sent = finish.result if isinstance(finish, Succeeded) else None
    if after.state is JobState.SUCCEEDED and after.result != sent:
        raise BrokenPromise(Promise.ONE_OWNER, "its result is not the one that was sent", job)
    if _revokes(finish) and after.token == before.token:
        text = f"its owner was revoked, but it still has token {before.token}"
        raise BrokenPromise(Promise.ONE_OWNER, text, job)


UNCLAIMED: Final = frozenset({JobState.READY, JobState.DELAYED, JobState.WAITING})
"""Where a turn is that waits for its time or for a worker."""
WOKEN: Final = frozenset(
    {Event.DEPENDENCIES_MET, Event.DELAY_BEGAN, Event.DEPENDENCY_FAILED, Event.CONDITION_LOST}
)
"""What the end of a job may do to one that depends on it."""
_EVENTS: Final = {
    Succeeded: Event.SUCCEEDED,
    Failed: Event.FAILED,
    Retried: Event.RETRIED,
    Snoozed: Event.SNOOZED,
    Skipped: Event.SKIPPED,
    Released: Event.RELEASED,
    NotBegun: Event.NOT_BEGUN,
    PutAside: Event.PUT_ASIDE,
    TurnTaken: Event.SUCCEEDED,
    ReadDone: Event.SUCCEEDED,
    Cancelled: Event.ABORTED,
    Crashed: Event.LOST,
}


def _event(finish: End) -> Event:
    if isinstance(finish, Crashed) and finish.crashes + 1 >= finish.limit:
        return Event.POISONED
    return _EVENTS[type(finish)]


def _revokes(finish: End) -> bool:
    """Whether its worker has nothing more to say, whatever it sends later."""
    match finish:
        case (
            Released()
            | NotBegun()
            | PutAside()
            | Crashed()
            | Failed(forced=True)
            | Retried(forced=True)
        ):
            return True
        case Cancelled(forced=forced):
            return forced
    return False
