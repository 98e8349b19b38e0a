"""What an event does to a job's row.

Theory. An event happens to a job: its attempt ended, its worker was lost, a user cancelled it. The
answer is an `Effect`: for each state that the row may be in, the `Change` that follows. In a state
that the effect does not list, nothing changes. A store finds the row, picks the change for the
state it sees, and applies it. The stores have no rules of their own. The tables of
`core.lifecycle` have the next state, and for each event a `Rule`; this file decides all the rest:

- The token. A row gets a new token when its owner loses the job (`Rule.revokes`), when the
  dispatcher ends an attempt by force, when a job without an owner is cancelled, and when a new
  round opens. What the earlier owner reports under the old token then counts for nothing.
- The counts. If the job's own code raised or timed out, that is a failure. If its process died, and
  the job was not being cancelled, that is a crash. All else costs nothing.
- The error. A failed attempt leaves its error. A success or an abort clears it. Events that are not
  failures (a loss, a hand-back, a snooze) keep the error of an earlier attempt.
- The deadline. A job with `expires_s` must begin before its deadline. It keeps the deadline while
  it waits, and when an attempt is handed back that never began. Once an attempt has begun, the job
  has met its deadline, and no later attempt is bound by it. A new round has a new deadline.

Changes are values: a store can send equal changes to its database once, for many rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never
from uuid import UUID

from msgspec import Struct, structs

from longshore.core.lifecycle import MOVES, OWNED, RULES, TERMINAL, Event
from longshore.core.timing import span, summary
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
from longshore.model.group import GATE
from longshore.model.job import (
    CancelVerdict,
    Ended,
    JobError,
    JobState,
    Reason,
    RetryVerdict,
    Verdict,
)

FARTHEST_S: Final = 2.5e11
"""A longer delay would lead past what a calendar can show."""

_UNDOES_CLAIM: Final = frozenset({Event.NOT_BEGUN, Event.PUT_ASIDE})
_REOPENS: Final = frozenset({Event.REOPENED, Event.REOPENED_TO_WAIT})
_MOVES_BY_EVENT: Final = {
    event: [(before, moves[event]) for before, moves in MOVES.items() if event in moves]
    for event in Event
}


class Change(Struct, frozen=True):
    """What becomes of a row. `failures` and `crashes` are added to the row's counts.

    Without `delay_s` the time of its next run stays. A new round clears the counts and times.
    """

    state: JobState
    new_token: bool = False
    failures: int = 0
    crashes: int = 0
    keeps_error: bool = False
    error: JobError | None = None
    delay_s: float | None = None
    info: str = ""
    undoes_claim: bool = False
    """The attempt does not count, and its start leaves the history."""
    keeps_deadline: bool = False
    deadline_s: float | None = None
    """In how many seconds the job must begin, if it has a new deadline."""
    new_round: bool = False
    request: UUID | None = None
    """The request that opened the round. The history keeps it, so that a repeat is recognised."""

    @property
    def ends(self) -> bool:
        """Whether the job has ended, for this round."""
        return self.state in TERMINAL

    @property
    def keeps_owner(self) -> bool:
        """Whether the row keeps its worker: as the owner, or as the one that ran it last."""
        return self.ends or self.state in OWNED


Effect = Mapping[JobState, Change]
"""For each state that the row may be in, the change that follows."""


def _effect(
    event: Event,
    *,
    info: str = "",
    error: JobError | None = None,
    delay_s: float | None = None,
    forced: bool = False,
    crash: bool = False,
    request: UUID | None = None,
    deadline_s: float | None = None,
) -> Effect:
    effect, rule = {}, RULES[event]
    for before, state in _MOVES_BY_EVENT[event]:
        aborted = state is JobState.CANCELLED and before in OWNED
        disowned = event is Event.CANCEL_ASKED and state is JobState.CANCELLED
        effect[before] = Change(
            state,
            new_token=forced or disowned or rule.revokes,
            failures=int(rule.is_failure),
            crashes=int(crash and before is JobState.RUNNING),
            keeps_error=rule.keeps_error and not aborted,
            error=None if aborted else error,
            delay_s=delay_s if state is JobState.DELAYED else None,
            info=info,
            undoes_claim=event in _UNDOES_CLAIM and state not in TERMINAL,
            keeps_deadline=rule.keeps_deadline and state not in TERMINAL,
            deadline_s=deadline_s,
            new_round=event in _REOPENS,
            request=request,
        )
    return effect


# the end of an attempt


def judge(state: JobState, token: int, worker: UUID | None, end: End) -> Verdict:
    """Whether the store records an end: only the owner's, and only once."""
    if end.token != token:
        return Verdict.STALE
    if state not in OWNED:
        return Verdict.ALREADY_RECORDED
    return Verdict.RECORDED if end.worker in (None, worker) else Verdict.STALE


def of_end(end: End) -> Effect:
    """What the end of an attempt does, if the store records it."""
    match end:
        case Succeeded(info=info) | TurnTaken(info=info) | ReadDone(info=info):
            return _effect(Event.SUCCEEDED, info=info)
        case Failed(info=info, error=error, forced=forced):
            return _effect(Event.FAILED, info=info, error=error, forced=forced)
        case Retried(info=info, error=error, delay_s=delay_s, forced=forced, failures=failures):
            delay_s = _bounded(delay_s)
            effect = _effect(Event.RETRIED, info=info, error=error, delay_s=delay_s, forced=forced)
            return effect if failures == 1 else _counting(effect, failures)
        case Snoozed(info=info, delay_s=delay_s):
            return _effect(Event.SNOOZED, info=info, delay_s=_bounded(delay_s))
        case Skipped(info=info):
            return _effect(Event.SKIPPED, info=info)
        case Released(info=info):
            return _effect(Event.RELEASED, info=info)
        case NotBegun(info=info):
            return _effect(Event.NOT_BEGUN, info=info)
        case PutAside(info=info):
            return _effect(Event.PUT_ASIDE, info=info)
        case Cancelled(info=info, forced=forced):
            return _effect(Event.ABORTED, info=info, forced=forced)
        case Crashed(info=info, error=error, crashes=crashes, limit=limit):
            return _of_crash(error, crashes + 1, limit, info)
        case _:
            assert_never(end)


