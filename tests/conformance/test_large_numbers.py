"""Numbers past 64 bits, which no database holds: nothing has them, and they break nothing."""

from __future__ import annotations

import pytest

from longshore.errors import InvalidInput
from longshore.model.job import (
    CancelVerdict,
    JobFilter,
    JobState,
    Options,
    Refused,
    RetryPolicy,
    RetryVerdict,
    Submission,
)
from longshore.model.retention import Retention
from longshore.testing.builders import Scene, a_job, new_id

PAST = [2**63, 2**64 - 1, 2**100, -(2**63) - 1, -(2**100)]


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), *PAST])
async def test_no_job_has_such_a_number(scene: Scene, number: int) -> None:
    await scene.accepted(a_job())
    assert await scene.store.job(number) is None
    assert await scene.store.cancel([number]) == [(None, CancelVerdict.NOT_FOUND)]
    assert await scene.store.retry([number]) == [(None, RetryVerdict.NOT_FOUND)]
    assert await scene.store.logs(number) == []


@pytest.mark.parametrize("number", PAST)
async def test_lists_begin_and_end_where_there_are_numbers(scene: Scene, number: int) -> None:
    job = a_job()
    await scene.accepted(job)
    for state in ((), (JobState.READY,), (JobState.FAILED, JobState.READY)):
        found = (await scene.store.jobs(JobFilter(states=state, before=number))).jobs
        assert [one.id for one in found] == ([job.id] if number > 0 else [])
        found = (await scene.store.jobs(JobFilter(states=state, limit=number))).jobs
        assert [one.id for one in found] == ([job.id] if number > 0 else [])


@pytest.mark.parametrize("number", PAST)
async def test_pages_of_logs_begin_and_end_where_there_are_numbers(
    scene: Scene, number: int
) -> None:
    attempt = await scene.running()
    assert await scene.store.logs(attempt.id, token=number) == []
    assert await scene.store.logs(attempt.id, after=(number, number)) == []
    assert await scene.store.logs(attempt.id, most=number) == []


@pytest.mark.parametrize("number", PAST)
async def test_bounds_of_a_pruning_may_be_any_number(scene: Scene, number: int) -> None:
    await scene.accepted(a_job())
    kept = Retention(
        seconds={JobState.SUCCEEDED: abs(float(number))}, most={JobState.FAILED: number}
    )
    pruned = await scene.store.prune(kept, after=max(0, number))
    assert pruned.removed == {}


@pytest.mark.parametrize("number", [2**100, -(2**100)])
async def test_job_that_cannot_be_stored_for_a_number_is_refused(scene: Scene, number: int) -> None:
    options = Options(retry=RetryPolicy(attempts=number))
    refused, accepted = await scene.submit(
        Submission(new_id(), "work", b"", options=options), a_job()
    )
    assert isinstance(refused, Refused)
    assert refused.code == InvalidInput.code
    assert not isinstance(accepted, Refused)
    [refused] = await scene.submit(a_job(priority=number))
    assert isinstance(refused, Refused)
