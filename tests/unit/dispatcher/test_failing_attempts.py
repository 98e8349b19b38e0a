"""An attempt that fails is a line in its worker's log."""

from __future__ import annotations

import pytest

from longshore.model.attempt import Assignment
from longshore.model.job import JobError, Reason
from longshore.model.reports import (
    CancelReport,
    CrashReport,
    FailureReport,
    NotBegunReport,
    ReleaseReport,
    SuccessReport,
)
from longshore.testing.builders import a_job, new_id
from longshore.testing.virtual import run_virtually
from longshore.worker.failure_text import called, failure

from .stage import Stage

ATTEMPT = (new_id(), 7)


def test_a_failure_is_one_line_that_cannot_steer_a_terminal() -> None:
    error = JobError(Reason.RAISED, "no\nroute \x1b[31mto host", "OSError", "Traceback …")
    said = failure(FailureReport(*ATTEMPT, error))
    assert said == "raised: OSError: no route \\x1b[31mto host"
    assert len(failure(FailureReport(*ATTEMPT, JobError(Reason.RAISED, "x" * 9999)))) == 500


def test_a_crash_is_a_failure_and_the_rest_is_none() -> None:
    assert failure(CrashReport(*ATTEMPT)) == "raised: the worker gave no reason"
    for kind in (SuccessReport, CancelReport, ReleaseReport, NotBegunReport):
        assert failure(kind(*ATTEMPT)) == ""


@pytest.mark.parametrize("attempt", [1, 3])
def test_an_attempt_is_called_by_number_kind_and_attempt(attempt: int) -> None:
    assert (
        called(Assignment(*ATTEMPT, 42, "resize", b"", attempt=attempt))
        == f"job 42 (resize), attempt {attempt}"
    )


def test_a_worker_says_which_job_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Stage() as stage:
            await stage.dispatcher()
            worker, client = await stage.worker(), stage.client()
            job = a_job()
            await client.submit(job)
            await stage.until(lambda: bool(worker.jobs.running))
            worker.jobs.fail()
            await client.wait(job)

    run_virtually(story())
    lines = [one.getMessage() for one in caplog.records if one.name == "longshore.worker"]
    assert any(line.startswith(f"job 1 ({a_job().kind}), attempt 1 failed: ") for line in lines)
