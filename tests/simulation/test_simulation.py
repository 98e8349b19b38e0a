"""Whole clusters in one thread: the promises hold, and each guard is needed for that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from longshore.core.lifecycle import OWNED
from longshore.model.job import Claimed, Finish, Finished, JobState, Verdict
from longshore.model.worker import Seat, Want
from longshore.ports import Batch, Pumped
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.run import StoreMaker, simulate
from longshore.testing.simulation.scenario import make_scenario
from longshore.wire.messages import Assignment, Pong
from longshore.wire.worker_side import Event, WorkerSession

SEEDS = range(1, 61)
FAR = 60
"""Within so many seeds a missing guard must be noticed."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(seed: int) -> None:
    """G1, G2, G3, G6, G8. `longshore simulate --seed N` tells the story of one that is not."""
    verdict = simulate(make_scenario(seed))
    assert verdict.broken is None, f"longshore simulate --seed {seed}: {verdict.broken}"


def test_a_seed_is_replayed_byte_for_byte() -> None:
    first, second = (simulate(make_scenario(7)) for _ in range(2))
    assert first.trace.digest() == second.trace.digest()
    assert (first.steps, first.seconds) == (second.steps, second.seconds)


class WithoutTokenCheck(MemoryStore):
    """Records whatever anybody says of a job that runs."""

    def _finish(self, finish: Finish, now: datetime, freed: Any) -> Finished:
        row = self._jobs.get(finish.job)
        if row is None or row.state not in OWNED:
            return super()._finish(finish, now, freed)
        self._record(row, finish, now, freed)
        return Finished(finish.job, finish.token, Verdict.RECORDED, row.state)


class WithoutSessionCheck(MemoryStore):
    """Claims for sessions that are over, and for workers that others attend."""

    def _is_free_for(self, seat: Seat, dispatcher: UUID) -> bool:
        worker = self._workers.get(seat.worker)
        return worker is not None and worker.alive and not worker.draining


class WithoutLock(MemoryStore):
    """Claims what a dispatcher saw ready before, without looking whether it still is."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._seen: dict[UUID, Sequence[Any]] = {}

    async def pump(self, dispatcher: UUID, batch: Batch) -> Pumped:
        pumped = await super().pump(dispatcher, batch)
        rows = self._jobs.values()
        self._seen[dispatcher] = [row for row in rows if row.state is JobState.READY]
        return pumped

    def _claim(self, dispatcher: UUID, want: Want, now: datetime) -> list[Claimed]:
        claimed = super()._claim(dispatcher, want, now)
        free = [seat for seat in want.seats if self._is_free_for(seat, dispatcher)]
        seen = [row for row in self._seen.get(dispatcher, ()) if row.lane.hash in want.lanes]
        stale = [row for row in seen if row.state is JobState.RUNNING]
        for row, seat in zip(stale, free[len(claimed) :], strict=False):
            row.state = JobState.READY
            claimed.append(self._place(row, seat, now))
        return claimed


@pytest.mark.parametrize("store", [WithoutTokenCheck, WithoutSessionCheck, WithoutLock])
def test_a_guard_that_is_taken_away_is_missed(store: StoreMaker) -> None:
    assert any(simulate(make_scenario(seed), store).broken for seed in range(1, FAR))


def test_a_lease_counted_from_the_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: it must count from when the PING was sent."""
    ponged = WorkerSession._ponged

    def late(session: WorkerSession, now: float, pong: Pong) -> list[Event]:
        session._pings[pong.no] = now
        return ponged(session, now, pong)

    monkeypatch.setattr(WorkerSession, "_ponged", late)
    assert any(simulate(make_scenario(seed)).broken for seed in range(50, FAR))


def test_a_worker_that_starts_a_repeated_attempt_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = WorkerSession._new

    def forgetful(session: WorkerSession, jobs: Sequence[Assignment]) -> list[Assignment]:
        session._had.clear()
        return new(session, jobs)

    monkeypatch.setattr(WorkerSession, "_new", forgetful)
    assert any(simulate(make_scenario(seed)).broken for seed in range(1, FAR))