def _counting(effect: Effect, failures: int) -> Effect:
    """The effect, with so many failures where it counts one."""
    return {
        state: structs.replace(change, failures=failures) if change.failures else change
        for state, change in effect.items()
    }


def _bounded(delay_s: float) -> float:
    """A delay that a calendar can add. NaN and negative delays become 0."""
    return min(delay_s, FARTHEST_S) if delay_s > 0 else 0.0


def outcome(job: UUID, change: Change, end: End | None = None) -> Ended:
    """What clients hear that wait for a job: this change ended it, because of this end or none."""
    result = end.result if isinstance(end, Succeeded) else None
    return Ended(job, change.state, result, change.error)


def refused_item(index: int, why: str) -> str:
    """What the history says of an outbox item that the store did not accept."""
    return f"outbox item {index} refused: {why}"


# the loss of an attempt


def of_loss(crashes: int, crash_limit: int | None, why: str) -> Effect:
    """What the loss of its worker does to a job. With a crash limit the loss counts as a crash."""
    if crash_limit is None:
        return _effect(Event.LOST, info=why)
    return _of_crash(JobError(Reason.CRASHED, why), crashes + 1, crash_limit, why)


def _of_crash(error: JobError, crashes: int, limit: int, info: str) -> Effect:
    """A job runs again after a crash, until it reaches the limit: then it fails as poisonous."""
    if crashes < limit:
        return _effect(Event.LOST, info=info or summary(error), crash=True)
    message = f"crashed {crashes} times and was given up; last: {error.message}"
    error = structs.replace(error, reason=Reason.POISONOUS, message=message)
    return _effect(Event.POISONED, info=info or summary(error), error=error, crash=True)


# dependencies


def of_dependency(
    event: Event,
    error: JobError | None = None,
    delay_s: float | None = None,
    expires_s: float | None = None,
) -> Change:
    """What becomes of a job that waits, when its dependencies let it run, or never will.

    Its time to begin counts from then, or from when its delay is over.
    """
    info = "" if error is None else summary(error)
    deadline_s = None if expires_s is None else (delay_s or 0.0) + expires_s
    effect = _effect(event, info=info, error=error, delay_s=delay_s, deadline_s=deadline_s)
    return effect[JobState.WAITING]


# nodes that no worker runs

EXPANDED: Final = _effect(Event.EXPANDED)


def of_opening(by: str) -> Effect:
    """What the opening of a gate does to it."""
    return _effect(Event.OPENED, info=f"opened by {by}")


def of_no_expansion(why: str) -> Effect:
    """What becomes of a map whose list cannot become jobs."""
    error = JobError(Reason.INVALID_GROWTH, why)
    return _effect(Event.NOT_EXPANDED, info=summary(error), error=error)


# clocks and users

DUE: Final = _effect(Event.CAME_DUE)
HOLD: Final = _effect(Event.HELD)


def of_expiry(expires_s: float | None, kind: str = "") -> Effect:
    """What passing its deadline does to a job that has not begun."""
    within = "in time" if expires_s is None else f"within {span(expires_s)}"
    nobody = "nobody opened it" if kind == GATE else "no worker began it"
    error = JobError(Reason.EXPIRED, f"expired: {nobody} {within}")
    return _effect(Event.EXPIRED, info=error.message, error=error)


CANCEL: Final = _effect(Event.CANCEL_ASKED)


def of_drop(why: str) -> Effect:
    """What becomes of a new job for which its limit has no place."""
    return _effect(Event.DROPPED, info=why)


def of_replacement(by: int) -> Effect:
    """What becomes of a job in whose place another one came, which has this number."""
    return _effect(Event.CANCEL_ASKED, info=f"replaced by job {by}")


def cancel_verdict(state: JobState) -> CancelVerdict:
    """What a cancel does to a job in this state, in a word."""
    if state in TERMINAL:
        return CancelVerdict.ALREADY_ENDED
    ends = state in CANCEL and CANCEL[state].ends
    return CancelVerdict.CANCELLED if ends else CancelVerdict.CANCELLING


def of_retry(
    ended_round: int, by: str, request: UUID | None = None, expires_s: float | None = None
) -> Effect:
    """What a user's retry does to a job whose last round was `ended_round`."""
    info = f"round {ended_round + 1}, retried by {by}"
    return _effect(Event.REOPENED, info=info, request=request, deadline_s=expires_s)


def of_group_retry(ended_round: int, by: str, request: UUID | None = None) -> Effect:
    """What the retry of a group does to one of its jobs whose last round was `ended_round`."""
    info = f"round {ended_round + 1}, retried by {by}"
    return _effect(Event.REOPENED_TO_WAIT, info=info, request=request)


def retry_verdict(state: JobState, *, key_is_taken: bool, in_group: bool = False) -> RetryVerdict:
    """What a user's retry does to a job in this state, in a word.

    A job of a group is retried through its group: its dependents must hear of it.
    """
    if in_group:
        return RetryVerdict.IN_GROUP
    if state is JobState.SUCCEEDED:
        return RetryVerdict.SUCCEEDED
    if Event.REOPENED not in MOVES[state]:
        return RetryVerdict.NOT_ENDED
    return RetryVerdict.UNIQUE_KEY_TAKEN if key_is_taken else RetryVerdict.RETRIED
