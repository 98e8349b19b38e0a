"""What an agent says of a turn that it had to end: which event is to blame."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec import msgpack

from longshore.executors.attempts import crashed, timed_out
from longshore.model.actor import Event, EventKind, TurnInput
from longshore.model.attempt import Assignment
from longshore.model.reports import CrashReport, FailureReport

ID = UUID(int=1)
MESSAGES = [Event(EventKind.MESSAGE, name, number=n) for n, name in enumerate(("add", "hang"), 1)]


def a_turn(*events: Event) -> Assignment:
    args = msgpack.encode(TurnInput(ID, "counter", "a", 1, b"", 1, 0, events=events))
    return Assignment(ID, 1, 1, "counter@1", args, timeout_s=2.0, worker=ID)


@pytest.mark.parametrize(
    ("events", "called"),
    [
        (MESSAGES[1:], "message 'hang' (number 2)"),
        ([Event(EventKind.TIMER, "tick")], "timer 'tick'"),
        ([Event(EventKind.START)], "'start'"),
        (MESSAGES, "one of 2 events, from message 'add' (number 1) on"),
        ([], "a turn without events"),
    ],
)
def test_turn_that_took_too_long_or_crashed_names_its_events(
    events: list[Event], called: str
) -> None:
    late, died = timed_out(a_turn(*events)), crashed(a_turn(*events), "the process died")
    assert isinstance(late, FailureReport)
    assert isinstance(died, CrashReport)
    assert late.error.message == f"{called}: took longer than its timeout of 2 s"
    assert died.error.message == f"{called}: the process died"


@pytest.mark.parametrize("worker", [None, ID])
def test_what_is_no_turn_names_nothing(worker: UUID | None) -> None:
    late = timed_out(Assignment(ID, 1, 1, "work", b"\x01", timeout_s=2.0, worker=worker))
    assert isinstance(late, FailureReport)
    assert late.error.message == "took longer than its timeout of 2 s"
