"""Several processes on one database: every job goes to exactly one of them, and none is lost."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from uuid import UUID

import pytest

from longshore.model.job import JobFilter, JobState, Verdict
from longshore.model.worker import SessionKey, WorkerInfo
from longshore.testing.backends import SqlBackend
from longshore.testing.builders import Scene, a_claim, a_worker, done, some_jobs

PROCESSES = 4
JOBS_EACH = 500
SLOTS = 10
S = JobState

spawn = multiprocessing.get_context("spawn")


@pytest.fixture(params=["sqlite", "postgres", "pgbouncer"])
def shared(request: pytest.FixtureRequest) -> SqlBackend:
    """A database that other processes can reach."""
    found: SqlBackend = request.getfixturevalue(f"{request.param}_backend")
    return found


_start: Barrier


def share(start: Barrier) -> None:
    """For a process of its own: the barrier cannot travel any other way."""
    global _start
    _start = start


def run_jobs(backend: SqlBackend) -> list[UUID]:
    """For a process of its own: runs jobs until none is left; answers which it ran."""
    return asyncio.run(_run_jobs(backend))


async def _run_jobs(backend: SqlBackend) -> list[UUID]:
    async with backend.opened() as store:
        scene = Scene(store)
        await scene.accepted(*some_jobs(JOBS_EACH))
        slot = await scene.attend()
        _start.wait()
        running = await scene.claim(slot, most=SLOTS)
        ran: list[UUID] = []
        while running or await _some_are_ready(scene):
            ran += [attempt.id for attempt in running]
            pumped = await scene.pump(
                [done(one) for one in running], claims=[a_claim([slot] * SLOTS)]
            )
            assert all(answer.verdict is Verdict.RECORDED for answer in pumped.finished)
            running = pumped.claimed
        return ran


async def _some_are_ready(scene: Scene) -> bool:
    return any(queue.counts.get(S.READY) for queue in await scene.store.queues())


async def test_every_job_runs_in_exactly_one_process(shared: SqlBackend) -> None:
    """G2, G3: four processes submit, claim and finish at once; no job is run twice, or never."""
    await shared.clear()
    total = PROCESSES * JOBS_EACH
    start = spawn.Barrier(PROCESSES)
    with spawn.Pool(PROCESSES, initializer=share, initargs=(start,)) as pool:
        ran = await asyncio.to_thread(pool.map, run_jobs, [shared] * PROCESSES)
    ids = [id for part in ran for id in part]
    assert len(ids) == len(set(ids)) == total
    assert len([part for part in ran if part]) > 1, "they did not run at the same time"
    async with shared.opened() as store:
        jobs = (await store.jobs(JobFilter(limit=total + 1))).jobs
        [queue] = await store.queues()
    assert {job.id for job in jobs} == set(ids)
    assert {(job.state, job.attempt) for job in jobs} == {(S.SUCCEEDED, 1)}
    assert queue.counts == {"succeeded": total}


def submit_for_ever(
    backend: SqlBackend, dispatcher: UUID, info: WorkerInfo, told: Connection
) -> None:
    """For a process of its own: says of every job that it was accepted, as soon as it was."""
    asyncio.run(_submit_for_ever(backend, dispatcher, info, told))


async def _submit_for_ever(
    backend: SqlBackend, dispatcher: UUID, info: WorkerInfo, told: Connection
) -> None:
    async with backend.opened() as store:
        scene = Scene(store, dispatcher)
        slot = await scene.attend(info)
        while True:
            jobs = some_jobs(5)
            await scene.pump(submits=jobs, claims=[a_claim([slot] * 2)])
            told.send([job.id for job in jobs])


@contextmanager
def submitter(backend: SqlBackend, dispatcher: UUID, info: WorkerInfo) -> Iterator[Connection]:
    """A process that submits until it is killed at the end of the block."""
    mine, its = spawn.Pipe(duplex=False)
    process = spawn.Process(target=submit_for_ever, args=(backend, dispatcher, info, its))
    process.start()
    its.close()
    try:
        yield mine
    finally:
        process.kill()
        process.join()


async def test_what_a_killed_process_was_told_is_there(shared: SqlBackend) -> None:
    """G1, G8: `kill -9` at any instant loses nothing accepted, and what runs is adopted."""
    await shared.clear()
    info = a_worker()
    accepted: list[UUID] = []
    async with shared.opened() as store:
        scene = Scene(store)
        with submitter(shared, scene.dispatcher, info) as told:
            for _ in range(20):
                accepted += await asyncio.to_thread(told.recv)
        accepted += _rest(told)
        jobs = {job.id: job.state for job in (await store.jobs(JobFilter(limit=10_000))).jobs}
        assert set(accepted) <= set(jobs)
        running = {id for id, state in jobs.items() if state is S.RUNNING}
        assert set(jobs.values()) == {S.READY, S.RUNNING}
        adopter = Scene(store)
        slot: SessionKey = await adopter.attend(info)
        assert {attempt.id for attempt in await store.placed([slot])} == running


def _rest(told: Connection) -> list[UUID]:
    """What was said before the kill and is still in the pipe; the last word may be cut short."""
    heard: list[UUID] = []
    with suppress(EOFError, OSError):
        while True:
            heard += told.recv()
    return heard
