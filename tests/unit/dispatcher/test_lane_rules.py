"""Rules for kinds and queues in a dispatcher: whoever makes room finds the jobs that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

from longshore.model.job import JobState, Submission
from longshore.model.limits import Rate
from longshore.testing.builders import a_job, new_id
from longshore.testing.virtual import run_virtually
from longshore.wire import limit_messages as lm

from .stage import Client, Stage

Story = Callable[[Stage], Awaitable[None]]


def tell(story: Story) -> None:
    async def main() -> None:
        async with Stage() as stage:
            await story(stage)

    run_virtually(main())


async def set_rule(
    client: Client, pattern: str, most: int | None = None, rate: Rate | None = None
) -> None:
    await client.ask(lm.SetLimit(rid(), new_id(), pattern, most, rate))


async def remove_rule(client: Client, pattern: str) -> None:
    await client.ask(lm.RemoveLimit(rid(), new_id(), pattern))


def rid() -> int:
    return UUID(int=new_id().int).int & 0xFFFFFF


async def running(stage: Stage, jobs: list[Submission]) -> int:
    return [await stage.state(job) for job in jobs].count(JobState.RUNNING)


def test_ends_removals_and_changes_let_jobs_of_a_full_queue_begin() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(slots=8), stage.client()
        await set_rule(client, "queue=default", 2)
        jobs = [a_job() for _ in range(8)]
        await client.submit(*jobs)
        await stage.until(lambda: len(worker.jobs.running) == 2)
        assert await running(stage, jobs) == 2
        assert "queue=default is at 2 of 2" in await client.why(jobs[-1])
        worker.jobs.succeed()
        await client.wait(jobs[0])
        await stage.until(lambda: len(worker.jobs.running) == 2)
        await set_rule(client, "queue=default", 4)
        await stage.until(lambda: len(worker.jobs.running) == 4)
        await remove_rule(client, "queue=default")
        await stage.until(lambda: len(worker.jobs.running) == 6)

    tell(story)


def test_a_rate_lets_the_next_job_begin_at_its_time() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=500)
        worker, client = await stage.worker(slots=8), stage.client()
        await set_rule(client, "kind=work", rate=Rate(1, 10.0))
        jobs = [a_job() for _ in range(3)]
        await client.submit(*jobs)
        await stage.until(lambda: len(worker.jobs.running) == 1)
        assert "kind=work: next in" in await client.why(jobs[-1])
        waited = await stage.until(lambda: len(worker.jobs.running) == 3)
        assert waited < 30

    tell(story)


def test_what_a_lost_worker_ran_begins_elsewhere() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        gone, client = await stage.worker("w1", slots=2), stage.client()
        await set_rule(client, "kind=work", 2)
        jobs = [a_job() for _ in range(4)]
        await client.submit(*jobs)
        await stage.until(lambda: len(gone.jobs.running) == 2)
        other = await stage.worker("w2", slots=4)
        await gone.die()
        await stage.until(lambda: len(other.jobs.running) == 2)
        assert await running(stage, jobs) == 2

    tell(story)
