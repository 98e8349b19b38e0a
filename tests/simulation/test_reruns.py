"""New runs of groups in storms: what succeeded is taken over, once, and all the rest runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from longshore.core import new_run
from longshore.model.group import GroupState
from longshore.model.job import JobState
from longshore.store.run_steps import PlannedCopy
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import GroupRow, JobRow
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_reruns

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 9, 4))
def test_every_promise_is_kept_of_groups_that_are_run_anew(first: int) -> None:
    """G1, G2, G3, G5, G6, G8."""
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_reruns(seed)), "reruns")


def test_storms_hold_new_runs_of_every_kind() -> None:
    """Otherwise the checks would look at nothing."""
    plans = [group.rerun for seed in range(1, 9) for group in make_reruns(seed).groups]
    assert {0, 1, 2} <= {len(plan.keys) for plan in plans if plan is not None}
    assert {0, 1, 50} <= {plan.most for plan in plans if plan is not None}
    told = [line for line in simulate(make_reruns(1)).trace.lines() if "RunPlan" in line]
    assert any("taken_over=0" not in line for line in told)
    assert any("left_out=0" not in line for line in told)


# without what makes a new run right


class TakesAllThatSucceeded(MemoryStore):
    """Takes over jobs that succeeded, also if they rest on what runs anew."""

    def _copy_node(self, source: GroupRow, group: GroupRow, copy: PlannedCopy) -> None:
        has_succeeded = self._jobs[source.jobs[copy.place]].state is JobState.SUCCEEDED
        super()._copy_node(source, group, copy._replace(is_taken=has_succeeded))


def test_a_result_that_rests_on_what_runs_anew_is_noticed() -> None:
    """G5."""
    assert hunt(10, TakesAllThatSucceeded, make=make_reruns).promise is Promise.ORDER


class LosesResults(MemoryStore):
    """Takes jobs over without what they returned."""

    def _take_over(self, row: JobRow, original: JobRow, group: int) -> None:
        super()._take_over(row, original, group)
        row.job = structs.replace(row.job, result=None)


def test_a_job_that_is_taken_over_without_its_result_is_noticed() -> None:
    """G5."""
    assert hunt(10, LosesResults, make=make_reruns).promise is Promise.ORDER


class WaitsForNobody(MemoryStore):
    """Counts nothing that a copied job waits for."""

    def _copy_node(self, source: GroupRow, group: GroupRow, copy: PlannedCopy) -> None:
        super()._copy_node(source, group, copy._replace(unmet=0))


def test_a_copied_job_that_does_not_wait_is_noticed() -> None:
    """G5."""
    assert hunt(10, WaitsForNobody, make=make_reruns).promise is Promise.ORDER


class BeginsTooEarly(MemoryStore):
    """Lets a new run begin with its first step."""

    def _copy(self, source: GroupRow, group: GroupRow, copies: Sequence[PlannedCopy]) -> None:
        super()._copy(source, group, copies)
        group.state, group.must_sweep = GroupState.RUNNING, True


def test_a_new_run_that_begins_before_it_is_whole_is_noticed() -> None:
    """G5."""
    assert hunt(20, BeginsTooEarly, make=make_reruns).promise is Promise.ORDER


def test_what_an_adder_that_runs_anew_had_added_must_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G5."""
    monkeypatch.setattr(new_run, "added_by", lambda nodes, adders: set[int]())
    assert hunt(30, make=make_reruns).promise is Promise.ORDER
