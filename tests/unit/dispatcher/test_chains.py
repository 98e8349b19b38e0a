"""Jobs from an outbox start at once, without waiting for the next poll."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from longshore.model.job import JobState, Submission
from longshore.model.reports import OutboxJob, SuccessReport
from longshore.model.worker import Pool
from longshore.testing.builders import a_job

from .stage import ScriptedExecutor, Stage
from .test_stories import tell

NEVER_S = 1e6


def succeed_with(executor: ScriptedExecutor, *outbox: Submission) -> None:
    """The one attempt that runs ends well, and submits these jobs."""
    ((job, token),) = executor.running
    executor.end(SuccessReport(job, token, outbox=tuple(map(OutboxJob, outbox))))


async def alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One dispatcher that never polls, and that hears no hints of what it did itself."""
    monkeypatch.setattr(stage.model, "_hint", lambda *hints: None)
    await stage.dispatcher(poll_s=NEVER_S, promote_s=NEVER_S)


def test_the_first_job_of_a_kind_that_another_submits_waits_for_no_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        await alone(stage, monkeypatch)
        worker, client = await stage.worker(), stage.client()
        child = a_job(kind="grind")
        await client.submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        succeed_with(worker.jobs, child)
        grinding = worker.executors[Pool.PROCESS]
        await stage.until(lambda: bool(grinding.running))
        grinding.succeed()
        (ended,) = await client.wait(child)
        assert ended.state is JobState.SUCCEEDED

    tell(story)


@pytest.mark.parametrize("how", ["delay_s", "run_at"])
def test_a_job_that_another_submits_for_later_begins_on_time(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        await alone(stage, monkeypatch)
        worker, client = await stage.worker(), stage.client()
        await client.submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        due = stage.clock.utc() + timedelta(seconds=20)
        times: dict[str, Any] = {"delay_s": 20.0, "run_at": due}
        naive = a_job(run_at=due.replace(tzinfo=None))
        succeed_with(worker.jobs, naive, a_job(kind="grind", **{how: times[how]}))
        grinding = worker.executors[Pool.PROCESS]
        waited = await stage.until(lambda: bool(grinding.running))
        assert 19.99 < waited < 21

    tell(story)


def test_a_job_that_another_submits_begins_as_soon_as_a_worker_with_room_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    async def story(stage: Stage) -> None:
        await alone(stage, monkeypatch)
        first, client = await stage.worker("w1", slots=1), stage.client()
        child = a_job(kind="grind", queue="other")
        await client.submit(a_job(), a_job(kind="grind"))
        await stage.until(lambda: all(one.running for one in first.executors.values()))
        succeed_with(first.jobs, child)
        assert await client.wait(child, wait_s=1.0) == []
        second = await stage.worker("w2")
        await stage.until(lambda: bool(second.executors[Pool.PROCESS].running))

    tell(story)


def test_a_job_that_another_submits_begins_on_a_worker_of_another_dispatcher() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1", poll_s=NEVER_S)
        await stage.dispatcher("d2", poll_s=NEVER_S)
        here, there = await stage.worker("w1", slots=1), await stage.worker("w2", to="d2")
        client = stage.client("d1")
        await client.submit(a_job(), a_job(kind="grind"))
        await stage.until(lambda: all(one.running for one in here.executors.values()))
        succeed_with(here.jobs, a_job(kind="grind", queue="other"))
        await stage.until(lambda: bool(there.executors[Pool.PROCESS].running))
        assert len(here.executors[Pool.PROCESS].started) == 1

    tell(story)
