"""Which lanes are looked into, and for how many jobs."""

from __future__ import annotations

from collections.abc import Iterator

from longshore.core.intake import Seats
from longshore.core.lanes import lane_of
from longshore.dispatcher.roster import Plan, Roster
from longshore.model.job import Submission
from longshore.model.worker import Attended, KindInfo, Lane, Seat, WorkerInfo
from longshore.testing.builders import a_job, new_id
from longshore.wire.dispatcher_side import FullAttendance

FETCH = lane_of("default", "fetch", "")
RESIZE = lane_of("default", "resize", "")


def a_roster(*lanes: Lane, slots: int = 100) -> Roster:
    """One worker that serves these lanes, each of which was found empty."""
    roster = Roster()
    kinds = {lane.kind: KindInfo() for lane in lanes}
    info = WorkerInfo(id=new_id(), kinds=kinds, slots=slots)
    roster.add(FullAttendance(b"peer", info, Attended(1), 0.0, draining=False))
    roster.learn(lanes)
    return roster


def asked(roster: Roster, most: int = 1000) -> list[int]:
    return [len(want.seats) for want in roster.wants(most)]


def test_no_more_is_asked_for_than_was_submitted() -> None:
    roster = a_roster(FETCH)
    assert asked(roster) == []
    roster.expect({FETCH.hash: 3})
    assert asked(roster) == [3]
    roster.cool(roster.wants(1000), {FETCH.hash: 3})
    assert asked(roster) == []


def test_what_could_not_be_taken_yet_is_asked_for_again() -> None:
    roster = a_roster(FETCH, slots=2)
    roster.expect({FETCH.hash: 5})
    roster.cool(roster.wants(1000), {FETCH.hash: 2})
    roster.expect({FETCH.hash: 1})
    assert asked(roster) == [2]
    roster.cool(roster.wants(1000), {FETCH.hash: 2})
    roster.cool(roster.wants(1000), {FETCH.hash: 2})
    assert asked(roster) == []


def test_a_worker_of_which_it_is_not_known_what_it_has_is_given_nothing() -> None:
    """It may be full already."""
    roster = a_roster(FETCH)
    [attendance] = roster
    seats = [Seat(attendance.info.id, attendance.session)]
    roster.heat([FETCH.hash])
    roster.doubt(seats)
    assert asked(roster) == []
    assert roster.plan([a_job(kind="fetch")], 1000).seats == [None]
    roster.trust(seats)
    assert asked(roster) == [100]


def test_a_connection_that_another_worker_has_by_now_stays_with_that_one() -> None:
    roster = a_roster(FETCH)
    [before] = roster
    info = WorkerInfo(id=new_id(), kinds={"fetch": KindInfo()})
    now = FullAttendance(before.peer, info, Attended(1), 0.0, draining=False)
    roster.add(now)
    roster.remove(before)
    assert roster.of_peer(before.peer) is now
    assert list(roster) == [now]


def test_a_lane_of_which_nothing_is_known_is_asked_for_all_there_is_room_for() -> None:
    roster = a_roster(FETCH)
    roster.heat([FETCH.hash])
    assert asked(roster) == [100]
    roster.cool(roster.wants(1000), {FETCH.hash: 100})
    assert asked(roster) == [100]
    roster.cool(roster.wants(1000), {FETCH.hash: 99})
    assert asked(roster) == []


def test_one_lane_that_gives_nothing_leaves_the_others_as_they_are() -> None:
    roster = a_roster(FETCH, RESIZE)
    roster.expect({FETCH.hash: 2})
    wants = roster.wants(1000)
    roster.expect({RESIZE.hash: 1})
    roster.cool(wants, {})
    (want,) = roster.wants(1000)
    assert (want.lanes, len(want.seats)) == ((RESIZE.hash,), 1)


def test_a_lane_that_was_filled_while_it_was_looked_into_is_looked_into_again() -> None:
    roster = a_roster(FETCH)
    roster.expect({FETCH.hash: 1})
    wants = roster.wants(1000)
    roster.expect({FETCH.hash: 4})
    roster.cool(wants, {})
    assert asked(roster) == [5]


def test_when_a_batch_has_no_room_for_all_each_kind_of_worker_is_served_in_turn() -> None:
    roster = a_roster(FETCH)
    info = WorkerInfo(id=new_id(), kinds={"resize": KindInfo()})
    roster.add(FullAttendance(b"other", info, Attended(1), 0.0, draining=False))
    roster.learn([RESIZE])
    roster.heat([FETCH.hash, RESIZE.hash])
    served = [want.lanes for _ in range(4) for want in roster.wants(10)]
    assert sorted(served) == sorted([(FETCH.hash,), (RESIZE.hash,)] * 2)


