"""A database that goes down in the middle: callers see that it is away, and nothing else is lost.

The server is stopped as if it had crashed, while batches are on their way to it, and started again
when a caller has noticed. It is started from the main thread, which it must not outlive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import pytest

from longshore.errors import StoreUnavailable
from longshore.model.job import JobFilter, JobState, Refused, Submission, Verdict
from longshore.model.worker import SessionKey
from longshore.ports import Batch, BatchResult, Store
from longshore.testing.backends import PostgresBackend
from longshore.testing.builders import Scene, a_claim, done, some_jobs
from longshore.testing.servers import PgBouncer, PostgresServer

T = TypeVar("T")
S = JobState


class Stream:
    """A dispatcher that submits, runs and finishes jobs, and repeats what failed."""

    def __init__(self, store: Store, news: asyncio.Event) -> None:
        self._store = store
        self._scene = Scene(store)
        self.submitted: list[UUID] = []
        self.turns = 0
        self.failures = 0
        self.stopping = False
        self.news = news

    async def run(self) -> None:
        slot = await self._scene.attend()
        pumped = BatchResult()
        while not self.stopping or pumped.claimed:
            jobs = [] if self.stopping else some_jobs(3)
            self.submitted += [job.id for job in jobs]
            pumped = await self._turn(slot, pumped, jobs)
            self.turns += 1
            self.news.set()

    async def _turn(
        self, slot: SessionKey, last: BatchResult, jobs: list[Submission]
    ) -> BatchResult:
        """One batch; if its answer was lost, what it claimed is looked up."""
        finishes = [done(attempt) for attempt in last.claimed]
        batch = Batch(finishes, jobs, [a_claim([slot] * 5)])
        before = self.failures
        pumped = await self._until_done(lambda: self._store.pump(self._scene.dispatcher, batch))
        assert not [answer for answer in pumped.submitted if isinstance(answer, Refused)]
        assert Verdict.STALE not in {answer.verdict for answer in pumped.finished}
        if self.failures > before:
            placed = await self._until_done(lambda: self._store.placed([slot]))
            return BatchResult(pumped.finished, pumped.submitted, claimed=placed)
        return pumped

    async def _until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except StoreUnavailable:
                self.failures += 1
                self.news.set()


async def until(news: asyncio.Event, condition: Callable[[], bool]) -> None:
    while not condition():
        news.clear()
        await news.wait()


async def interrupted(
    backend: PostgresBackend, stop: Callable[[], None], start: Callable[[], None]
) -> None:
    """Runs streams of batches while something between them and their data stops and starts."""
    await backend.clear()
    async with (
        backend.opened() as one,
        backend.opened() as two,
        backend.opened() as three,
        asyncio.TaskGroup() as group,
    ):
        news = asyncio.Event()
        streams = [Stream(store, news) for store in (one, two, three)]
        tasks = [group.create_task(stream.run()) for stream in streams]
        await until(news, lambda: all(stream.turns >= 3 for stream in streams))
        stop()
        await until(news, lambda: any(stream.failures >= 2 for stream in streams))
        start()
        for stream in streams:
            stream.stopping = True
        await asyncio.gather(*tasks)
    await assert_all_ended_once(backend, streams)


async def assert_all_ended_once(backend: PostgresBackend, streams: list[Stream]) -> None:
    submitted = {id for stream in streams for id in stream.submitted}
    async with backend.opened() as store:
        jobs = (await store.jobs(JobFilter(limit=100_000))).jobs
        assert {job.id for job in jobs} == submitted
        for job in jobs:
            assert job.state is S.SUCCEEDED
            whole = await store.job(job.id)
            assert whole is not None
            states = [entry.state for entry in whole.history]
            assert states == [S.READY, S.RUNNING, S.SUCCEEDED]
        [queue] = await store.queues()
        assert queue.counts == {"succeeded": len(submitted)}


@pytest.mark.parametrize("through", ["postgres", "pgbouncer"])
async def test_nothing_is_lost_or_done_twice_when_the_database_crashes(
    postgres: PostgresServer, request: pytest.FixtureRequest, through: str
) -> None:
    """G1, G2, G3: accepted jobs are there, run once and end once."""
    backend: PostgresBackend = request.getfixturevalue(f"{through}_backend")
    await interrupted(backend, lambda: postgres.stop("immediate"), postgres.start)


async def test_nothing_is_lost_or_done_twice_when_the_pooler_restarts(
    pgbouncer: PgBouncer, pgbouncer_backend: PostgresBackend
) -> None:
    """G1, G2, G3: the same, with the pooler between cut off."""
    await interrupted(pgbouncer_backend, pgbouncer.stop, pgbouncer.start)


async def test_every_verb_says_that_the_database_is_away(
    postgres: PostgresServer, postgres_backend: PostgresBackend
) -> None:
    await postgres_backend.clear()
    async with postgres_backend.opened() as store:
        attempt = await Scene(store).running()
        postgres.stop("immediate")
        slot = SessionKey(attempt.worker, attempt.session)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.pump(attempt.worker, Batch(submits=some_jobs(1))),
            lambda: store.renew(attempt.worker, "d"),
            lambda: store.placed([slot]),
            lambda: store.promote(),
            lambda: store.cancel([attempt.id]),
            lambda: store.job(attempt.id),
            lambda: store.queues(),
        ]
        try:
            for call in calls:
                with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
                    await call()
        finally:
            postgres.start()
        assert (await Scene(store).job(attempt.id)).token == attempt.token
