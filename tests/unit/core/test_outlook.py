"""What is still to come of a group, and what a failure cost it."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from msgspec import structs
from tests.unit.core.graphs import node

from longshore.core.outlook import (
    Cost,
    Forecast,
    about,
    cost,
    critical_path,
    forecast,
    remaining,
    usable_slots,
)
from longshore.model.group import GATE, SCOPE
from longshore.model.job import JobState
from longshore.model.run_time import RunTime
from longshore.model.worker import Capacity, KindCapacity

S = JobState
TIMES = {"short": RunTime("short", 9, 2.0), "long": RunTime("long", 1, 30.0)}


def test_what_ended_is_not_to_come() -> None:
    nodes = [node("a", state=S.SUCCEEDED), node("b", "a", state=S.RUNNING), node("c", "b")]
    assert [one.key for one in remaining(nodes)] == ["b", "c"]


def test_the_critical_path_is_by_time_where_that_is_known() -> None:
    live = [node("a", kind="short"), node("b", "a", kind="short"), node("x", kind="long")]
    assert critical_path(live, {}) == ("a", "b")
    assert critical_path(live, TIMES) == ("x",)
    assert critical_path([], TIMES) == ()


def test_a_forecast_plays_the_rest_through() -> None:
    """A job that runs takes what is left; a kind that never ran takes the mean of the others."""
    running = structs.replace(node("x", kind="long", state=S.RUNNING), job=UUID(int=7))
    live = [
        running,
        node("a", "gone", kind="short", state=S.READY),
        node("b", "a", kind="short"),
        node("end", "x", "b", kind="new"),
    ]
    ran_s = {running.job: 10.0}
    assert forecast(live, TIMES, ran_s, 2) == Forecast(36.0, 36.0, 40.0, 2, 2, 3)
    assert forecast(live, TIMES, ran_s, 99) == Forecast(36.0, 36.0, 40.0, 4, 2, 3)
    assert forecast(live, TIMES, ran_s, 1) == Forecast(40.0, 36.0, 40.0, 1, 2, 3)


def test_gates_and_sub_groups_take_no_time_and_are_no_kind_of_job() -> None:
    live = [
        node("approve", kind=GATE, state=S.READY),
        node("a", "approve", kind="short"),
        node("part", kind=SCOPE),
    ]
    assert forecast(live, TIMES, {}, 9) == Forecast(2.0, 2.0, 2.0, 3, 1, 1)
    assert forecast(live[:1], TIMES, {}, 9) is None


def test_a_job_that_runs_longer_than_expected_may_end_any_moment() -> None:
    live = [node("a", kind="short", state=S.RUNNING)]
    assert forecast(live, TIMES, {live[0].job: 60.0}, 1) == Forecast(0.0, 0.0, 0.0, 1, 1, 1)


def test_what_runs_only_after_a_failure_is_not_expected() -> None:
    live = [node("a", kind="short"), node("sorry", "a", kind="long", on="failed")]
    found = forecast(live, TIMES, {}, 1)
    assert found is not None
    assert found.left_s == 2.0
    live = [node("sorry", "gone", kind="long", on="failed", state=S.READY)]
    found = forecast(live, TIMES, {}, 1)
    assert found is not None
    assert found.left_s == 30.0


def test_a_forecast_of_unknown_kinds_is_none() -> None:
    live = [node("a", kind="new")]
    assert forecast(live, TIMES, {}, 4) is None
    assert forecast(live, {}, {}, 4) is None
    assert forecast([node("a", kind="short")], TIMES, {}, 0) is None
    assert forecast([], TIMES, {}, 4) is None


def kind(name: str, pool: str, free: int) -> KindCapacity:
    same = {"workers": 1, "slots": 9, "busy": 0, "running": 0}
    return msgspec.convert({"kind": name, "pool": pool, "free": free, **same}, KindCapacity)


def test_the_slots_are_those_in_use_and_those_that_are_free_for_its_kinds() -> None:
    live = [
        node("a", kind="a", state=S.RUNNING),
        node("b", kind="b", state=S.RUNNING),
        node("c", kind="c"),
    ]
    kinds = (kind("a", "coroutine", 3), kind("b", "coroutine", 3), kind("c", "process", 1))
    other = kind("other", "thread", 30)
    assert usable_slots(live, Capacity(kinds=(*kinds, other), pools=())) == 2 + 3 + 1
    assert usable_slots(live, Capacity(kinds=(), pools=())) == 2


def test_a_failure_costs_what_could_not_run_because_of_it() -> None:
    nodes = [
        node("a", state=S.FAILED),
        node("other", state=S.FAILED),
        node("b", "a", state=S.DEPENDENCY_FAILED),
        node("c", "b", state=S.DEPENDENCY_FAILED),
        node("d", "other", state=S.DEPENDENCY_FAILED),
        node("sorry", "a", on="failed", state=S.SUCCEEDED),
        node("rest", state=S.CANCELLED),
    ]
    assert cost(nodes, "a", fail_fast=False) == Cost(2, 0)
    assert cost(nodes, "other", fail_fast=False) == Cost(1, 0)
    assert cost(nodes, "a", fail_fast=True) == Cost(2, 1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "1 s"),
        (39.2, "40 s"),
        (250.0, "4 min"),
        (7_800.0, "2 h 10 min"),
        (3_599.0, "1 h 0 min"),
        (280_000.0, "3 d 5 h"),
    ],
)
def test_a_forecast_is_told_no_more_exactly_than_it_is(seconds: float, words: str) -> None:
    assert about(seconds) == words
