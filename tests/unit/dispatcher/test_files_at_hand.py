"""A job goes to a worker that has its files at hand, if that one has a free slot."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.job import RetryPolicy, Submission
from longshore.model.worker import KindInfo, Pool
from longshore.payload.values import pack
from longshore.testing.builders import a_job

from . import stage as staging
from .stage import Stage, StagedWorker
from .test_stories import tell


@pytest.fixture(autouse=True)
def jobs_with_files(monkeypatch: pytest.MonkeyPatch) -> None:
    info = KindInfo(Pool.COROUTINE, files=True, inputs=("{album}",))
    monkeypatch.setitem(staging.KINDS, "work", info)
    monkeypatch.setitem(staging.KINDS, "fetch", KindInfo(Pool.COROUTINE))


def reading(album: str, *, delay_s: float | None = None, kind: str = "work") -> Submission:
    return a_job(kind=kind, args=pack({"album": album}, "arguments"), delay_s=delay_s)


Workers = dict[str, StagedWorker]


async def runners(stage: Stage, workers: Workers, *jobs: Submission) -> list[str]:
    """Submits jobs together, and lets them succeed; the names of the workers that had them."""
    await stage.client().submit(*jobs)
    await stage.until(lambda: sum(len(one.jobs.running) for one in workers.values()) == len(jobs))
    had = {job: name for name, one in workers.items() for job, _ in one.jobs.running}
    for one in workers.values():
        one.jobs.succeed()
    await stage.client().wait(*jobs)
    return [had[job.id] for job in jobs]


async def two_workers(stage: Stage) -> Workers:
    await stage.dispatcher()
    return {name: await stage.worker(name, slots=2) for name in ("w1", "w2")}


def test_jobs_that_start_at_their_submit_go_where_their_input_is() -> None:
    async def story(stage: Stage) -> None:
        workers = await two_workers(stage)
        first, other = await runners(stage, workers, reading("alps"), reading("sea"))
        assert first != other, "nobody has anything yet"
        for _ in range(3):
            assert await runners(stage, workers, reading("alps")) == [first]
        assert await runners(stage, workers, reading("sea"), reading("alps")) == [other, first]

    tell(story)


def test_jobs_that_are_claimed_later_go_where_their_input_is() -> None:
    async def story(stage: Stage) -> None:
        workers = await two_workers(stage)
        first, other = await runners(stage, workers, reading("alps"), reading("sea"))
        for _ in range(3):
            later = reading("sea", delay_s=5.0), reading("alps", delay_s=5.0)
            assert await runners(stage, workers, *later) == [other, first]

    tell(story)


def test_a_full_worker_is_not_waited_for() -> None:
    async def story(stage: Stage) -> None:
        workers = await two_workers(stage)
        [first] = await runners(stage, workers, reading("alps"))
        found = await runners(stage, workers, *(reading("alps") for _ in range(4)))
        assert sorted(found) == ["w1", "w1", "w2", "w2"]
        assert found[:2] == [first, first]

    tell(story)


def test_a_retry_goes_to_the_worker_that_had_the_job_and_then_to_another() -> None:
    async def story(stage: Stage) -> None:
        workers = await two_workers(stage)
        job = reading("alps")
        retry = RetryPolicy(attempts=4, backoff_s=1.0, jitter=0.0)
        job = structs.replace(job, options=structs.replace(job.options, retry=retry))
        await stage.client().submit(job)
        had = []
        for _ in range(3):
            await stage.until(lambda: any(one.jobs.running for one in workers.values()))
            had += [name for name, one in workers.items() if one.jobs.running]
            for one in workers.values():
                one.jobs.fail()
        first, second, third = had
        assert first == second != third

    tell(story)


def test_jobs_without_files_go_in_turn() -> None:
    async def story(stage: Stage) -> None:
        workers = await two_workers(stage)
        found = [
            name
            for _ in range(4)
            for name in await runners(stage, workers, reading("alps", kind="fetch"))
        ]
        assert found in (["w1", "w2"] * 2, ["w2", "w1"] * 2)

    tell(story)
