"""Take one guard away, and the simulation notices: that is how we know that it looks.

Each guard here is something that Longshore's promises hang on. A test takes it out of the code that
runs, and some seed of a bounded number must break the promise that the guard is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from random import Random
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.lifecycle import OWNED
from longshore.core.lookahead import RunTimes
from longshore.dispatcher.own_lease import OwnLease
from longshore.model.attempt import Attempt
from longshore.model.ends import End
from longshore.model.job import Ended, Finished, JobState, Submission
from longshore.model.worker import Claim, SessionKey
from longshore.ports import Batch, BatchResult
from longshore.testing import memory
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import JobRow
from longshore.testing.simulation.bodies import Behaviour
from longshore.testing.simulation.faults import Late, Outage, Theme
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.run import simulate
from longshore.testing.simulation.scenario import (
    JobPlan,
    Scenario,
    WorkerPlan,
    job_id,
    make_rush,
    make_scenario,
)
from longshore.wire import messages as m
from longshore.wire.worker_side import Event, WorkerSession
from longshore.worker.agent import Worker


def hunt(
    most: int,
    make_store: Callable[[Callable[[], datetime]], MemoryStore] = MemoryStore,
    theme: Theme | None = None,
    make: Callable[[int, Theme | None], Scenario] = make_scenario,
    first: int = 1,
) -> BrokenPromise:
    """The first promise that is broken by one of so many seeds.

    `first` is a seed that is known to break one: it only saves those before it.
    """
    for seed in range(first, first + most):
        broken = simulate(make(seed, theme), make_store).broken
        if broken is not None:
            return broken
    raise AssertionError(f"{most} seeds did not notice")


class NoTokenCheck(MemoryStore):
    """Records whatever is said of an owned job, under whatever token."""

    def _finish(self, finish: End, ready: Counter[int], ended: list[Ended]) -> Finished:
        row = self._jobs.get(finish.job)
        if row is None or row.state not in OWNED:
            return super()._finish(finish, ready, ended)
        right = structs.replace(finish, token=row.job.token, worker=None)
        return structs.replace(super()._finish(right, ready, ended), token=finish.token)


def test_without_the_check_of_the_token_a_late_result_counts() -> None:
    """G2."""
    assert hunt(60, NoTokenCheck, Theme.DROWNING, first=4).promise is Promise.ONE_OWNER


CAME_BACK = 5080
"""In this seed a worker comes back under a new id before its old one is declared lost."""


class NoOwnerCheck(MemoryStore):
    """Records what is said under the job's token, whichever worker says it."""

    def _finish(self, finish: End, ready: Counter[int], ended: list[Ended]) -> Finished:
        return super()._finish(structs.replace(finish, worker=None), ready, ended)


def test_what_a_worker_reports_under_a_new_id_is_refused() -> None:
    """G2, without anything taken away."""
    assert simulate(make_scenario(CAME_BACK)).broken is None


def test_without_the_check_of_the_owner_a_report_under_a_new_id_counts() -> None:
    """G2."""
    broken = simulate(make_scenario(CAME_BACK), NoOwnerCheck).broken
    assert broken is not None
    assert broken.promise is Promise.ONE_OWNER


class NoSessionCheck(MemoryStore):
    """Gives jobs to any session of a worker that is alive, whoever asks."""

    def _is_free_for(self, slot: SessionKey, dispatcher: UUID) -> bool:
        worker = self._workers.get(slot.worker)
        return worker is not None and worker.alive and not worker.draining


def test_without_the_check_of_the_session_a_job_is_placed_where_nobody_looks() -> None:
    """G1."""
    assert hunt(60, NoSessionCheck, first=13).promise is Promise.DURABLE


class NoRecheck(MemoryStore):
    """Claims what it saw ready a while ago, as if nobody else had locked or taken it since."""

    def __init__(self, utc: Callable[[], datetime]) -> None:
        super().__init__(utc)
        self._seen: dict[UUID, list[JobRow]] = {}

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        pumped = await super().pump(dispatcher, batch)
        self._seen[dispatcher] = [row for row in self._jobs.values() if row.state is JobState.READY]
        return pumped

    def _claim(self, dispatcher: UUID, want: Claim, room: int) -> tuple[list[Attempt], bool]:
        taken = [
            row
            for row in self._seen.get(dispatcher, [])
            if row.state is JobState.RUNNING and row.lane.hash in want.lanes
        ]
        for row in taken:
            row.job = structs.replace(row.job, state=JobState.READY)
        return super()._claim(dispatcher, want, room)


