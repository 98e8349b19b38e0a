"""A job's life: the states, the events, and which event leads from which state to which.

Theory. A job is in one state at a time. An `Event` happens to it, and the table below names the
next state. If the table does not list the event for the job's state, the event came late or twice:
that is no error, and nothing changes. A job that has ended stays so, unless a user retries it: that
opens a new round. `RULES` has what each event does beside the move, and `core.effects` makes a
change of the job's row from both.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from longshore.model.job import JobState

S = JobState

MEANINGS: Final = {
    S.WAITING: "waits for jobs that it depends on, or for its paused group or actor",
    S.DELAYED: "waits for a time: it was submitted with a delay, or is to run again later",
    S.READY: "could run, and waits for a worker that serves it",
    S.RUNNING: "an attempt is with a worker",
    S.CANCELLING: "its worker was told to stop it",
    S.SUCCEEDED: "returned a result, which is recorded",
    S.FAILED: "raised, timed out or crashed, and is not tried again; or expired",
    S.DEPENDENCY_FAILED: "was not run, because a job that it depends on failed",
    S.SKIPPED: (
        "was not run, because what it waited for cannot come any more, or because its limit was "
        "full; or skipped itself"
    ),
    S.CANCELLED: "was cancelled before it could succeed",
}
"""What the docs say of a job in each state."""


class Event(StrEnum):
    """What can happen to a job."""

    DEPENDENCIES_MET = "dependencies met"
    DELAY_BEGAN = "dependencies met, its delay began"
    DEPENDENCY_FAILED = "a dependency failed"
    HELD = "held by its paused group"
    CONDITION_LOST = "its condition can no longer hold"
    CAME_DUE = "its time came"
    DROPPED = "its limit was full"
    EXPIRED = "it did not begin in time"
    OPENED = "a user opened this gate"
    EXPANDED = "its list became jobs"
    NOT_EXPANDED = "its list could not become jobs"
    CLAIMED = "claimed"
    SUCCEEDED = "its attempt succeeded"
    FAILED = "its attempt failed for good"
    RETRIED = "its attempt failed and is tried again"
    SKIPPED = "it asked to be skipped"
    SNOOZED = "it asked to be run later"
    RELEASED = "its attempt was handed back"
    NOT_BEGUN = "its attempt was handed back before it began"
    PUT_ASIDE = "its actor is paused"
    ABORTED = "its attempt was aborted"
    LOST = "its worker was lost"
    POISONED = "it crashed too many workers"
    CANCEL_ASKED = "cancelled by a user"
    REOPENED = "retried by a user"
    REOPENED_TO_WAIT = "retried with its group"


class Rule(NamedTuple):
    """What an event does beside the move: to the token, the failures, the error, the deadline."""

    revokes: bool = False
    is_failure: bool = False
    keeps_error: bool = False
    keeps_deadline: bool = False


RULES: Final = {
    Event.DEPENDENCIES_MET: Rule(keeps_error=True),
    Event.DELAY_BEGAN: Rule(keeps_error=True),
    Event.HELD: Rule(keeps_error=True),
    Event.DEPENDENCY_FAILED: Rule(),
    Event.CONDITION_LOST: Rule(),
    Event.CAME_DUE: Rule(keeps_error=True, keeps_deadline=True),
    Event.DROPPED: Rule(),
    Event.EXPIRED: Rule(),
    Event.OPENED: Rule(),
    Event.EXPANDED: Rule(),
    Event.NOT_EXPANDED: Rule(),
    Event.CLAIMED: Rule(),
    Event.SUCCEEDED: Rule(),
    Event.FAILED: Rule(is_failure=True),
    Event.RETRIED: Rule(is_failure=True),
    Event.SKIPPED: Rule(),
    Event.SNOOZED: Rule(keeps_error=True),
    Event.RELEASED: Rule(revokes=True, keeps_error=True),
    Event.NOT_BEGUN: Rule(revokes=True, keeps_error=True, keeps_deadline=True),
    Event.PUT_ASIDE: Rule(revokes=True, keeps_error=True, keeps_deadline=True),
    Event.ABORTED: Rule(),
    Event.LOST: Rule(revokes=True, keeps_error=True),
    Event.POISONED: Rule(revokes=True),
    Event.CANCEL_ASKED: Rule(keeps_error=True),
    Event.REOPENED: Rule(revokes=True),
    Event.REOPENED_TO_WAIT: Rule(revokes=True),
}
"""For every event. `core.effects` applies them."""

_MOVES: Final[dict[JobState, dict[Event, JobState]]] = {
    S.WAITING: {
        Event.DEPENDENCIES_MET: S.READY,
        Event.DELAY_BEGAN: S.DELAYED,
        Event.DEPENDENCY_FAILED: S.DEPENDENCY_FAILED,
        Event.CONDITION_LOST: S.SKIPPED,
        Event.CANCEL_ASKED: S.CANCELLED,
    },
    S.DELAYED: {
        Event.CAME_DUE: S.READY,
        Event.DROPPED: S.SKIPPED,
        Event.HELD: S.WAITING,
        Event.CANCEL_ASKED: S.CANCELLED,
    },
    S.READY: {
        Event.CLAIMED: S.RUNNING,
        Event.HELD: S.WAITING,
        Event.DROPPED: S.SKIPPED,
        Event.EXPIRED: S.FAILED,
        Event.OPENED: S.SUCCEEDED,
        Event.EXPANDED: S.SUCCEEDED,
        Event.NOT_EXPANDED: S.FAILED,
        Event.CANCEL_ASKED: S.CANCELLED,
    },
    S.RUNNING: {
        Event.SUCCEEDED: S.SUCCEEDED,
        Event.FAILED: S.FAILED,
        Event.SKIPPED: S.SKIPPED,
        Event.RETRIED: S.DELAYED,
        Event.SNOOZED: S.DELAYED,
        Event.RELEASED: S.READY,
        Event.NOT_BEGUN: S.READY,
        Event.PUT_ASIDE: S.WAITING,
        Event.ABORTED: S.CANCELLED,
        Event.LOST: S.READY,
        Event.POISONED: S.FAILED,
        Event.CANCEL_ASKED: S.CANCELLING,
    },
    S.CANCELLING: {
        Event.SUCCEEDED: S.SUCCEEDED,
        Event.FAILED: S.CANCELLED,
        Event.SKIPPED: S.CANCELLED,
        Event.RETRIED: S.CANCELLED,
        Event.SNOOZED: S.CANCELLED,
        Event.RELEASED: S.CANCELLED,
        Event.NOT_BEGUN: S.CANCELLED,
        Event.PUT_ASIDE: S.CANCELLED,
        Event.ABORTED: S.CANCELLED,
        Event.LOST: S.CANCELLED,
        Event.POISONED: S.CANCELLED,
    },
    S.FAILED: {Event.REOPENED: S.READY, Event.REOPENED_TO_WAIT: S.WAITING},
    S.DEPENDENCY_FAILED: {Event.REOPENED: S.READY, Event.REOPENED_TO_WAIT: S.WAITING},
    S.SKIPPED: {Event.REOPENED: S.READY, Event.REOPENED_TO_WAIT: S.WAITING},
    S.CANCELLED: {Event.REOPENED: S.READY, Event.REOPENED_TO_WAIT: S.WAITING},
    S.SUCCEEDED: {Event.REOPENED_TO_WAIT: S.WAITING},
}
MOVES: Final = MappingProxyType(_MOVES)

TERMINAL: Final = frozenset(
    {S.SUCCEEDED, S.FAILED, S.DEPENDENCY_FAILED, S.SKIPPED, S.CANCELLED},
)

OWNED: Final = frozenset({S.RUNNING, S.CANCELLING})
MAY_BE_MANY: Final = frozenset({S.READY, S.DELAYED})
"""Live states whose index is not in the order of numbers: a list must not sort all their jobs."""

HISTORY_FIRST: Final = 5
HISTORY_LAST: Final = 45


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    for state, moves in MOVES.items():
        for event, following in moves.items():
            lines.append(f"    {state} --> {following}: {event}")
        if not moves:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines) + "\n"
