"""Nominal times: every zone, every change of clocks, exclusions and bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

import pytest

from longshore.core.occurrences import (
    candidates,
    check_cron,
    due_at,
    local,
    next_look,
    next_times,
    zone_of,
)
from longshore.errors import InvalidInput
from longshore.model.schedule import Spec, Timing

VIENNA = "Europe/Vienna"
STEP = timedelta(days=5)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def cron(expression: str, tz: str = VIENNA, **more: object) -> Timing:
    return Timing((Spec(cron=expression, tz=tz),), **more)  # type: ignore[arg-type]


def texts(timing: Timing, after: str, most: int, tz: str = VIENNA) -> list[str]:
    return [local(one, tz).isoformat() for one in next_times(timing, at(after), most)]


def changes() -> dict[tuple[datetime, timedelta, timedelta], str]:
    """Each change of clocks from 2020 to 2040, with one zone that makes it."""
    found: dict[tuple[datetime, timedelta, timedelta], str] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        low, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
        before = offset(low, zone)
        while low < end:
            high = low + STEP
            after = offset(high, zone)
            if after != before:
                found.setdefault((_moment(low, high, zone), before, after), name)
            low, before = high, after
    return found


def offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _moment(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    before = offset(low, zone)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        low, high = (middle, high) if offset(middle, zone) == before else (low, middle)
    return high


def test_each_local_time_fires_once_in_every_zone_and_each_passing_hour_as_often_as_it_comes() -> (
    None
):
    found = changes()
    assert len(found) > 300, "the list of zones is not there"
    for (moment, before, after), name in found.items():
        zone = ZoneInfo(name)
        # In the middle of the local time that does not come, or comes twice.
        naive = (moment + (before + after) / 2).replace(tzinfo=None, second=0, microsecond=0)
        fixed = cron(f"{naive.minute} {naive.hour} * * *", name)
        fired = next_times(fixed, moment - timedelta(hours=36), 3)
        [one] = [time for time in fired if abs(time - moment) < timedelta(hours=12)]
        apart = [later - earlier for earlier, later in pairwise(fired)]
        assert all(abs(one - DAY) <= timedelta(hours=3) for one in apart), (name, moment)
        if after > before:
            assert one == moment, (name, moment)
        else:
            assert one.astimezone(zone).replace(tzinfo=None) == naive, (name, moment)
            assert one < moment, (name, moment)
        passing = cron(f"{naive.minute} * * * *", name)
        start = moment - timedelta(hours=3)
        minutes = [start + MINUTE * n for n in range(1, 6 * 60)]
        wanted = [time for time in minutes if time.astimezone(zone).minute == naive.minute]
        assert next_times(passing, start, len(wanted)) == wanted, (name, moment)


def test_a_look_from_anywhere_in_a_repeated_hour_finds_the_same_times() -> None:
    for timing in (cron("*/10 * * * *"), cron("15,45 2 * * *"), cron("0 */20 2 * * *")):
        start, end = at("2026-10-24T23:00Z"), at("2026-10-25T03:00Z")
        whole = [time for time in next_times(timing, start, 30) if time <= end]
        for minute in range(0, 240, 7):
            after = start + MINUTE * minute
            rest = [time for time in next_times(timing, after, 30) if time <= end]
            assert rest == [time for time in whole if time > after], (timing, after)


def test_a_fixed_time_that_does_not_come_fires_when_the_clocks_go_forward() -> None:
    assert texts(cron("30 2 * * *"), "2026-03-28T12:00Z", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    # Many in the gap are one: they would all come at that moment.
    assert texts(cron("*/15 2 * * *"), "2026-03-28T12:00Z", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:00:00+02:00",
    ]


def test_seconds_come_first_and_obey_the_rules_of_clocks_too() -> None:
    assert texts(cron("*/20 0 2 * * *"), "2026-10-24T23:59:50Z", 4) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:20+02:00",
        "2026-10-25T02:00:40+02:00",
        "2026-10-26T02:00:00+01:00",
    ]


def test_several_specs_are_one_row_of_times_without_repeats() -> None:
    timing = Timing((Spec(cron="0 2 * * *", tz=VIENNA), Spec(every_s=21_600)))
    assert [str(one) for one in next_times(timing, at("2026-06-01T00:00Z"), 4)] == [
        "2026-06-01 06:00:00+00:00",
        "2026-06-01 12:00:00+00:00",
        "2026-06-01 18:00:00+00:00",
        "2026-06-02 00:00:00+00:00",
    ]


def test_excluded_are_days_spans_and_cron_expressions() -> None:
    exclude = ("2026-12-25", "2026-12-27..2026-12-28", "* 2 31 12 *")
    assert texts(cron("0 2 * * *", exclude=exclude), "2026-12-24T00:00Z", 4) == [
        "2026-12-24T02:00:00+01:00",
        "2026-12-26T02:00:00+01:00",
        "2026-12-29T02:00:00+01:00",
        "2026-12-30T02:00:00+01:00",
    ]


def test_start_and_end_bound_the_times_and_every_counts_from_the_start() -> None:
    start, end = at("2026-01-01T00:00:10Z"), at("2026-01-01T00:02:00Z")
    timing = Timing((Spec(every_s=45),), starts_at=start, ends_at=end)
    assert [str(one.time()) for one in next_times(timing, at("2025-01-01T00:00Z"), 9)] == [
        "00:00:10",
        "00:00:55",
        "00:01:40",
    ]
    assert next_look(timing, end) is None


def test_a_schedule_that_excludes_all_is_looked_at_now_and_then_and_never_for_long() -> None:
    timing = cron("* * * * * *", exclude=("* * * * *",))
    assert next_times(timing, at("2026-01-01T00:00Z"), 3) == []
    assert next_look(timing, at("2026-01-01T00:00Z")) == at("2026-01-01T00:01:40Z")


def test_jitter_follows_from_the_schedule_and_the_nominal_time() -> None:
    nominal = at("2026-01-01T02:00Z")
    both = [due_at(UUID(int=n), nominal, 60) for n in (1, 1, 2)]
    assert both[0] == both[1] != both[2]
    assert all(nominal <= one < nominal + MINUTE for one in both)


def test_a_time_that_never_comes_has_no_look() -> None:
    assert next_look(cron("0 0 30 2 1"), at("2026-01-01T00:00Z")) is not None  # a Monday, or
    assert list(candidates(Timing(()), at("2026-01-01T00:00Z"))) == []


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "0 0 31 2 *", "@daily", "x"])
def test_what_is_no_cron_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match="is no cron expression"):
        check_cron(expression)


@pytest.mark.parametrize("name", ["Vienna", "", "../etc/passwd", "Europe"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="is no time zone"):
        zone_of(name)
