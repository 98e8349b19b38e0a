"""Groups in storms: every job waits for those it depends on, and every group ends once."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core import examining
from longshore.dispatcher.duties import stalled_groups
from longshore.model.finding import Finding
from longshore.model.group import GroupState, GroupVerdict
from longshore.model.job import JobState
from longshore.testing import memory_groups
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import GroupRow, JobRow
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import (
    SETTINGS,
    is_for_sqlite,
    simulate,
    simulate_on_sqlite,
)
from longshore.testing.simulation.scenario import make_groups

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 33, 8))
def test_every_promise_is_kept_of_groups(first: int) -> None:
    """G1, G2, G3, G5, G6, G8."""
    for seed in range(first, first + 8):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_groups(seed)), "groups")


WATCHFUL = structs.replace(SETTINGS, group_stall_s=1.0, group_watch_s=0.5, stalled_groups="repair")


class NeverRepaired(MemoryStore):
    """Breaks down when the watchdog finds something to repair."""

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        assert not repair, "a group in a storm was taken for one that stands still"
        return await super().examine_group(group)


def test_the_watchdog_takes_no_group_in_a_storm_for_one_that_stands_still() -> None:
    """Although it looks closely after a second already."""
    for seed in range(33, 41):
        assert_kept(simulate(make_groups(seed), NeverRepaired, WATCHFUL))


def test_a_watchdog_that_does_not_look_closely_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled_groups, "works", lambda group: False)
    monkeypatch.setattr(examining, "_is_examined", lambda record, on_the_way: True)
    storms = (simulate(make_groups(seed), NeverRepaired, WATCHFUL) for seed in range(33, 41))
    assert any(storm.broken is not None for storm in storms)


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

    def _run(self, group: GroupRow, ready: Counter[int]) -> None:
        for job in group.jobs.values():
            node = self._jobs[job].node
            assert node is not None
            node.unmet = min(node.unmet, 1)
        super()._run(group, ready)


def test_a_job_that_does_not_wait_for_all_is_noticed() -> None:
    """G5."""
    assert hunt(20, OneIsEnough, make=make_groups).promise is Promise.ORDER


def test_without_the_check_of_the_group_a_cancelled_one_wakes_its_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G5."""
    staging = GroupState.STAGING
    monkeypatch.setattr(memory_groups, "may_become", lambda group, change: group is not staging)
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
