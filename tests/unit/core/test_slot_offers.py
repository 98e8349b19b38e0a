"""Slots that several things of one transaction take from."""

from __future__ import annotations

from longshore.core.placement import SlotOffers, Woken
from longshore.model.worker import FreeWorker, OpenSlots, SessionKey
from longshore.testing.builders import new_id

ONE, OTHER = (SessionKey(new_id(), 1) for _ in range(2))


def offers(*free: tuple[SessionKey, int], room: int = 1_000) -> SlotOffers:
    return SlotOffers([OpenSlots({7}, [FreeWorker(slot, many, 0) for slot, many in free])], room)


def jobs(count: int, last: SessionKey | None = None, size: int = 1) -> list[Woken]:
    worker = None if last is None else last.worker
    return [Woken((place,), 7, size, worker) for place in range(count)]


def test_what_one_takes_another_does_not_get() -> None:
    some = offers((ONE, 2), (OTHER, 1))
    assert len(some.take(jobs(2))) == 2
    assert len(some.take(jobs(5))) == 1
    assert some.take(jobs(1)) == {}


def test_jobs_go_to_the_worker_that_had_them_while_it_has_slots() -> None:
    some = offers((ONE, 9), (OTHER, 2))
    assert [*some.take(jobs(4, OTHER)).values()] == [OTHER, OTHER, ONE, ONE]


def test_the_best_jobs_start_even_if_others_know_a_worker() -> None:
    known = [*jobs(1), Woken((1,), 7, 1, ONE.worker)]
    assert offers((ONE, 1)).take(known) == {0: ONE}


def test_no_job_starts_past_the_bytes_that_are_left() -> None:
    some = offers((ONE, 9), room=150)
    assert len(some.take(jobs(3, size=100))) == 2
    assert some.take(jobs(1)) == {}


def test_jobs_of_lanes_that_nobody_serves_get_nothing() -> None:
    assert offers((ONE, 9)).take([Woken((0,), 8, 1)]) == {}
