"""Groups that grow in storms: whoever depends on a job waits for all that it added, not longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.dependencies import Parent
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import Reopening
from longshore.model.group import GroupState
from longshore.payload.maps import Elements
from longshore.store.rows import NodeItem
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import GroupRow, JobRow, Note
from longshore.testing.simulation.faults import Theme
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import Scenario, make_growth

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 13, 4))
def test_every_promise_is_kept_of_groups_that_grow(first: int) -> None:
    """G1, G2, G3, G5, G6, G8."""
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_growth(seed)), "growth")


def test_storms_hold_growth_of_every_kind() -> None:
    """Otherwise the checks would look at nothing."""
    groups = [group for seed in range(1, 17) for group in make_growth(seed).groups]
    added = [one for group in groups for job in group.behaviours for one in job.adds]
    assert any(one.detached for one in added)
    assert any(one.after for one in added)
    assert any(one.behaviour.adds for one in added)
    assert any(one.behaviour.fails for one in added)
    assert {0, 1, 4} <= {count for group in groups for count in group.elements}
    assert any(node.scope is not None for group in groups for node in group.nodes)
    outside = [one for group in groups for more in group.additions for one in more.nodes]
    assert any(one.after for one in outside)
    assert any(not one.after for one in outside)


# without what keeps the order


def one_group(seed: int, theme: Theme | None = None) -> Scenario:
    """The first group of a seed alone, in calm: that something never ends is known sooner."""
    scenario = make_growth(seed, theme)
    few = {"jobs": (), "groups": scenario.groups[:1], "workers": scenario.workers[:1]}
    return structs.replace(scenario, **few, plain_workers=(), faults=(), storm_s=1.0)


class AddsUncounted(MemoryStore):
    """Adds jobs, and does not count them as open."""

    def _count_added(self, adder: JobRow, items: Sequence[NodeItem]) -> None: ...


def test_added_jobs_that_are_not_counted_let_dependents_start_too_early() -> None:
    """G5."""
    assert hunt(10, AddsUncounted, make=make_growth).promise is Promise.ORDER


class ClosesAtItsOwnEnd(MemoryStore):
    """Tells dependents of the end of a job, though what it added is open."""

    def _group_job_ended(self, row: JobRow) -> None:
        self._unsettled.append(Note(row.job.id))


def test_a_scope_that_closes_at_its_own_end_is_noticed() -> None:
    """G5."""
    assert hunt(10, ClosesAtItsOwnEnd, make=make_growth).promise is Promise.ORDER


class NeverCloses(MemoryStore):
    """Tells no scope of the ends in it."""

    def _tell_scope(self, row: JobRow, ended: list[Parent], groups: set[UUID]) -> None: ...


def test_a_scope_that_never_closes_leaves_jobs_that_wait_for_ever() -> None:
    """G1: a job that was accepted ends."""
    assert hunt(20, NeverCloses, make=one_group).promise is Promise.DURABLE


class LosesTheLast(MemoryStore):
    """Stores all that a job adds but the last one."""

    def _add(
        self,
        adder: JobRow,
        items: Sequence[NodeItem],
        settled: Counter[int],
        *,
        cancelled: bool = False,
    ) -> None:
        super()._add(adder, items[:-1], settled, cancelled=cancelled)


def test_a_job_that_succeeds_with_a_part_of_what_it_added_is_noticed() -> None:
    """G5."""
    assert hunt(10, LosesTheLast, make=make_growth).promise is Promise.ORDER


class ForgetsElements(MemoryStore):
    """Ends a map with its first element."""

    def _elements(self, row: JobRow, most: int) -> Elements | str:
        found = super()._elements(row, 1)
        return found if isinstance(found, str) else found._replace(total=len(found.jobs))


def test_a_map_that_ends_before_it_is_whole_is_noticed() -> None:
    """G5."""
    assert hunt(20, ForgetsElements, make=make_growth).promise is Promise.ORDER


class RetiresNobody(MemoryStore):
    """Leaves in the group what a job added, when the job runs again."""

    def _reopen(
        self,
        group: GroupRow,
        rows: Sequence[JobRow],
        found: Reopening,
        by: str,
        request: UUID | None,
    ) -> None:
        super()._reopen(group, rows, found._replace(retired=[]), by, request)


def test_jobs_that_stay_when_their_adder_runs_again_are_noticed() -> None:
    """G5."""
    assert hunt(20, RetiresNobody, make=make_growth).promise is Promise.ORDER


class GrowsOn(MemoryStore):
    """Adds jobs to a group that is being cancelled as if it were not."""

    def _add(
        self,
        adder: JobRow,
        items: Sequence[NodeItem],
        settled: Counter[int],
        *,
        cancelled: bool = False,
    ) -> None:
        before = {id for id, group in self._groups.items() if group.must_sweep}
        super()._add(adder, items, settled, cancelled=False)
        for id, group in self._groups.items():
            group.must_sweep &= id in before or group.state is not GroupState.CANCELLING


def test_jobs_that_are_added_to_a_cancelled_group_and_left_there_are_noticed() -> None:
    """G1."""
    assert hunt(60, GrowsOn, make=one_group, first=80).promise is Promise.DURABLE


class TellsNewJobsNothing(MemoryStore):
    """Does not tell a job that a client adds what ended before."""

    def _told_by(self, row: JobRow) -> list[Parent]:
        return []


def test_a_job_added_after_an_end_that_nobody_tells_it_waits_for_ever() -> None:
    """G1: a job that was accepted ends."""
    assert hunt(20, TellsNewJobsNothing, make=one_group).promise is Promise.DURABLE


class TellsNewJobsTwice(MemoryStore):
    """Tells a job that a client adds what a note will tell it, too."""

    def _told_by(self, row: JobRow) -> list[Parent]:
        return [one._replace(is_early=one.state not in TERMINAL) for one in self._parents(row)]


def test_a_job_added_below_an_open_scope_must_not_count_it_as_ended() -> None:
    """G5."""
    assert hunt(40, TellsNewJobsTwice, make=make_growth).promise is Promise.ORDER
