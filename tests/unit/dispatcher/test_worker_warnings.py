"""What a worker says in its log of its app and of its end."""

from __future__ import annotations

import logging

import pytest

from longshore.model.worker import KindInfo
from longshore.testing.builders import a_job
from longshore.testing.virtual import run_virtually

from . import stage as staging
from .stage import Stage


@pytest.mark.parametrize(("kinds", "warnings"), [({}, 1), ({"work": KindInfo()}, 0)])
def test_a_worker_of_an_app_without_jobs_says_so(
    kinds: dict[str, KindInfo],
    warnings: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "KINDS", kinds)

    async def story() -> None:
        async with Stage() as stage:
            await stage.dispatcher()
            await stage.worker()

    run_virtually(story())
    lines = [one.getMessage() for one in caplog.records if one.name == "longshore.worker"]
    told = [line for line in lines if line.startswith("the app declares no jobs (0 kinds)")]
    assert len(told) == warnings, lines


def test_a_worker_whose_result_came_too_late_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Stage() as stage:
            await stage.dispatcher()
            worker, client = await stage.worker(), stage.client()
            worker.jobs.stubborn = True
            job = a_job(timeout_s=5.0)
            await client.submit(job)
            await client.wait(job)
            worker.jobs.succeed()
            await stage.until(lambda: worker.worker._session.settled)
            assert f"the result of job {job.id} (token 1) was refused: stale" in caplog.text

    run_virtually(story())


@pytest.mark.parametrize(("count", "said"), [(1, "1 running job has"), (2, "2 running jobs have")])
def test_a_worker_that_drains_says_for_how_many_jobs_it_waits(
    count: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Stage() as stage:
            await stage.dispatcher()
            worker, client = await stage.worker(), stage.client()
            await client.submit(*(a_job() for _ in range(count)))
            await stage.until(lambda: len(worker.jobs.running) == count)
            worker.worker.drain()
            await worker.task

    with caplog.at_level(logging.INFO, "longshore.worker"):
        run_virtually(story())
    lines = [one.getMessage() for one in caplog.records if one.name == "longshore.worker"]
    assert any(line.startswith(f"draining: {said} 10 s to finish") for line in lines), lines
    assert f"handing back {said.removesuffix(' has').removesuffix(' have')}" in lines
