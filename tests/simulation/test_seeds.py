"""Whole clusters through storms: every promise is kept, whatever the seed.

More than these run with `longshore simulate --from N --seeds COUNT`.
"""

from __future__ import annotations

import pytest

from longshore.testing.simulation.faults import Theme
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_scenario

from .telling import assert_kept

CHUNK = 10


@pytest.mark.parametrize("first", range(1, 61, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    """G1, G2, G3, G6, G8."""
    for seed in range(first, first + CHUNK):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_scenario(seed)))


@pytest.mark.parametrize("theme", list(Theme))
def test_every_promise_is_kept_in_storms_of_one_theme(theme: Theme) -> None:
    """G1, G2, G3, G6, G8."""
    for seed in range(1001, 1006):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_scenario(seed, theme)))
