"""Limits in storms: never above, and what waits goes on as soon as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from msgspec import structs

from longshore.core.limited_starts import KeyState, Starts
from longshore.model.limits import LimitsOpened
from longshore.store.rows import NodeItem, micros
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import GroupRow, JobRow
from longshore.testing.simulation.limit_plans import OF_LANES
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_limits

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 13, 4))
def test_every_promise_is_kept_of_jobs_with_limits(first: int) -> None:
    """G1, G2, G3, G6, G8; never above, and room and waiting means progress."""
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_limits(seed)), "limits")


def test_storms_have_keys_that_are_full_and_rules_that_change() -> None:
    """Otherwise the checks would look at nothing."""
    scenarios = [make_limits(seed) for seed in range(1, 9)]
    assert sum(bool(plan.submission.options.limits) for one in scenarios for plan in one.jobs) > 50
    assert sum(len(one.rules) for one in scenarios) > 8
    assert sum(plan.pattern in OF_LANES for one in scenarios for plan in one.rules) > 8
    assert sum(bool(plan.submission.options.fair) for one in scenarios for plan in one.jobs) > 50
    assert sum(plan.head.limit is not None for one in scenarios for plan in one.groups) > 2


class CountsNothing(MemoryStore):
    """Starts what has limits as if nothing of their keys ran."""

    def _limited_starts(self, rows: Sequence[JobRow], now: datetime) -> Starts:
        keys = {limit.key for row in rows for limit in row.job.options.limits}
        keys |= {key for row in rows for key in self._lane_keys(row)}
        states = {key: KeyState(set(), self._even_at.get(key, 0)) for key in keys}
        return Starts(list(self._limit_rules.values()), states, micros(now))


def test_without_the_count_of_what_runs_a_key_is_above_its_limit() -> None:
    assert hunt(3, CountsNothing, make=make_limits).promise is Promise.LIMITS


class ForgetsTheRate(MemoryStore):
    """Lets a rate begin anew with each transaction."""

    def _limited_starts(self, rows: Sequence[JobRow], now: datetime) -> Starts:
        self._even_at.clear()
        return super()._limited_starts(rows, now)


def test_without_the_memory_of_a_rate_more_begin_than_it_lets() -> None:
    assert hunt(3, ForgetsTheRate, make=make_limits).promise is Promise.LIMITS


class IgnoresRules(MemoryStore):
    """Keeps a rule, and goes by what the jobs bring."""

    def _limited_starts(self, rows: Sequence[JobRow], now: datetime) -> Starts:
        decide = super()._limited_starts(rows, now)
        decide._rules = ()
        return decide


def test_a_rule_that_does_not_hold_at_once_is_noticed() -> None:
    found = hunt(3, IgnoresRules, make=make_limits).promise
    assert found in (Promise.LIMITS, Promise.ROOM)


class SlotsLeak(MemoryStore):
    """Keeps the slots of a job that was lost with its worker."""

    def _has_slots(self, row: JobRow) -> bool:
        return super()._has_slots(row) or bool(row.job.crashes)


def test_a_slot_that_a_lost_worker_keeps_is_noticed() -> None:
    found = hunt(3, SlotsLeak, make=make_limits).promise
    assert found in (Promise.SLOTS, Promise.NO_SILENCE)


class KnowsNoLanes(MemoryStore):
    """Starts jobs of a kind or a queue as if no rule were about these."""

    def _lane_keys(self, row: JobRow) -> tuple[str, ...]:
        return ()


def test_a_rule_for_a_queue_that_holds_for_nobody_is_noticed() -> None:
    assert hunt(6, KnowsNoLanes, make=make_limits).promise is Promise.LIMITS


class LeavesTheGroupOut(MemoryStore):
    """Stores jobs of a group as if it had no limit."""

    def _join(self, group: GroupRow, item: NodeItem) -> JobRow:
        head, group.head = group.head, structs.replace(group.head, limit=None)
        row = super()._join(group, item)
        group.head = head
        return row


def test_jobs_that_do_not_count_for_their_group_are_noticed() -> None:
    assert hunt(2, LeavesTheGroupOut, make=make_limits, first=2).promise is Promise.LIMITS


async def looks_at_nobody(self: SqliteStore, after: str = "", most: int = 1000) -> LimitsOpened:
    """Never looks who waits behind a key that has room again, unless an end says so."""
    return LimitsOpened()


def test_without_the_look_at_keys_a_rate_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "open_limits", looks_at_nobody)
    found = (simulate_on_sqlite(make_limits(seed)).broken for seed in range(1, 2))
    first = next(one for one in found if one is not None)
    assert first.promise in (Promise.ROOM, Promise.DURABLE)
