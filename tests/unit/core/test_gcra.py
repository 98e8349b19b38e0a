"""Rates: within any time no more than the rate and its burst, and no less than it could be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longshore.core.gcra import SLACK_US, Passed, Wait, free_units, pass_units
from longshore.model.limits import Rate

RATES = st.builds(
    Rate,
    units=st.integers(1, 1000),
    per_s=st.floats(0.001, 86_400, allow_nan=False),
    burst=st.integers(1, 50),
)
ARRIVALS = st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(1, 5)), max_size=60)


def _run(rate: Rate, arrivals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    now, even_at, passed = 1_000_000_000, 0, []
    for after, units in arrivals:
        now += after
        found = pass_units(rate, units, even_at, now)
        if isinstance(found, Passed):
            even_at = found.even_at
            passed.append((now, units))
    return passed


@given(RATES, ARRIVALS)
def test_any_window_has_at_most_the_rate_and_the_burst(
    rate: Rate, arrivals: list[tuple[int, int]]
) -> None:
    passed = _run(rate, arrivals)
    for at, (start, _) in enumerate(passed):
        units = 0
        for moment, some in passed[at:]:
            units += some
            within_s = (moment - start) / 1e6
            assert units <= rate.burst + within_s * rate.units / rate.per_s + 1e-6


@given(RATES, ARRIVALS, st.integers(1, 5))
def test_what_has_to_wait_begins_at_the_time_that_was_said_and_not_before(
    rate: Rate, arrivals: list[tuple[int, int]], units: int
) -> None:
    even_at, now = 0, 1_000_000_000
    for after, some in arrivals:
        now += after
        if isinstance(found := pass_units(rate, some, even_at, now), Passed):
            even_at = found.even_at
    found = pass_units(rate, units, even_at, now)
    if units > rate.burst:
        assert found == Wait(None)
    elif isinstance(found, Wait):
        assert found.until is not None
        assert found.until > now
        assert isinstance(pass_units(rate, units, even_at, found.until), Passed)
        assert isinstance(pass_units(rate, units, even_at, found.until - 1), Wait)


@given(RATES, st.integers(0, 100))
def test_so_many_units_as_are_free_begin_one_by_one(rate: Rate, used: int) -> None:
    now, even_at = 1_000_000_000, 0
    for _ in range(used):
        if isinstance(found := pass_units(rate, 1, even_at, now), Passed):
            even_at = found.even_at
    for _ in range(free_units(rate, even_at, now)):
        found = pass_units(rate, 1, even_at, now)
        assert isinstance(found, Passed)
        even_at = found.even_at


@given(RATES, ARRIVALS, st.integers(2, 10**12), st.integers(1, 5))
def test_a_clock_that_goes_back_wedges_no_key_and_lets_one_job_more_begin(
    rate: Rate, arrivals: list[tuple[int, int]], back: int, units: int
) -> None:
    now, even_at = 10**13, 0
    for after, some in arrivals:
        now += after
        if isinstance(found := pass_units(rate, some, even_at, now), Passed):
            even_at = found.even_at
    now -= back
    full = pass_units(rate, rate.burst, even_at, now)
    again = pass_units(rate, min(units, rate.burst), even_at, now)
    burst_us = rate.burst * rate.per_s * 1e6 / rate.units
    if even_at > now + burst_us + SLACK_US + 10:
        assert isinstance(again, Passed), "the kept time cannot be"
        assert again.even_at <= now + burst_us + rate.burst + 1
        later = pass_units(rate, min(units, rate.burst), again.even_at, now)
        assert isinstance(later, Wait) or rate.burst >= 2 * units
        assert free_units(rate, even_at, now, min(units, rate.burst)) >= min(units, rate.burst)
    elif isinstance(full, Wait):
        assert full.until is not None
        assert full.until - now <= burst_us + SLACK_US + rate.burst + 10
