"""Jobs that expire soon: none begins too late, and none fails before its time."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.effects import Change
from longshore.model.attempt import Attempt
from longshore.model.worker import Claim
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import JobRow
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_hurry

from .telling import assert_kept


@pytest.mark.parametrize("first", range(1, 9, 4))
def test_every_promise_is_kept_when_jobs_expire(first: int) -> None:
    """G1, G2, G3, G6, G8; and a job begins before its deadline, or fails after it."""
    for seed in range(first, first + 4):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_hurry(seed)), "expiry")


class LateClaims(MemoryStore):
    """Claims jobs that have expired, until the duty ends them."""

    def _claim(self, dispatcher: UUID, claim: Claim, room: int) -> tuple[list[Attempt], bool]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JobRow, "is_expired", lambda row, now: False)
            return super()._claim(dispatcher, claim, room)


def test_without_the_check_at_the_claim_a_job_begins_too_late() -> None:
    seeds = range(1, 20)
    broken = (simulate(make_hurry(seed), LateClaims).broken for seed in seeds)
    assert next(one.promise for one in broken if one is not None) is Promise.IN_TIME


class LastingDeadlines(MemoryStore):
    """Lets a deadline outlive the attempt that met it."""

    def _apply(self, row: JobRow, change: Change, by: str = "", ran_s: float | None = None) -> None:
        super()._apply(row, structs.replace(change, keeps_deadline=True), by, ran_s)


def test_a_deadline_that_outlives_its_job_s_begin_is_noticed() -> None:
    seeds = range(1, 20)
    broken = (simulate(make_hurry(seed), LastingDeadlines).broken for seed in seeds)
    assert next(one.promise for one in broken if one is not None) is Promise.IN_TIME
