"""Marks: a claim begins where the last ones ended, and still finds what was put back."""

from __future__ import annotations

import pytest

from longshore.store.postgres.cursors import (
    FIRST_URGENCY,
    FULL_LOOK_S,
    LAST_URGENCY,
    LONGEST_REST_S,
    LOOK_SHARE,
    MOST_LEVELS,
    TRAIL_S,
    ClaimCursors,
    Reached,
)

LANE = 7
LATER_S = 2 * TRAIL_S
Stretch = tuple[int, int, int]


def ranges(marks: ClaimCursors, now: float, *lanes: int) -> list[Stretch]:
    """From which urgency and number to which urgency a claim would read."""
    found = marks.look(lanes or [LANE], now).ranges
    return [(one.urgency, one.number, one.last_urgency) for one in found]


def take(
    marks: ClaimCursors, now: float, last: int, *, urgency: int = 0, short: bool = False
) -> None:
    """A claim of jobs up to this number, committed in no time."""
    took = [Reached(LANE, urgency, (0, last))]
    marks.claimed(marks.look([LANE], now), took, short=short, cost_s=0.0, now=now)


ALL = (FIRST_URGENCY, 0, LAST_URGENCY)


def test_unknown_lane_is_read_from_its_start() -> None:
    assert ranges(ClaimCursors(), 100.0) == [ALL]


def test_claims_begin_where_those_of_a_while_ago_ended() -> None:
    marks = ClaimCursors()
    take(marks, 100.0, 3)
    take(marks, 100.1, 5)
    assert ranges(marks, 100.2) == [ALL]
    take(marks, 100.3, 6)
    assert ranges(marks, 100.4) == [(FIRST_URGENCY, 0, -1), (0, 3, LAST_URGENCY)]
    take(marks, 100.6, 7)
    assert ranges(marks, 100.7) == [(FIRST_URGENCY, 0, -1), (0, 6, LAST_URGENCY)]


def test_every_urgency_has_its_own_mark() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        take(marks, now, 30, urgency=5)
        take(marks, now, 10, urgency=-5)
    assert ranges(marks, 101.0) == [
        (FIRST_URGENCY, 0, -6),
        (-5, 10, 4),
        (5, 30, LAST_URGENCY),
    ]


def test_most_urgent_level_has_nothing_before_it() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        take(marks, now, 3, urgency=FIRST_URGENCY)
    assert ranges(marks, 101.0) == [(FIRST_URGENCY, 3, LAST_URGENCY)]


def test_job_put_back_moves_the_mark_before_it() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5, 101.0):
        take(marks, now, 50)
    marks.put_back(LANE, 0, (0, 20))
    assert ranges(marks, 101.1) == [(FIRST_URGENCY, 0, -1), (0, 19, LAST_URGENCY)]
    take(marks, 101.2, 20)
    take(marks, 101.5, 51)
    take(marks, 101.8, 52)
    assert ranges(marks, 101.9)[-1] == (0, 51, LAST_URGENCY)


def test_claim_under_way_while_a_job_was_put_back_moves_no_mark() -> None:
    """It may have read the lane before the job was there again."""
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        take(marks, now, 10)
    look = marks.look([LANE], 101.0)
    marks.put_back(LANE, 0, (0, 20))
    marks.claimed(look, [Reached(LANE, 0, (0, 30))], short=False, cost_s=0.0, now=101.0)
    take(marks, 101.0 + LATER_S, 20)
    assert ranges(marks, 101.1 + LATER_S)[-1] == (0, 10, LAST_URGENCY)


def test_job_put_back_into_an_unknown_lane_needs_nothing() -> None:
    marks = ClaimCursors()
    marks.put_back(LANE, 0, (0, 20))
    assert ranges(marks, 100.0) == [ALL]


def test_full_look_comes_around() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        take(marks, now, 10)
    assert len(ranges(marks, 100.1 + FULL_LOOK_S)) == 2
    assert ranges(marks, 100.6 + FULL_LOOK_S) == [ALL]


def test_lane_that_gave_less_than_wanted_is_looked_through_soon() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        take(marks, now, 10)
    take(marks, 100.6, 11, short=True)
    assert ranges(marks, 100.7) == [ALL]


@pytest.mark.parametrize(
    ("cost_s", "rest_s"),
    [(0.2, 0.2 * LOOK_SHARE), (LONGEST_REST_S / LOOK_SHARE, LONGEST_REST_S), (9.0, LONGEST_REST_S)],
)
def test_full_look_that_costs_much_is_rarer(cost_s: float, rest_s: float) -> None:
    """As with an old snapshot that keeps dead entries in the index; but it never stays away."""
    marks = ClaimCursors()
    take(marks, 100.0, 10)
    look = marks.look([LANE], 110.0)
    assert LANE in look.full
    marks.claimed(look, [Reached(LANE, 0, (0, 11))], short=True, cost_s=cost_s, now=110.0)
    assert len(ranges(marks, 110.0 + rest_s - 0.1)) == 2
    assert ranges(marks, 110.0 + rest_s) == [ALL]


def test_lane_that_gives_its_jobs_as_they_come_is_seldom_looked_through() -> None:
    """Under an old snapshot a look costs much, and the jobs of that claim would wait for it."""
    marks = ClaimCursors()
    take(marks, 100.0, 10)
    look = marks.look([LANE], 110.0)
    marks.claimed(look, [Reached(LANE, 0, (0, 11))], short=True, cost_s=0.003, now=110.0)
    assert len(ranges(marks, 111.1)) == 2, "it gave something"
    look = marks.look([LANE], 111.1)
    assert marks.unseen(look, [Reached(LANE, 0, (0, 12))], 111.1) == []
    assert marks.unseen(look, [], 111.1) == [LANE], "it gave nothing"
    assert ranges(marks, 111.3) == [ALL]


def test_number_of_marks_is_bounded() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        for urgency in range(3 * MOST_LEVELS):
            take(marks, now, 10, urgency=urgency)
    assert len(ranges(marks, 100.6)) <= MOST_LEVELS + 1


def test_lanes_do_not_share_marks() -> None:
    marks = ClaimCursors()
    for now in (100.0, 100.5):
        take(marks, now, 10)
    assert len(ranges(marks, 101.0, LANE, 8)) == 3
    assert ranges(marks, 101.0, 8) == [ALL]


def test_lane_that_was_forgotten_is_read_from_its_start_again() -> None:
    marks = ClaimCursors()
    take(marks, 100.0, 3)
    take(marks, 100.0 + LATER_S, 5)
    begun = ranges(marks, 100.0 + LATER_S)
    marks.keep({LANE})
    assert ranges(marks, 100.0 + LATER_S) == begun != [ALL]
    marks.keep(set())
    assert ranges(marks, 100.0 + LATER_S) == [ALL]


def test_claim_under_way_as_its_lane_is_forgotten_counts() -> None:
    marks = ClaimCursors()
    take(marks, 100.0, 3)
    take(marks, 100.0 + LATER_S, 5)
    now = 100.0 + 2 * LATER_S
    look = marks.look([LANE], now)
    marks.keep(set())
    assert marks.unseen(look, [], now) == [LANE]
    marks.claimed(look, [Reached(LANE, 0, (0, 7))], short=True, cost_s=0.0, now=now)
    assert ranges(marks, now) == [ALL]
