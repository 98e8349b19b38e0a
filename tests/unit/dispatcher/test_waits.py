"""A dispatcher remembers who waits for a job, and forgets them when they do not."""

from __future__ import annotations

import pytest

from longshore.model.job import JobState
from longshore.testing.builders import a_job, some_jobs
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m

from .stage import Stage
from .test_stories import tell


@pytest.mark.parametrize("every", [False, True])
def test_a_wait_that_timed_out_is_forgotten(every: bool) -> None:
    async def story(stage: Stage) -> None:
        waiters = (await stage.dispatcher())._requests._waiters
        client, jobs = stage.client(), some_jobs(3)
        await client.submit(*jobs)
        ids = tuple(job.id for job in jobs)
        assert await client.ask(m.Wait(2, ids, 5.0, every)) == ()
        assert waiters.awaited() == []

    tell(story)


def test_a_wait_that_was_answered_is_forgotten_with_the_jobs_that_go_on() -> None:
    async def story(stage: Stage) -> None:
        waiters = (await stage.dispatcher())._requests._waiters
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
        waiters = (await stage.dispatcher())._requests._waiters
        client, job = stage.client(), a_job()
        await client.submit(job)
        stage.store.plan = scripted(("ended", Fault.BEFORE))
        assert isinstance(await client.ask(m.Wait(2, (job.id,), 5.0)), m.Err)
        assert waiters.awaited() == []

    tell(story)
