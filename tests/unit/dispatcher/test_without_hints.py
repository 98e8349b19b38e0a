"""Hints get lost. What a dispatcher did itself it acts on at once: the polls are a minute apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.model.job import JobState, Options, Reason, RetryPolicy
from longshore.model.reports import OutboxJob, SuccessReport
from longshore.ports import Hint
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import FaultyStore
from longshore.testing.virtual import run_virtually
from longshore.wire import messages as m

from .late import LateStore
from .stage import Stage
from .test_rare_orders import pass_time
from .test_stories import Story

RARELY = DispatcherSettings(
    max_wait_s=1000.0, promote_s=60.0, poll_s=60.0, cancel_poll_s=60.0, sweep_s=5.0
)


class Mute(FaultyStore):
    """Gives no hints."""

    async def watch(self) -> AsyncIterator[Hint]:
        await asyncio.Event().wait()
        yield Hint.WORK


class MuteAndLate(LateStore):
    """Gives no hints, and its answers may be late."""

    watch = Mute.watch


def tell_without_hints(story: Story) -> None:
    async def main() -> None:
        async with Stage() as stage:
            stage.store, stage.settings = Mute(stage.model), RARELY
            await story(stage)

    run_virtually(main())


def test_a_retry_begins_when_its_backoff_is_over() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        policy = RetryPolicy(attempts=2, backoff_s=5.0, jitter=0.0)
        await stage.client().submit(structs.replace(a_job(), options=Options(retry=policy)))
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.fail()
        assert await stage.until(lambda: len(worker.jobs.started) == 2) < 5.2

    tell_without_hints(story)


def test_what_a_lost_worker_had_goes_to_another_as_soon_as_it_is_declared_lost() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        doomed = await stage.worker("w1")
        await stage.client().submit(a_job())
        await stage.until(lambda: bool(doomed.jobs.running))
        survivor = await stage.worker("w2")
        await pass_time(stage, 2.0)
        await doomed.die()
        assert await stage.until(lambda: bool(survivor.jobs.running)) < 17.0

    tell_without_hints(story)


def test_who_waits_for_a_job_hears_at_once_that_the_loss_of_its_worker_ended_it() -> None:
    async def story(stage: Stage) -> None:
        stage.settings = structs.replace(RARELY, crash_limit=1)
        await stage.dispatcher()
        doomed = await stage.worker("w1")
        job = a_job()
        await stage.client().submit(job)
        await stage.until(lambda: bool(doomed.jobs.running))
        waiting = asyncio.create_task(stage.client().wait(job))
        await pass_time(stage, 2.0)
        await doomed.die()
        assert await stage.until(waiting.done) < 17.0
        [ended] = waiting.result()
        assert ended.error is not None
        assert (ended.state, ended.error.reason) == (JobState.FAILED, Reason.POISONOUS)

    tell_without_hints(story)


def test_what_the_workers_of_a_silent_dispatcher_had_goes_to_others_as_soon_as_they_are_lost() -> (
    None
):
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        doomed = await stage.worker("w1", to="d1")
        await stage.client("d1").submit(a_job())
        await stage.until(lambda: bool(doomed.jobs.running))
        await stage.dispatcher("d2")
        survivor = await stage.worker("w2", to="d2")
        await pass_time(stage, 5.0)
        await doomed.die()
        await stage.kill(first)
        assert await stage.until(lambda: bool(survivor.jobs.running)) < 30.0

    tell_without_hints(story)


def test_a_job_of_a_worker_that_is_not_alive_is_found_and_run() -> None:
    """G1: whatever left it so, such as a database that was restored."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        job = a_job()
        await stage.client().submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        await worker.die()
        [(id, row)] = stage.model._workers.items()
        stage.model._workers[id] = structs.replace(row, alive=False)
        survivor = await stage.worker("w2")
        assert await stage.until(lambda: bool(survivor.jobs.running)) < 5.2

    tell_without_hints(story)


def test_a_job_that_was_retried_by_hand_begins_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.fail()
        [ended] = await client.wait(job)
        assert ended.state is JobState.FAILED
        await client.ask(m.Retry(5, new_id(), (job.id,)))
        assert await stage.until(lambda: bool(worker.jobs.running)) < 0.2

    tell_without_hints(story)


def test_what_a_job_submits_begins_at_once() -> None:
    """The kind ran before, and the worker has a free slot for it."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        first, child = a_job(), a_job()
        await client.submit(first)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        worker.jobs.end(SuccessReport(id, token, b"\xc0", outbox=(OutboxJob(child),)))
        assert await stage.until(lambda: bool(worker.jobs.running)) < 0.2

    tell_without_hints(story)


def test_who_waits_for_a_job_hears_at_once_that_it_was_cancelled_before_it_began() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        job = a_job()
        await stage.client().submit(job)
        waiting = asyncio.create_task(stage.client().wait(job))
        await pass_time(stage, 1.0)
        await stage.client().ask(m.Cancel(5, new_id(), (job.id,)))
        assert await stage.until(waiting.done) < 0.2
        assert [one.state for one in waiting.result()] == [JobState.CANCELLED]

    tell_without_hints(story)


def test_a_running_job_hears_at_once_that_it_was_cancelled() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        await client.ask(m.Cancel(5, new_id(), (job.id,)))
        assert await stage.until(lambda: not worker.jobs.running) < 0.2

    tell_without_hints(story)


def test_an_end_that_came_while_the_store_was_asked_for_it_is_heard_at_once() -> None:
    """The dispatcher lists a waiting request before it asks the store for outcomes."""

    async def story(stage: Stage) -> None:
        stage.store = late = MuteAndLate(stage.model)
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        late.delay("ended", 1.0)
        waiting = asyncio.create_task(stage.client().wait(job))
        await pass_time(stage, 0.5)
        worker.jobs.succeed()
        assert await stage.until(waiting.done) < 1.0

    tell_without_hints(story)


def test_nobody_is_waited_for_after_the_last_wait_timed_out() -> None:
    """A dispatcher keeps asking the store for every job that a client waits for."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        client = stage.client()
        job, other = a_job(), a_job()
        await client.submit(job, other)
        assert await client.wait(job, other, wait_s=2.0) == []
        assert dispatcher._waiters.awaited() == []

    tell_without_hints(story)
