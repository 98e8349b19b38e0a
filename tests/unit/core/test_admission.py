"""How many submits a transaction takes, and for how long one waits for a slot."""

from __future__ import annotations

import pytest

from longshore.core.admission import Admission, FreeSlots, Patience, room

PATIENCE = Patience(none_free_s=0.02, most_s=0.5)
MOST = 1000


def taken(
    free: int, *, wanted: bool = False, none_free_s: float = 0.0, oldest_s: float = 0.0
) -> int:
    return room(FreeSlots(free, wanted), MOST, PATIENCE, none_free_s, oldest_s)


def test_while_workers_keep_up_as_many_are_taken_as_can_begin() -> None:
    assert taken(7) == 7
    assert taken(5000) == MOST


def test_a_submit_waits_a_moment_for_a_slot_and_is_then_taken_anyway() -> None:
    assert taken(0, none_free_s=0.01) == 0
    assert taken(0, none_free_s=0.02) == MOST


def test_nobody_waits_for_long_though_slot_come_free_all_the_time() -> None:
    assert taken(1, oldest_s=0.4) == 1
    assert taken(1, oldest_s=0.5) == MOST


@pytest.mark.parametrize(("free", "expected"), [(0, 1000), (10, 990), (900, 250), (5000, 250)])
def test_once_jobs_wait_idle_workers_go_first_but_submits_never_starve(
    free: int, expected: int
) -> None:
    assert taken(free, wanted=True, oldest_s=9.0) == expected


def test_the_smallest_batch_has_room_for_one() -> None:
    assert room(FreeSlots(9, True), 1, PATIENCE, 0.0, 0.0) == 1


def test_who_cannot_have_the_slot_that_are_free_does_not_wait_for_others() -> None:
    intake = Admission(MOST, PATIENCE)
    assert intake.room(FreeSlots(3, False), 1.0, 1.0) == 3
    intake.took(any_started=False)
    assert intake.room(FreeSlots(3, False), 1.001, 1.0) == MOST
    intake.took(any_started=True)
    assert intake.room(FreeSlots(3, False), 1.002, 1.0) == 3


def test_jobs_that_wait_already_are_no_sign_that_slot_are_of_no_use() -> None:
    intake = Admission(MOST, PATIENCE)
    intake.room(FreeSlots(3, False), 1.0, 1.0)
    intake.took(any_started=False)
    assert intake.room(FreeSlots(0, True), 1.001, 1.0) == MOST
    intake.took(any_started=False)
    assert intake.room(FreeSlots(3, False), 1.002, 1.0) == 3


def test_patience_counts_from_when_a_slot_was_last_free() -> None:
    intake = Admission(MOST, PATIENCE)
    assert intake.room(FreeSlots(1, False), 1.0, 1.0) == 1
    intake.took(any_started=True)
    assert intake.room(FreeSlots(0, False), 1.019, 1.0) == 0
    assert intake.room(FreeSlots(0, False), 1.021, 1.0) == MOST