def seated(plan: Plan) -> list[bool]:
    return [seat is not None for seat in plan.seats]


def some(kind: str, count: int, priority: int = 0) -> list[Submission]:
    return [a_job(kind=kind, priority=priority) for _ in range(count)]


def test_submits_begin_at_once_where_nobody_waits() -> None:
    roster = a_roster(FETCH, slots=2)
    plan = roster.plan(some("fetch", 3), 1000)
    assert seated(plan) == [True, True, False]
    assert plan.wants == []
    assert roster.seats() == Seats(2, True)


def test_submits_do_not_overtake_those_who_wait() -> None:
    roster = a_roster(FETCH, RESIZE, slots=5)
    roster.expect({RESIZE.hash: 1})
    plan = roster.plan(some("fetch", 3), 1000)
    assert seated(plan) == [False] * 3
    assert [len(want.seats) for want in plan.wants] == [4]


def test_the_most_urgent_submits_are_seated_first() -> None:
    roster = a_roster(FETCH, RESIZE, slots=2)
    jobs = [*some("fetch", 2), *some("resize", 1, priority=5), *some("fetch", 1, priority=1)]
    assert seated(roster.plan(jobs, 1000)) == [False, False, True, True]


def test_submits_for_later_and_of_unknown_kinds_are_not_seated() -> None:
    roster = a_roster(FETCH)
    jobs = [a_job(kind="fetch", delay_s=5.0), a_job(kind="strange"), a_job(kind="fetch")]
    plan = roster.plan(jobs, 1000)
    assert seated(plan) == [False, False, True]


def test_what_one_kind_of_worker_has_no_room_for_goes_to_another() -> None:
    roster = a_roster(FETCH, slots=1)
    kinds = {lane.kind: KindInfo() for lane in (FETCH, RESIZE)}
    info = WorkerInfo(id=new_id(), kinds=kinds, slots=1)
    roster.add(FullAttendance(b"other", info, Attended(1), 0.0, draining=False))
    for want in [*roster.wants(1000), *roster.wants(1000)]:
        roster.cool([want], {})
    assert seated(roster.plan(some("fetch", 3), 1000)).count(True) == 2


def test_free_seats_are_those_that_somebody_waits_for_if_anybody_does() -> None:
    roster = a_roster(FETCH, slots=3)
    assert roster.seats() == Seats(3, False)
    info = WorkerInfo(id=new_id(), kinds={"resize": KindInfo()}, slots=4)
    roster.add(FullAttendance(b"other", info, Attended(1), 0.0, draining=False))
    roster.learn([RESIZE])
    roster.cool(roster.wants(1000), {})
    assert roster.seats() == Seats(7, False)
    roster.expect({RESIZE.hash: 1})
    assert roster.seats() == Seats(4, True)


def test_submits_in_every_batch_do_not_keep_the_same_kind_of_worker_first() -> None:
    roster = a_roster(FETCH)
    info = WorkerInfo(id=new_id(), kinds={"resize": KindInfo()})
    roster.add(FullAttendance(b"other", info, Attended(1), 0.0, draining=False))
    roster.learn([RESIZE])
    roster.heat([FETCH.hash, RESIZE.hash])
    plans = [roster.plan(some("fetch", 1), 1) for _ in range(4)]
    served = [want.lanes for plan in plans for want in plan.wants]
    assert sorted(served) == sorted([(FETCH.hash,), (RESIZE.hash,)] * 2)


class Unwalked(dict[int, float]):
    """May be looked into, but not walked through."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("it takes as long as there are lanes, for every profile")


def test_lanes_that_nobody_serves_cost_the_others_nothing() -> None:
    roster = a_roster(FETCH)
    roster._hot = Unwalked((n, 1.0) for n in range(1000))
    assert roster.seats() == Seats(100, False)
    assert seated(roster.plan(some("fetch", 2), 1000)) == [True, True]


def test_seats_of_many_kinds_of_workers_are_filled_by_urgency() -> None:
    roster = a_roster(FETCH, slots=1)
    for number in range(3):
        info = WorkerInfo(id=new_id(), kinds={"fetch": KindInfo()}, slots=1, target=f"{number}")
        roster.add(FullAttendance(bytes([number]), info, Attended(1), 0.0, draining=False))
    roster.cool(roster.wants(1000), {})
    jobs = [a_job(kind="fetch", priority=priority) for priority in (1, 0, 2, 0, 3, 1)]
    plan = roster.plan(jobs, 1000)
    assert seated(plan) == [True, False, True, False, True, True]
    assert len({seat.worker for seat in plan.seats if seat is not None}) == 4
