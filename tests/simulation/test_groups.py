"""Groups in storms: every job waits for those it depends on, and every group ends once."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.model.group import GroupState, GroupVerdict
from longshore.model.job import JobState
from longshore.testing import memory_groups
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import GroupRow, JobRow
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_groups

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 33, 8))
def test_every_promise_is_kept_of_groups(first: int) -> None:
    """G1, G2, G3, G5, G6, G8."""
    for seed in range(first, first + 8):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_groups(seed)))


# without what keeps the order


class DeliveredTwice(MemoryStore):
    """Tells dependents of an end once more, as if the first time had got lost."""

    def _group_job_ended(self, row: JobRow) -> None:
        super()._group_job_ended(row)
        super()._group_job_ended(row)


def test_an_end_that_is_delivered_twice_wakes_a_job_too_early() -> None:
    """G5."""
    assert hunt(20, DeliveredTwice, make=make_groups).promise is Promise.ORDER


class OneIsEnough(MemoryStore):
    """Lets a job run when the first of those that it depends on has ended."""

    def _run(self, group: GroupRow) -> None:
        for job in group.jobs.values():
            node = self._jobs[job].node
            assert node is not None
            node.unmet = min(node.unmet, 1)
        super()._run(group)


def test_a_job_that_does_not_wait_for_all_is_noticed() -> None:
    """G5."""
    assert hunt(20, OneIsEnough, make=make_groups).promise is Promise.ORDER


def test_without_the_check_of_the_group_a_cancelled_one_wakes_its_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G5."""
    monkeypatch.setattr(memory_groups, "may_wake", lambda group: group is not GroupState.STAGING)
    assert hunt(40, make=make_groups).promise is Promise.ORDER


class ShortSpread(MemoryStore):
    """Tells nobody of jobs that ended because of another one's failure."""

    def _group_job_ended(self, row: JobRow) -> None:
        if row.state is not JobState.DEPENDENCY_FAILED:
            super()._group_job_ended(row)


def test_a_failure_that_does_not_spread_leaves_jobs_that_wait_for_ever() -> None:
    """G1: a job that was accepted ends."""
    assert hunt(20, ShortSpread, make=make_groups).promise is Promise.DURABLE


class NeverOver(MemoryStore):
    """Never ends a group."""

    def _ends(self, group: GroupRow) -> bool:
        return False


def test_a_group_that_does_not_end_with_its_jobs_is_noticed() -> None:
    """G5."""
    assert hunt(3, NeverOver, make=make_groups).promise is Promise.ORDER


class EndsTooEarly(MemoryStore):
    """Ends a group with the first job of it that ended."""

    def _ends(self, group: GroupRow) -> bool:
        if group.state is GroupState.RUNNING and self._counts(group)[JobState.SUCCEEDED]:
            self._close(group)
            return True
        return super()._ends(group)


def test_a_group_that_ends_before_its_jobs_is_noticed() -> None:
    """G5."""
    assert hunt(10, EndsTooEarly, make=make_groups).promise is Promise.ORDER


class NoSweep(MemoryStore):
    """Does not hold the ready jobs of a paused group."""

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        verdict = await super().pause_group(ref, paused)
        group = self._find_group(ref)
        if group is not None and paused:
            group.must_sweep = False
        return verdict


def test_a_paused_group_whose_jobs_are_not_held_is_noticed() -> None:
    """G5."""
    assert hunt(60, NoSweep, make=make_groups).promise is Promise.ORDER
