"""Schedules in storms: every nominal time has one fate, and what was submitted ran."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.schedules import read_body
from longshore.model.ids import make_id
from longshore.model.schedule import Decision, Examined, PendingFire, ScheduledBody
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_schedules

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 9, 4))
def test_every_nominal_time_has_one_fate(first: int) -> None:
    """G1, G2, G3, G8; and every nominal time has one fate."""
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_schedules(seed)), "schedules")


class TakesEveryDecision(MemoryStore):
    """Writes what was decided, whoever was faster."""

    async def record_fires(self, given: Sequence[Decision]) -> list[bool]:
        now = [
            structs.replace(one, version=row.schedule.version)
            if (row := await self._by_id(one.schedule)) is not None
            else one
            for one in given
        ]
        return await super().record_fires(now)

    async def _by_id(self, id: UUID) -> Examined | None:
        for one in await self.schedules(most=1000):
            if one.new.id == id:
                return await self.schedule(one.new.name)
        return None


def test_without_the_version_a_time_is_decided_twice() -> None:
    assert hunt(5, TakesEveryDecision, make=make_schedules, first=36).promise is Promise.FATES


class LeavesThePending(MemoryStore):
    """Never finds the submits that a dispatcher decided and did not make."""

    async def pending_fires(self, older_than_s: float, most: int = 500) -> list[PendingFire]:
        return []


def test_without_the_look_at_pending_fires_a_run_is_missing() -> None:
    found = hunt(5, LeavesThePending, make=make_schedules, first=8).promise
    assert found in (Promise.FATES, Promise.DURABLE)


def test_runs_with_new_ids_are_not_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a run follows from its schedule and its time, so that a repeat changes nothing."""
    made = iter(range(1, 1_000_000))

    def with_a_new_id(body: bytes) -> ScheduledBody:
        found = read_body(body)
        assert found.job is not None
        id = make_id(0, next(made).to_bytes(10, "big"))
        return structs.replace(found, job=structs.replace(found.job, id=id))

    monkeypatch.setattr("longshore.dispatcher.schedule_service.read_body", with_a_new_id)
    assert hunt(1, make=make_schedules).promise in (Promise.FATES, Promise.DURABLE)
