"""What became of the times of a schedule, as its page shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from longshore.gateway.pages.schedules import in_spans
from longshore.model.schedule import Fate, Fire

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def fire(minutes: int, fate: Fate = Fate.SKIPPED, why: str = "paused", **more: object) -> Fire:
    at = NOON + timedelta(minutes=minutes)
    return Fire(nominal_at=at, fate=fate, why=why, **more)  # type: ignore[arg-type]


def test_times_that_submitted_nothing_for_one_reason_are_one_row() -> None:
    submitted = fire(5, Fate.SUBMITTED, "", subject=UUID(int=1))
    earlier = fire(2, last_at=NOON + timedelta(minutes=3), count=2)
    [last, first, *rest] = in_spans([submitted, fire(4), earlier, fire(1, why="late"), fire(0)])
    assert last == submitted
    assert (first.nominal_at, first.last_at, first.count) == (
        NOON + timedelta(minutes=2),
        NOON + timedelta(minutes=4),
        3,
    )
    assert [(one.why, one.count) for one in rest] == [("late", 1), ("paused", 1)]


def test_times_that_submitted_are_rows_of_their_own() -> None:
    fires = [fire(n, Fate.SUBMITTED, "", subject=UUID(int=n)) for n in (2, 1)]
    assert in_spans(fires) == fires
