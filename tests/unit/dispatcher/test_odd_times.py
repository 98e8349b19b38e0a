"""Odd times and durations from the wire are refused with a reason, or bounded."""

from __future__ import annotations

import logging
from datetime import datetime
from math import inf, nan

import pytest
from msgspec import structs

from longshore.core.limits import MAX_SNOOZE_S
from longshore.errors import InvalidInput
from longshore.model.job import JobError, JobFilter, JobState, Options, Reason, RetryPolicy
from longshore.model.reports import FailureReport
from longshore.testing.builders import a_job
from longshore.wire import messages as m

from .stage import Stage
from .test_stories import tell


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_wait_for_no_time_is_refused_and_one_without_end_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher(max_wait_s=7.0)
        client, job = stage.client(), a_job()
        await client.submit(job)
        answer = await client.ask(m.Wait(2, (job.id,), nan))
        assert isinstance(answer, m.Err)
        assert (answer.code, answer.message) == (
            InvalidInput.code,
            "wait_s is nan; give seconds, 0 or more",
        )
        for wait_s, took_s in ((-inf, 0.0), (-1.0, 0.0), (1e308, 7.0), (inf, 7.0)):
            began = stage.clock.now()
            assert await client.wait(job, wait_s=wait_s) == []
            assert stage.clock.now() - began == pytest.approx(took_s)
        assert dispatcher._waiters.awaited() == []

    tell(story)
    assert errors(caplog) == []


def test_a_list_since_a_time_without_a_zone_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        answer = await stage.client().ask(m.ListJobs(1, JobFilter(since=datetime(2030, 1, 1))))
        assert isinstance(answer, m.Err)
        assert answer.code == InvalidInput.code
        assert answer.message == (
            "since 2030-01-01T00:00:00 has no time zone; give a time with its zone"
        )

    tell(story)
    assert errors(caplog) == []


@pytest.mark.parametrize("after_s", [1e308, inf])
def test_a_retry_asked_for_in_a_thousand_years_comes_no_later_than_a_snooze(after_s: float) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        retried = structs.replace(a_job(), options=Options(retry=RetryPolicy(attempts=2)))
        await client.submit(retried)
        await stage.until(lambda: bool(worker.jobs.running))
        ((job, token),) = worker.jobs.running
        error = JobError(Reason.RAISED, "later", "longshore.Retry")
        report = FailureReport(job, token, error=error, retry_after_s=after_s)
        worker.jobs.end(report)
        assert await client.wait(retried, wait_s=5.0) == []
        view = await stage.model.job(job)
        assert view is not None
        assert view.state is JobState.DELAYED
        assert view.run_at is not None
        assert (view.run_at - stage.clock.utc()).total_seconds() <= MAX_SNOOZE_S

    tell(story)
