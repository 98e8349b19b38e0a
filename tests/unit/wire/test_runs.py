"""What the dispatcher knows of the attempts that run, and of those that wait in their worker."""

from __future__ import annotations

from uuid import UUID

from msgspec import structs

from longshore.model.attempt import Attempt
from longshore.model.job import Options
from longshore.model.worker import Attended, KindInfo, Pool, Run, WorkerInfo
from longshore.wire import messages as m
from longshore.wire.dispatcher_side import FullSession

WORKER = UUID(int=100)
LEASE_S, PING_S = 15.0, 1.0
PROCESS = Pool.PROCESS.value
INFO = WorkerInfo(
    id=WORKER,
    kinds={"resize": KindInfo(Pool.PROCESS), "fetch": KindInfo(Pool.COROUTINE)},
    pools={PROCESS: 2, Pool.COROUTINE.value: 3},
)


def claimed(token: int, kind: str = "resize", priority: int = 0) -> Attempt:
    options = Options(timeout_s=5.0)
    which = UUID(int=token), token, token, kind, b"\x80", options
    return Attempt(*which, WORKER, 1, 1, 0, 0, priority=priority)


def attending(*placed: Attempt) -> FullSession:
    session = FullSession(b"peer", INFO, Attended(1), 0.0, draining=False)
    session.assign(placed)
    return session


def ping(
    session: FullSession, now: float, held: tuple[Attempt, ...], begun: dict[int, float] | None
) -> None:
    """The worker holds these, and runs some of them for so long."""
    keys = tuple((one.id, one.token) for one in held)
    runs = None if begun is None else {PROCESS: tuple(Run(*one) for one in begun.items())}
    session.pinged(now, m.Ping(WORKER, 1, 1, keys, begun=runs), PING_S, LEASE_S)


def end_by_force(session: FullSession, one: Attempt) -> None:
    session.settled((one.id, one.token))


# since when an attempt runs


def test_the_backstop_counts_from_the_real_start_of_an_attempt() -> None:
    """It began 2 s before the PING, whenever it was claimed."""
    one = claimed(11)
    session = attending(one)
    ping(session, 9.0, (one,), {})
    assert not session.is_overdue(one, 1000.0, 10.0), "it is held ahead"
    ping(session, 20.0, (one,), {11: 2.0})
    assert not session.is_overdue(one, 32.9, 10.0)
    assert session.is_overdue(one, 33.0, 10.0)


def test_the_real_start_of_an_attempt_survives_a_move_to_another_dispatcher() -> None:
    one = claimed(11)
    session = FullSession(b"peer", INFO, Attended(2, (one,)), 100.0, draining=False)
    ping(session, 101.0, (one,), {11: 14.5})
    assert session.is_overdue(one, 101.5, 10.0)


def test_of_a_worker_that_does_not_say_what_runs_everything_does() -> None:
    one = claimed(11)
    session = attending(one)
    ping(session, 9.0, (one,), None)
    assert not session.is_overdue(one, 23.9, 10.0)
    assert session.is_overdue(one, 24.0, 10.0)


def test_ages_that_make_no_sense_do_no_harm() -> None:
    one = claimed(11)
    for age_s in (-5.0, float("nan")):
        session = attending(one)
        ping(session, 9.0, (one,), {11: age_s})
        assert not session.is_overdue(one, 23.9, 10.0)


def test_a_program_that_begins_late_has_its_whole_time_from_then_on() -> None:
    one = claimed(11)
    session = attending(one)
    ping(session, 1.0, (one,), {11: 1.0})
    ping(session, 60.0, (one,), {11: 0.5})
    ping(session, 61.0, (one,), {11: 1.3})
    assert not session.is_overdue(one, 74.4, 10.0)
    assert session.is_overdue(one, 74.5, 10.0), "what a PING takes does not count"


def test_a_worker_that_does_not_say_what_runs_cannot_put_off_a_timeout() -> None:
    one = claimed(11)
    session = attending(one)
    for at in (9.0, 15.0, 21.0):
        ping(session, at, (one,), None)
    assert session.is_overdue(one, 24.0, 10.0)


# what is held ahead


def test_what_finds_no_slot_is_held_ahead_behind_what_runs() -> None:
    session = attending(*(claimed(token) for token in (11, 12, 13, 14)), claimed(15, "fetch"))
    assert session.held_ahead() == {13: 2, 14: 2}


def test_a_worker_with_free_slots_holds_nothing_ahead() -> None:
    assert attending(claimed(11), claimed(12)).held_ahead() == {}


def test_the_most_urgent_of_what_waits_begins_first() -> None:
    urgent = claimed(14, priority=1)
    session = attending(claimed(11), claimed(12), claimed(13), urgent)
    ping(session, 1.0, (), {11: 0.5, 12: 0.5})
    assert session.held_ahead() == {13: 2, 14: 2}
    session.ended(session.placed[11])
    assert session.held_ahead() == {13: 2}


# slots that are not free


def test_a_slot_is_not_free_while_the_worker_still_runs_what_was_ended_without_it() -> None:
    """Otherwise the next attempt would go to and fro until the worker kills the first."""
    one = claimed(11)
    session = attending(one)
    ping(session, 1.0, (one,), {11: 1.0})
    end_by_force(session, one)
    assert session.open_slots[PROCESS] == 1
    ping(session, 2.0, (one,), {11: 2.0})
    assert session.open_slots[PROCESS] == 1
    assert session.admits_stray(11)
    assert session.open_slots[PROCESS] == 2


def test_a_slot_is_free_once_the_worker_no_longer_lists_what_ran_there() -> None:
    one = claimed(11)
    session = attending(one)
    end_by_force(session, one)
    assert session.room == 4
    ping(session, 1.0, (), {})
    assert session.room == 5


def test_what_was_ended_while_it_was_held_ahead_takes_no_slot() -> None:
    held = claimed(13)
    session = attending(claimed(11), claimed(12), held)
    ping(session, 1.0, (held,), {11: 1.0, 12: 1.0})
    end_by_force(session, held)
    ping(session, 2.0, (), {11: 2.0, 12: 2.0})
    assert session.free[PROCESS] == 0


def test_a_worker_that_came_with_what_is_not_its_own_any_more_has_a_slot_less() -> None:
    stale = claimed(11)
    session = FullSession(b"peer", INFO, Attended(2), 0.0, draining=False)
    ping(session, 1.0, (stale,), {11: 30.0})
    assert session.open_slots[PROCESS] == 1
    ping(session, 2.0, (), {})
    assert session.open_slots[PROCESS] == 2


def test_a_worker_that_does_not_say_what_runs_frees_the_slot_when_it_holds_it_no_more() -> None:
    one = claimed(11)
    session = attending(one)
    end_by_force(session, one)
    ping(session, 1.0, (one,), None)
    assert session.open_slots[PROCESS] == 1
    ping(session, 2.0, (), None)
    assert session.open_slots[PROCESS] == 2


def test_a_pool_that_the_worker_does_not_have_changes_nothing() -> None:
    session = attending()
    runs: dict[str, tuple[Run, ...]] = {"attic": (Run(99, 1.0),)}
    session.pinged(1.0, m.Ping(WORKER, 1, begun=runs), PING_S, LEASE_S)
    assert session.free == INFO.pools


def test_what_never_reached_the_worker_takes_no_slot() -> None:
    one = structs.replace(claimed(11), kind="fetch")
    session = attending(one)
    session.undeliverable([one])
    end_by_force(session, one)
    assert session.room == 5
