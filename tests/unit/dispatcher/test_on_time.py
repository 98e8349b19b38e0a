"""What is due happens on time, not at the next poll: the polls here are a minute apart."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.model.job import JobError, JobState, Options, Reason, RetryPolicy, Submission
from longshore.model.reports import FailureReport, SnoozeReport
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m

from .stage import ScriptedExecutor, Stage
from .test_rare_orders import pass_time
from .test_stories import tell

RARELY = DispatcherSettings(max_wait_s=1000.0, promote_s=60.0, poll_s=60.0, cancel_poll_s=60.0)


def with_backoff(backoff_s: float) -> Submission:
    """A job that is tried again so long after a failure, to the moment."""
    policy = RetryPolicy(attempts=3, backoff_s=backoff_s, jitter=0.0)
    return structs.replace(a_job(), options=Options(retry=policy))


async def started_after(stage: Stage, jobs: ScriptedExecutor, count: int) -> float:
    """How long it takes until so many attempts were started."""
    return await stage.until(lambda: len(jobs.started) == count)


def test_a_retry_begins_when_its_backoff_is_over() -> None:
    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher()
        worker = await stage.worker()
        await stage.client().submit(with_backoff(5.0))
        await started_after(stage, worker.jobs, 1)
        worker.jobs.fail()
        assert await started_after(stage, worker.jobs, 2) == pytest.approx(5.0, abs=0.1)

    tell(story)


def test_a_retry_that_said_when_begins_then() -> None:
    """Not after the backoff of its policy."""

    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher()
        worker = await stage.worker()
        await stage.client().submit(with_backoff(30.0))
        await started_after(stage, worker.jobs, 1)
        [(id, token)] = worker.jobs.running
        error = JobError(Reason.RAISED, "later", "longshore.Retry")
        failed = FailureReport(id, token, error=error, retry_after_s=7.0)
        worker.jobs.end(failed)
        assert await started_after(stage, worker.jobs, 2) == pytest.approx(7.0, abs=0.1)

    tell(story)


def test_a_job_that_snoozed_begins_when_it_said() -> None:
    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher()
        worker = await stage.worker()
        await stage.client().submit(a_job())
        await started_after(stage, worker.jobs, 1)
        [(id, token)] = worker.jobs.running
        worker.jobs.end(SnoozeReport(id, token, 7.0))
        assert await started_after(stage, worker.jobs, 2) == pytest.approx(7.0, abs=0.1)

    tell(story)


def test_a_job_that_nobody_takes_fails_within_a_second_of_its_expiry() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        job = a_job(expires_s=5.0)
        await client.submit(job)
        assert "expires in 5.0 s if no worker takes it" in await client.why(job)
        waiting = asyncio.create_task(client.wait(job))
        assert await stage.until(waiting.done) == pytest.approx(5.5, abs=0.6)
        [ended] = await waiting
        assert ended.error == JobError(Reason.EXPIRED, "expired: no worker began it within 5.0 s")

    tell(story)


def test_of_several_delays_each_is_kept() -> None:
    """The later one was set while the dispatcher waited for the earlier."""

    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher()
        worker = await stage.worker()
        client = stage.client()
        await client.submit(a_job(delay_s=5.0))
        await client.submit(a_job(delay_s=12.0))
        assert await started_after(stage, worker.jobs, 1) == pytest.approx(5.0, abs=0.1)
        assert await started_after(stage, worker.jobs, 2) == pytest.approx(7.0, abs=0.1)

    tell(story)


def test_a_job_for_a_certain_time_begins_then() -> None:
    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher()
        worker = await stage.worker()
        run_at = stage.clock.utc() + timedelta(seconds=8)
        await stage.client().submit(a_job(run_at=run_at))
        assert await started_after(stage, worker.jobs, 1) == pytest.approx(8.0, abs=0.1)

    tell(story)


def test_a_delay_that_another_dispatcher_took_is_kept_after_its_death() -> None:
    """The dispatcher that promoted last knows when the next job is due, wherever it came from."""

    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d2")
        await stage.client("d2").submit(a_job(delay_s=5.0))
        await stage.client("d1").submit(a_job(delay_s=12.0))
        await stage.kill(first)
        assert await started_after(stage, worker.jobs, 1) == pytest.approx(5.0, abs=0.1)
        assert await started_after(stage, worker.jobs, 2) == pytest.approx(7.0, abs=0.1)

    tell(story)


def test_a_cancel_reaches_the_worker_of_another_dispatcher_at_once() -> None:
    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        job = a_job()
        await stage.client("d1").submit(job)
        await started_after(stage, worker.jobs, 1)
        await stage.client("d2").ask(m.Cancel(5, new_id(), (job.id,)))
        assert await stage.until(lambda: not worker.jobs.running) < 0.2

    tell(story)


def test_who_waits_hears_at_once_of_an_end_that_another_dispatcher_recorded() -> None:
    async def story(stage: Stage) -> None:
        stage.settings = RARELY
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        job = a_job()
        await stage.client("d1").submit(job)
        await started_after(stage, worker.jobs, 1)
        waiting = asyncio.create_task(stage.client("d2").wait(job))
        await pass_time(stage, 1.0)
        worker.jobs.succeed()
        assert await stage.until(waiting.done) < 0.2
        assert [one.state for one in waiting.result()] == [JobState.SUCCEEDED]

    tell(story)
