"""How a search finds the newest job before a time, over numbers of which many are gone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from longshore.store.listing import narrow, spread

_START = datetime(2026, 1, 1, tzinfo=UTC)


def found(kept: Iterable[int], first_young: int, near: int = 1) -> tuple[int, int]:
    """Where a search ends, and after how many looks, if only these numbers still have a job."""
    jobs = sorted(kept)
    low, high, looks = 0, jobs[-1], 0
    while high - low > near:
        numbers = spread(low, high)
        came = {
            number: _START + timedelta(seconds=older[-1])
            for number in numbers
            if (older := [one for one in jobs if one <= number])
        }
        low, high = narrow(numbers, came, high, _START + timedelta(seconds=first_young))
        looks += 1
    return high, looks


def test_a_search_passes_over_all_that_was_pruned() -> None:
    """The jobs that are left lie close together, at the end of a long way."""
    kept = range(1_000_000, 1_000_041)
    high, looks = found(kept, first_young=1_000_001)
    assert high == 1_000_001
    assert looks < 10


@given(st.sets(st.integers(1, 100_000), min_size=1, max_size=50), st.integers(0, 100_001))
def test_a_search_ends_at_the_first_young_job(kept: set[int], first_young: int) -> None:
    young = [one for one in kept if one >= first_young]
    assert found(kept, first_young)[0] == min(young, default=max(kept))
