"""Submits that start at once, while the store answers late, not at all, or unexpectedly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.lanes import lane_of
from longshore.model.attempt import Attempt
from longshore.model.job import JobState
from longshore.model.worker import SessionKey
from longshore.payload.values import pack
from longshore.ports import Batch, BatchResult, Hint, Store
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, FaultyStore, scripted
from longshore.wire import dispatcher_side

from .stage import Stage
from .test_rare_orders import pass_time
from .test_stories import tell


class LateStore(FaultyStore):
    """Its first pump reaches the store only when released, long after the caller gave up."""

    late: tuple[UUID, Batch] | None = None

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        if self.late is None and batch.submits:
            self.late = dispatcher, batch
            await self._call("lost", self._nothing)
        return await super().pump(dispatcher, batch)

    async def _nothing(self) -> None: ...

    async def let_go(self) -> None:
        assert self.late is not None
        await self.store.pump(*self.late)


def test_a_job_that_began_after_it_was_given_up_is_found_by_its_worker() -> None:
    """G1: what was read back before the answer to the batch may be out of date."""

    async def story(stage: Stage) -> None:
        stage.store = late = LateStore(stage.model)
        await stage.dispatcher()
        worker = await stage.worker()
        late.plan = lambda verb: Fault.BEFORE if verb in ("pump", "lost") else None
        submitting = asyncio.create_task(stage.client().submit(job := a_job()))
        await pass_time(stage, 5.0)
        await late.let_go()
        assert await stage.state(job) is JobState.RUNNING
        late.plan = lambda _verb: None
        await submitting
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=5.0)
        assert len(worker.jobs.started) == 1

    tell(story)


class SlowReader(FaultyStore):
    """The second answer to `placed` is long on its way."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.arrives, self.reads = asyncio.Event(), 0

    async def placed(self, slots: Sequence[SessionKey]) -> list[Attempt]:
        self.reads += 1
        second, answer = self.reads == 2, await super().placed(slots)
        await (self.arrives.wait() if second else asyncio.sleep(0))
        return answer


def test_what_was_read_back_before_a_doubt_does_not_clear_it_up() -> None:
    """G1: a poll and a hint may have the same slots read back at the same time."""

    async def story(stage: Stage) -> None:
        stage.store = slow = SlowReader(stage.model)
        look = (await stage.dispatcher(poll_s=1000.0))._look_around
        worker, client = await stage.worker(), stage.client()
        slow.plan = scripted(("pump", Fault.AFTER))
        await client.submit(a_job())
        looks = [asyncio.ensure_future(look()) for _ in range(2)]
        await stage.until(lambda: len(worker.jobs.started) == 1)
        slow.plan = scripted(("pump", Fault.AFTER))
        await client.submit(a_job())
        slow.arrives.set()
        await asyncio.gather(*looks)
        await look()
        await stage.until(lambda: len(worker.jobs.started) == 2, at_most_s=1.0)

    tell(story)


class DeafStore(FaultyStore):
    """No hint of what others did ever comes."""

    async def watch(self) -> AsyncIterator[Hint]:
        await asyncio.Event().wait()
        yield Hint.WORK


def test_a_job_that_was_accepted_before_is_begun_by_whoever_it_is_submitted_to_again() -> None:
    """The dispatcher that accepted it died before it could answer."""

    async def story(stage: Stage) -> None:
        stage.store = DeafStore(stage.model)
        await stage.dispatcher(poll_s=1000.0)
        worker = await stage.worker()
        job = a_job()
        await stage.model.pump(new_id(), Batch(submits=[job]))
        await stage.client().submit(job)
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=1.0)

    tell(story)


class ContestedStore(FaultyStore):
    """Another dispatcher has locked every ready job of a lane."""

    lane = lane_of("default", "work", "")
    claims = 0

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        if not batch.claims:
            return await super().pump(dispatcher, batch)
        self.claims += 1
        pumped = await super().pump(dispatcher, structs.replace(batch, claims=()))
        return structs.replace(pumped, contested=frozenset([self.lane.hash]))


def test_jobs_that_somebody_else_holds_are_not_reached_for_without_a_pause() -> None:
    async def story(stage: Stage) -> None:
        stage.store = contested = ContestedStore(stage.model)
        dispatcher = await stage.dispatcher()
        await stage.worker()
        dispatcher._scheduler.add_lanes([contested.lane])
        dispatcher._scheduler.lanes.mark_ready([contested.lane.hash])
        dispatcher._commits.wake()
        await pass_time(stage, 1.0)
        assert 10 < contested.claims < 220

    tell(story)


def test_a_worker_that_was_given_much_is_given_more_once_it_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its PING says so: the dispatcher does not wait for a poll."""
    monkeypatch.setattr(dispatcher_side, "MAX_UNSEEN_BYTES", 1000)

    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=10_000.0, max_batch_bytes=1000)
        worker, client = await stage.worker(slots=10), stage.client()
        await client.submit(*(a_job(args=pack({"n": "x" * 600}, "args")) for _ in range(8)))
        assert len(worker.jobs.running) < 8
        await stage.until(lambda: len(worker.jobs.running) == 8, at_most_s=4.0)

    tell(story)
