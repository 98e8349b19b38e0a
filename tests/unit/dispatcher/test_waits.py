"""A dispatcher remembers requests that wait for a job, and forgets them when they end."""

from __future__ import annotations

import asyncio

import pytest

from longshore.dispatcher.ends import MAX_ERROR_CHARS
from longshore.dispatcher.requests import MAX_ANSWER_BYTES as MAX_BYTES
from longshore.model.ends import Succeeded
from longshore.model.job import JobError, JobState, Reason
from longshore.model.reports import FailureReport
from longshore.ports import Batch
from longshore.testing.builders import a_job, new_id, some_jobs
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m

from .late import LateStore
from .stage import Stage
from .test_stories import tell


@pytest.mark.parametrize("every", [False, True])
def test_a_wait_that_timed_out_is_forgotten(every: bool) -> None:
    async def story(stage: Stage) -> None:
        waiters = (await stage.dispatcher())._waiters
        client, jobs = stage.client(), some_jobs(3)
        await client.submit(*jobs)
        ids = tuple(job.id for job in jobs)
        assert await client.ask(m.Wait(2, ids, 5.0, every)) == ()
        assert waiters.awaited() == []

    tell(story)


def test_a_wait_that_was_answered_is_forgotten_with_the_jobs_that_go_on() -> None:
    async def story(stage: Stage) -> None:
        waiters = (await stage.dispatcher())._waiters
        worker, client = await stage.worker(), stage.client()
        ending, staying = a_job(), a_job(kind="elsewhere")
        await client.submit(ending, staying)
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.succeed()
        answer = await client.ask(m.Wait(2, (ending.id, staying.id), 1000.0))
        assert isinstance(answer, tuple)
        assert [(one.id, one.state) for one in answer] == [(ending.id, JobState.SUCCEEDED)]
        assert waiters.awaited() == []

    tell(story)


def test_a_wait_that_failed_for_an_outage_is_forgotten() -> None:
    async def story(stage: Stage) -> None:
        waiters = (await stage.dispatcher())._waiters
        client, job = stage.client(), a_job()
        await client.submit(job)
        stage.store.plan = scripted(("ended", Fault.BEFORE))
        assert isinstance(await client.ask(m.Wait(2, (job.id,), 5.0)), m.Err)
        assert waiters.awaited() == []

    tell(story)


def test_outcomes_that_are_too_large_for_one_message_for_their_errors_come_in_several() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(slots=400), stage.client()
        jobs = some_jobs(300)
        await client.submit(*jobs)
        await stage.until(lambda: len(worker.jobs.running) == len(jobs))
        error = JobError(Reason.RAISED, "\N{SNOWMAN}" * MAX_ERROR_CHARS)
        for id, token in list(worker.jobs.running):
            worker.jobs.end(FailureReport(id, token, error=error))
        left = {job.id: job for job in jobs}
        while left:
            some = await client.wait(*left.values())
            assert some
            assert sum(len(one.error.message.encode()) for one in some if one.error) <= MAX_BYTES
            for one in some:
                del left[one.id]

    tell(story)


def test_a_wait_for_a_job_that_runs_here_does_not_ask_the_store() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client, job = await stage.worker(), stage.client(), a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        stage.store.plan = scripted(("ended", Fault.BEFORE))
        waiting = asyncio.create_task(client.ask(m.Wait(2, (job.id,), 1000.0)))
        await asyncio.sleep(0)
        worker.jobs.succeed()
        answer = await waiting
        assert isinstance(answer, tuple)
        assert [one.state for one in answer] == [JobState.SUCCEEDED]

    tell(story)


def test_a_wait_for_a_job_that_ran_here_and_ended_elsewhere_hears_of_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client, job = await stage.worker(), stage.client(), a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        await stage.model.pump(new_id(), Batch(finishes=[Succeeded(id, token, b"\xc0")]))
        answer = await client.ask(m.Wait(2, (job.id,), 1000.0))
        assert isinstance(answer, tuple)
        assert [one.state for one in answer] == [JobState.SUCCEEDED]

    tell(story)


def test_a_wait_after_a_retry_does_not_hear_of_the_round_before() -> None:
    """Though a read that began before the retry answers while it waits."""

    async def story(stage: Stage) -> None:
        stage.store = late = LateStore(stage.model)
        await stage.dispatcher()
        client, job = stage.client(), a_job(kind="elsewhere")
        await client.submit(job)
        await stage.model.cancel([job.id])
        late.delay("ended", 5.0)
        first = asyncio.create_task(client.ask(m.Wait(2, (job.id,), 100.0)))
        await stage.until(lambda: not late._late["ended"])
        await stage.model.retry([job.id])
        second = asyncio.create_task(client.ask(m.Wait(3, (job.id,), 20.0)))
        answer = await first
        assert isinstance(answer, tuple)
        assert [one.state for one in answer] == [JobState.CANCELLED]
        assert await second == ()

    tell(story)
