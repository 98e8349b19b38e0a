"""Turns: when the next one is due, what becomes of its job, which events are in it, its timers."""

from __future__ import annotations

from itertools import product
from math import nan
from uuid import UUID

import pytest

from longshore.core.effects import FARTHEST_S
from longshore.core.lanes import body_hash
from longshore.core.turns import (
    AT_ONCE,
    EVENT_BYTES,
    MAX_TIMERS,
    MICROS,
    MOST_EVENTS,
    Step,
    TurnJob,
    after_firing,
    check_turn,
    events_of,
    go,
    next_step,
    next_wake,
    set_at,
    status_of,
    turn_job,
    turn_kind,
    turn_of,
)
from longshore.errors import InvalidInput
from longshore.model.actor import ActorStatus, ActorTerms, Event, EventKind, Timer, Turn
from longshore.model.job import JobState, Options

S = JobState
ACTOR = UUID(int=7)
NOW = 1_000_000_000


def message(number: int, at: int = NOW, args: bytes = b"") -> Event:
    return Event(EventKind.MESSAGE, f"m{number}", args, at, number)


def names(events: tuple[Event, ...]) -> list[str]:
    return [event.name or event.kind for event in events]


# the job of a turn


def test_job_of_a_turn_follows_from_the_actor_and_its_number() -> None:
    terms = ActorTerms("q", "t", 5, Options(timeout_s=3.0))
    job = turn_job(ACTOR, "counter", terms, 2, 9, 1.5)
    assert job == turn_job(ACTOR, "counter", terms, 2, 9, 1.5)
    assert job.id != turn_job(ACTOR, "counter", terms, 2, 10).id
    assert (job.kind, job.queue, job.target, job.priority) == ("counter@2", "q", "t", 5)
    assert (job.delay_s, job.options) == (1.5, Options(timeout_s=3.0, turn=True))
    assert turn_of(job.args) == (ACTOR, 9)
    assert isinstance(body_hash(job), int)


def test_arguments_that_name_no_turn_are_refused() -> None:
    with pytest.raises(InvalidInput, match="not the arguments of an actor's turn"):
        turn_of(b"\x80")


def test_kind_has_the_version() -> None:
    assert turn_kind("counter", 3) == "counter@3"


# when it is due


def test_start_and_mail_wake_at_once() -> None:
    assert next_wake(starts=True, has_mail=False, timers=(), delayed_at=None) == AT_ONCE
    assert next_wake(starts=False, has_mail=True, timers=(), delayed_at=None) == AT_ONCE


def test_first_timer_or_delayed_message_wakes() -> None:
    timers = [Timer("a", 50), Timer("b", 20), Timer("c")]
    assert next_wake(starts=False, has_mail=False, timers=timers, delayed_at=None) == 20
    assert next_wake(starts=False, has_mail=False, timers=timers, delayed_at=10) == 10
    assert next_wake(starts=False, has_mail=False, timers=(), delayed_at=10) == 10
    assert next_wake(starts=False, has_mail=False, timers=(), delayed_at=None) is None


# what becomes of its job


def step(state: S | None, wake: int | None, **words: object) -> tuple[Step, float | None]:
    failures, run_at = words.get("failures", 0), words.get("run_at")
    job = None if state is None else TurnJob(state, failures, run_at)  # type: ignore[arg-type]
    return next_step(job, wake, NOW, paused=bool(words.get("paused")))


def test_turn_is_made_when_something_wakes_the_actor() -> None:
    assert step(None, None) == (Step.STAY, None)
    assert step(None, AT_ONCE) == (Step.MAKE, None)
    assert step(None, NOW + 2 * MICROS) == (Step.MAKE, 2.0)


def test_no_turn_is_made_of_a_paused_actor() -> None:
    assert step(None, AT_ONCE, paused=True) == (Step.STAY, None)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    "state", [S.RUNNING, S.CANCELLING, S.FAILED, S.CANCELLED, S.SKIPPED, S.SUCCEEDED]
)
def test_turn_that_runs_or_has_ended_stays(state: S, paused: bool) -> None:
    for wake in (None, AT_ONCE, NOW + 1):
        assert step(state, wake, paused=paused) == (Step.STAY, None)


def test_turn_of_a_paused_actor_is_held() -> None:
    for failures in (0, 1):
        assert step(S.READY, AT_ONCE, paused=True, failures=failures) == (Step.HOLD, None)
        assert step(S.DELAYED, AT_ONCE, paused=True, failures=failures) == (Step.HOLD, None)
        assert step(S.WAITING, AT_ONCE, paused=True, failures=failures) == (Step.STAY, None)


def test_delayed_turn_is_pulled_forward_by_mail() -> None:
    assert step(S.DELAYED, AT_ONCE, run_at=NOW + 5) == (Step.GO, None)
    assert step(S.READY, AT_ONCE) == (Step.STAY, None)
    assert step(S.WAITING, AT_ONCE) == (Step.GO, None)


def test_turn_that_backs_off_is_left_alone() -> None:
    later = NOW + 3 * MICROS
    for wake in (None, AT_ONCE, NOW + MICROS):
        assert step(S.DELAYED, wake, failures=1, run_at=later) == (Step.STAY, None)
        assert step(S.READY, wake, failures=1) == (Step.STAY, None)
        assert step(S.WAITING, wake, failures=1, run_at=later) == (Step.GO, 3.0)
        assert step(S.WAITING, wake, failures=1, run_at=NOW) == (Step.GO, None)