def test_without_a_look_under_the_lock_two_dispatchers_claim_one_job() -> None:
    """G2."""
    assert hunt(60, NoRecheck).promise in (Promise.ONE_OWNER, Promise.ONE_OUTCOME)


def test_a_lease_that_counts_from_the_answer_outlives_the_workers_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G6."""
    ponged = WorkerSession._ponged

    def from_the_answer(self: WorkerSession, now: float, pong: m.Pong) -> list[Event]:
        self._pings[pong.no] = now
        return ponged(self, now, pong)

    monkeypatch.setattr(WorkerSession, "_ponged", from_the_answer)
    assert hunt(100, theme=Theme.DROWNING, first=9).promise is Promise.SELF_STOP


def belated(seed: int, theme: Theme | None = None) -> Scenario:
    """A dispatcher is answered late, then not at all, while its worker has a job that goes on."""
    scenario = make_scenario(seed, theme or Theme.BELATED)
    job = Submission(job_id(Random(seed), 0, 1.0), "work", b"\x80")
    patient = JobPlan("c1", 1.0, job, Behaviour(takes_s=60.0, stubborn=True), None, 0, False)
    return structs.replace(
        scenario,
        dispatchers=("d1", "d2"),
        workers=tuple(WorkerPlan(f"w{n}", 1, 1, ("work",), (f"d{n}",)) for n in (1, 2)),
        plain_workers=(),
        clients=("c1",),
        jobs=(patient,),
        faults=(Late(20.0, "d1", 9.3, 1.6), Outage(21.6, ("d1",), 5.0, 40.0)),
        storm_s=65.0,
        store_delay_s=(0.0002, 0.002),
    )


def test_a_dispatcher_that_is_answered_late_keeps_every_promise() -> None:
    """G6, without anything taken away."""
    for seed in range(1, 11):
        assert simulate(belated(seed)).broken is None


def test_a_dispatchers_lease_that_counts_from_the_answer_lets_workers_run_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G6."""
    renewed = OwnLease.renewed

    def from_the_answer(self: OwnLease, sent_at: float) -> None:
        renewed(self, self._clock.now())

    monkeypatch.setattr(OwnLease, "renewed", from_the_answer)
    assert hunt(40, make=belated).promise is Promise.SELF_STOP


def test_a_worker_that_forgets_what_it_had_runs_an_attempt_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G2; or G3, if it hands the second run back as not begun."""
    new = WorkerSession._new

    def forgetful(self: WorkerSession, jobs: Iterable[m.Assignment]) -> list[m.Assignment]:
        self._had.clear()
        return new(self, jobs)

    monkeypatch.setattr(WorkerSession, "_new", forgetful)
    broken = hunt(60, theme=Theme.CHOKING).promise
    assert broken in (Promise.ONE_OWNER, Promise.ONE_OUTCOME)


def test_a_worker_that_moves_too_late_loses_its_jobs_to_a_dispatchers_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G8."""
    silence_at = WorkerSession._silence_at

    def too_late(self: WorkerSession) -> float | None:
        at = silence_at(self)
        return None if at is None else at + 9.0

    monkeypatch.setattr(WorkerSession, "_silence_at", too_late)
    assert hunt(60, theme=Theme.DISPATCHERS_DIE, first=9).promise is Promise.NO_SPECIAL_PROCESS


def test_without_being_sent_again_an_end_that_got_lost_is_lost_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G1: an attempt that ended and was not recorded holds its slot and its job for ever."""
    monkeypatch.setattr(WorkerSession, "_resend", lambda self, tokens: None)
    assert hunt(60, theme=Theme.LEAKING, first=5).promise in (Promise.DURABLE, Promise.AGREEMENT)


# what workers hold ahead


def test_a_worker_that_forgets_to_hand_back_keeps_jobs_from_an_idle_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Worker, "_hand_back_waiting", lambda self: None)
    assert hunt(20, make=make_rush, first=5).promise is Promise.FAIR


def test_without_an_estimate_long_jobs_are_queued_behind_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def knows_nothing(self: RunTimes, seconds: float) -> bool:
        self.percentile_s = self.usual_s = 0.0
        return True

    monkeypatch.setattr(RunTimes, "add", knows_nothing)
    assert hunt(20, make=make_rush, first=5).promise is Promise.FAIR


def test_a_loss_that_blames_everything_held_blames_what_never_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "not_blamed", lambda worker, owned: set())
    assert hunt(20, make=make_rush, first=3).promise is Promise.BLAME
