"""A job's life: which moves there are, and what causes each.

Theory. A job is in one state. Something happens to it (an `Event`), and the table below says where
it goes. An event that the table does not list for a state is not an error: it is late or repeated,
and changes nothing. Terminal states are left by one event only, a manual retry, which opens a new
round. What else an event does to a job's row, its token first of all, is in `core.effects`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from longshore.model.job import JobState

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
    NOT_BEGUN = "its attempt was handed back before it began"
    ABORTED = "its attempt was aborted"
    LOST = "its worker was lost"
    POISONED = "it crashed too many workers"
    CANCEL_ASKED = "cancelled by a user"
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
        Event.NOT_BEGUN: S.READY,
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
        Event.NOT_BEGUN: S.CANCELLED,
        Event.ABORTED: S.CANCELLED,
        Event.LOST: S.CANCELLED,
        Event.POISONED: S.CANCELLED,
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