def test_turn_that_nothing_wakes_any_more_is_removed_or_gets_another_time() -> None:
    later = NOW + MICROS
    for state in (S.READY, S.DELAYED, S.WAITING):
        assert step(state, None) == (Step.REMOVE, None)
        assert step(state, later) == (Step.ANEW, 1.0)
    assert step(S.DELAYED, later, run_at=later) == (Step.STAY, None)


def test_go_leads_to_ready_or_delayed() -> None:
    assert go(S.DELAYED, None, None).state is S.READY
    assert go(S.WAITING, None, None).state is S.READY
    delayed = go(S.WAITING, 5.0, 10.0)
    assert (delayed.state, delayed.delay_s, delayed.deadline_s) == (S.DELAYED, 5.0, 15.0)


def test_status_follows_from_the_job_unless_a_user_wants_otherwise() -> None:
    expected = {
        None: "sleeping",
        S.WAITING: "sleeping",
        S.DELAYED: "sleeping",
        S.READY: "ready",
        S.RUNNING: "running",
        S.CANCELLING: "running",
    }
    for job in [None, *S]:
        status = status_of(paused=False, stopping=False, job=job)
        assert status == expected.get(job, "failed")
    for job, paused in product([None, *S], [False, True]):
        assert status_of(paused=paused, stopping=True, job=job) is ActorStatus.STOPPING
        assert status_of(paused=True, stopping=False, job=job) is ActorStatus.PAUSED


# events


def test_events_are_the_start_then_what_is_due_then_mail() -> None:
    timers = [Timer("late", NOW + 1), Timer("second", NOW - 5), Timer("first", NOW - 9)]
    delayed = [Event(EventKind.MESSAGE, "delayed", at=NOW - 7, number=2, was_delayed=True)]
    mail = [message(1, NOW - 8), message(3, NOW)]
    events = events_of(timers, mail, delayed, NOW, starts=True)
    assert names(events) == ["start", "first", "m1", "delayed", "second", "m3"]
    one = events_of(timers, mail, delayed, NOW, one_only=True)
    assert names(one) == ["first"]


def test_mail_keeps_its_order_whatever_the_clock_did() -> None:
    mail = [message(1, NOW + 50), message(2, NOW - 50), message(3, NOW)]
    assert names(events_of([], mail, [], NOW)) == ["m1", "m2", "m3"]


def test_start_is_alone_in_a_turn_that_failed_before() -> None:
    events = events_of([], [message(1)], [], NOW, starts=True, one_only=True)
    assert names(events) == ["start"]


def test_delayed_messages_that_are_not_due_stay() -> None:
    delayed = [Event(EventKind.MESSAGE, "later", at=NOW + 1, was_delayed=True)]
    assert events_of([], [], delayed, NOW) == ()


def test_turn_takes_a_bounded_number_of_events_and_bytes() -> None:
    many = [message(n) for n in range(MOST_EVENTS + 1)]
    assert len(events_of([], many, [], NOW)) == MOST_EVENTS
    large = [message(n, args=bytes(EVENT_BYTES - 1)) for n in range(3)]
    assert len(events_of([], large, [], NOW)) == 2


# timers


def test_timer_that_fires_once_is_gone() -> None:
    assert after_firing(Timer("a", NOW), NOW) is None


@pytest.mark.parametrize(
    ("at", "expected"),
    [(NOW, NOW + 10), (NOW - 3, NOW + 7), (NOW - 10, NOW + 10), (NOW - 25, NOW + 5)],
)
def test_repeated_timer_is_due_at_its_next_time_after_now(at: int, expected: int) -> None:
    timer = after_firing(Timer("a", at, every_s=10 / MICROS), NOW)
    assert timer is not None
    assert (timer.at, timer.every_s) == (expected, 10 / MICROS)


def test_timer_that_repeats_without_a_pause_still_moves_on() -> None:
    timer = after_firing(Timer("a", NOW, every_s=0.0), NOW)
    assert timer is not None
    assert timer.at == NOW + 1


def test_durations_become_times_and_times_stay() -> None:
    first, second = set_at([Timer("a", after_s=2.0), Timer("b", at=5)], NOW)
    assert (first.at, first.after_s) == (NOW + 2 * MICROS, None)
    assert second == Timer("b", at=5)


def test_no_timer_is_due_past_every_calendar() -> None:
    far, never = set_at([Timer("a", at=2**63), Timer("b")], NOW)
    assert far.at == NOW + round(FARTHEST_S) * MICROS
    assert never.at == NOW


# bounds


def test_sound_turn_is_taken() -> None:
    check_turn(Turn(b"12", 1, 0, timers=(Timer("a", 5), Timer("b", after_s=0.0))), 2, 60.0)


@pytest.mark.parametrize(
    ("turn", "word"),
    [
        (Turn(b"123", 1, 0), "max_value_bytes"),
        (Turn(b"", 1, 0, timers=(Timer("a", 1),) * (MAX_TIMERS + 1)), "timers are more"),
        (Turn(b"", 1, 0, timers=(Timer("a"),)), "has no time"),
        (Turn(b"", 1, 0, timers=(Timer("a", after_s=-1.0),)), "after_s"),
        (Turn(b"", 1, 0, timers=(Timer("a", after_s=61.0),)), "after_s"),
        (Turn(b"", 1, 0, timers=(Timer("a", after_s=nan),)), "after_s"),
        (Turn(b"", 1, 0, timers=(Timer("a", 1, every_s=61.0),)), "every_s"),
    ],
)
def test_turn_out_of_bounds_is_refused(turn: Turn, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        check_turn(turn, 2, 60.0)
