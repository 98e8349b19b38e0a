"""Which lanes are looked into, and for how many jobs."""

from __future__ import annotations

from longshore.core.lanes import lane_of
from longshore.dispatcher.roster import Roster
from longshore.model.worker import Attended, KindInfo, Lane, WorkerInfo
from longshore.testing.builders import new_id
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
