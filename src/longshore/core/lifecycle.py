"""A job's life: which moves there are, and what causes each.

Theory. A job is in one state. Something happens to it (an `Event`), and the table below says where
it goes. An event that the table does not list for a state is not an error: it is late or repeated,
and changes nothing. Terminal states are left by one event only, a manual retry, which opens a new
round. Ownership is a token: an attempt's end counts only under the token it was claimed with
(`owned`), and whatever takes a job from its owner (`REVOKES`) also gives the row a new token.

The stores do the same set-wise in SQL; the conformance suite holds them to this file.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from longshore.model.job import Finish, JobState, Outcome, Verdict

S = JobState


class Event(StrEnum):
    """What can happen to a job."""

    DEPENDENCIES_MET = "dependencies met"
    DEPENDENCY_FAILED = "a dependency failed"
    CONDITION_LOST = "its condition can no longer hold"
    CAME_DUE = "its time came"
    CLAIMED = "claimed"
    SUCCEEDED = "its attempt succeeded"
    FAILED = "its attempt failed for good"
    RETRIED = "its attempt failed and is tried again"
    SNOOZED = "it asked to be run later"
    RELEASED = "its attempt was handed back"
    ABORTED = "its attempt was aborted"
    LOST = "its worker was lost"
    POISONED = "it crashed too many workers"
    CANCEL_ASKED = "cancelled by a user"
    CANCEL_FORCED = "cancelled, its worker did not answer"
    REOPENED = "retried by a user"


_MOVES: Final[dict[JobState, dict[Event, JobState]]] = {
    S.WAITING: {
        Event.DEPENDENCIES_MET: S.READY,
        Event.DEPENDENCY_FAILED: S.DEPENDENCY_FAILED,
        Event.CONDITION_LOST: S.SKIPPED,
        Event.CANCEL_ASKED: S.CANCELLED,
    },
    S.DELAYED: {
        Event.CAME_DUE: S.READY,
        Event.CANCEL_ASKED: S.CANCELLED,
    },
    S.READY: {
        Event.CLAIMED: S.RUNNING,
        Event.CANCEL_ASKED: S.CANCELLED,
    },
    S.RUNNING: {
        Event.SUCCEEDED: S.SUCCEEDED,
        Event.FAILED: S.FAILED,
        Event.RETRIED: S.DELAYED,
        Event.SNOOZED: S.DELAYED,
        Event.RELEASED: S.READY,
        Event.ABORTED: S.CANCELLED,
        Event.LOST: S.READY,
        Event.POISONED: S.FAILED,
        Event.CANCEL_ASKED: S.CANCELLING,
    },
    S.CANCELLING: {
        Event.SUCCEEDED: S.SUCCEEDED,
        Event.FAILED: S.CANCELLED,
        Event.RETRIED: S.CANCELLED,
        Event.SNOOZED: S.CANCELLED,
        Event.RELEASED: S.CANCELLED,
        Event.ABORTED: S.CANCELLED,
        Event.LOST: S.CANCELLED,
        Event.POISONED: S.CANCELLED,
        Event.CANCEL_FORCED: S.CANCELLED,
    },
    S.FAILED: {Event.REOPENED: S.READY},
    S.DEPENDENCY_FAILED: {Event.REOPENED: S.READY},
    S.SKIPPED: {Event.REOPENED: S.READY},
    S.CANCELLED: {Event.REOPENED: S.READY},
    S.SUCCEEDED: {},
}
MOVES: Final = MappingProxyType(_MOVES)

TERMINAL: Final = frozenset(
    {S.SUCCEEDED, S.FAILED, S.DEPENDENCY_FAILED, S.SKIPPED, S.CANCELLED},
)
FIRST: Final = frozenset({S.DELAYED, S.READY})
"""The states in which a job begins. Nothing submits one that waits for others yet."""


def _reached() -> tuple[JobState, ...]:
    reached, frontier = set(FIRST), list(FIRST)
    while frontier:
        new = set(MOVES[frontier.pop()].values()) - reached
        reached |= new
        frontier += new
    return tuple(state for state in JobState if state in reached)


REACHED: Final = _reached()
"""The states that a job can be in today: what commands offer to choose from."""
OWNED: Final = frozenset({S.RUNNING, S.CANCELLING})
REVOKES: Final = frozenset({Event.RELEASED, Event.LOST, Event.POISONED, Event.CANCEL_FORCED})

HISTORY_FIRST: Final = 5
HISTORY_LAST: Final = 45

KEEPS_ERROR: Final = frozenset({Outcome.RELEASED, Outcome.SNOOZED})
"""Attempts that ended so failed at nothing: what an earlier one failed of is still told."""

_OUTCOME_EVENTS: Final = {
    Outcome.SUCCEEDED: Event.SUCCEEDED,
    Outcome.FAILED: Event.FAILED,
    Outcome.RETRIED: Event.RETRIED,
    Outcome.SNOOZED: Event.SNOOZED,
    Outcome.RELEASED: Event.RELEASED,
    Outcome.CANCELLED: Event.ABORTED,
}


def move(state: JobState, event: Event) -> JobState | None:
    """The state that follows, or None if this event changes nothing in this state."""
    return MOVES[state].get(event)


def after_finish(state: JobState, outcome: Outcome) -> JobState:
    """Where an owned job goes when its attempt ends so."""
    following = move(state, _OUTCOME_EVENTS[outcome])
    assert following is not None, f"{state} is not owned"
    return following


def judge(state: JobState, token: int, worker: UUID | None, finish: Finish) -> Verdict:
    """Whether a finish counts: only the owner's does, and only once."""
    if finish.token != token:
        return Verdict.STALE
    if state not in OWNED:
        return Verdict.ALREADY_RECORDED
    return Verdict.RECORDED if finish.worker in (None, worker) else Verdict.STALE


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    for state, moves in MOVES.items():
        for event, following in moves.items():
            lines.append(f"    {state} --> {following}: {event}")
        if not moves:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines) + "\n"
