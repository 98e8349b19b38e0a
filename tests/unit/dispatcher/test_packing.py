"""Jobs that take resources are packed, so that a large one finds room."""

from __future__ import annotations

from longshore.core.reservations import RESERVE_S
from longshore.model.job import Submission
from longshore.testing.builders import a_job

from .stage import Stage, StagedWorker
from .test_stories import tell


async def begun(stage: Stage, workers: list[StagedWorker], job: Submission) -> float:
    """Submits a job; how long until a worker runs it."""
    await stage.client().submit(job)
    return await stage.until(
        lambda: any(job.id == id for one in workers for id, _ in one.jobs.running)
    )


def test_a_large_job_finds_the_room_that_spreading_would_have_taken() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        workers = [await stage.worker(name, resources={"cpu": 4.0}) for name in ("w1", "w2")]
        for _ in range(3):
            await begun(stage, workers, a_job(resources="cpu=1"))
        assert sorted(len(one.jobs.running) for one in workers) == [0, 3]
        waited_s = await begun(stage, workers, a_job(resources="cpu=4"))
        assert waited_s < RESERVE_S, "no worker had to be reserved for it"

    tell(story)


def test_jobs_without_resources_are_spread() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        workers = [await stage.worker(name, resources={"cpu": 4.0}) for name in ("w1", "w2")]
        for _ in range(4):
            await begun(stage, workers, a_job())
        assert [len(one.jobs.running) for one in workers] == [2, 2]

    tell(story)
