"""A job's life: the states, the events, and which event leads from which state to which.

Theory. A job is in one state at a time. An `Event` happens to it, and the table below names the
next state. If the table does not list the event for the job's state, the event came late or twice:
that is no error, and nothing changes. A job that has ended stays so, unless a user retries it: that
opens a new round. `core.effects` decides what else an event changes in the job's row.
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
    EXPIRED = "it did not begin in time"
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
        Event.EXPIRED: S.FAILED,
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
"""The states in which a submitted job begins. No submit can ask to wait for other jobs yet."""


def _reached() -> tuple[JobState, ...]:
    reached, frontier = set(FIRST), list(FIRST)
    while frontier:
        new = set(MOVES[frontier.pop()].values()) - reached
        reached |= new
        frontier += new
    return tuple(state for state in JobState if state in reached)


REACHED: Final = _reached()
"""The states that a job can reach today. Commands offer these to choose from."""
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
