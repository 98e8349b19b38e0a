"""What is expected of a kind, by its earlier runs."""

from __future__ import annotations

import pytest

from longshore.core.run_times import MOST_RUNS, expected, merged, weight
from longshore.model.run_time import RunTime


def test_runs_weigh_alike_until_there_are_many() -> None:
    assert merged(RunTime("a", 3, 2.0), RunTime("a", 1, 6.0)) == RunTime("a", 4, 3.0)
    later = merged(RunTime("a", 10**9, 1.0), RunTime("a", MOST_RUNS, 3.0))
    assert later == RunTime("a", 2 * MOST_RUNS, 2.0)


def test_a_kind_without_a_figure_counts_as_the_mean_of_the_others() -> None:
    known = {"a": RunTime("a", 5, 1.0), "b": RunTime("b", 1, 3.0), "other": RunTime("other", 9, 9)}
    assert expected(["a", "b", "c"], known) == {"a": 1.0, "b": 3.0, "c": 2.0}


def test_nothing_is_expected_where_nothing_is_known() -> None:
    assert expected(["a", "b"], {}) == {}
    assert expected([], {"a": RunTime("a", 1, 1.0)}) == {}


@pytest.mark.parametrize(("seconds", "wanted"), [(0.0, 1), (1e-9, 1), (0.5, 500_000)])
def test_a_weight_is_a_whole_number_above_0(seconds: float, wanted: int) -> None:
    assert weight(seconds) == wanted
