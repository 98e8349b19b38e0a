"""How many lanes there may be, whose they are, and when they are forgotten; on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from longshore.core.lanes import lane_of
from longshore.errors import TooLarge
from longshore.model.job import Submission
from longshore.testing.builders import a_job, new_id
from longshore.testing.virtual import run_virtually
from longshore.wire import messages as m

from .stage import Client, Stage

Story = Callable[[Stage], Awaitable[None]]
FETCH = lane_of("default", "fetch", "")
RESIZE = lane_of("default", "resize", "")


def tell(story: Story) -> None:
    async def main() -> None:
        async with Stage() as stage:
            await story(stage)

    run_virtually(main())


async def codes(client: Client, *jobs: Submission) -> list[str]:
    return [answer.code for answer in await client.submit(*jobs)]


def kinds(*names: str) -> list[Submission]:
    return [a_job(kind=name) for name in names]


def test_a_kind_that_a_live_worker_serves_is_never_refused_for_its_lane() -> None:
    """Even if a client has filled the limit. But queue and target must be real too."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_lanes=2)
        client = stage.client()
        await codes(client, *kinds("made_up", "this_too"))
        assert await codes(client, a_job()) == [TooLarge.code]
        await stage.worker()
        assert await codes(client, a_job(queue="made_up")) == [TooLarge.code]
        assert await codes(client, a_job(target="made_up")) == [TooLarge.code]
        assert await codes(client, a_job()) == [""]
        assert await codes(client, *kinds("and_another")) == [TooLarge.code]

    tell(story)


def test_what_a_worker_of_another_dispatcher_serves_is_not_refused_either() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        other = await stage.dispatcher("d2", max_lanes=1)
        await stage.worker(to="d1")
        client = stage.client("d2")
        await codes(client, *kinds("made_up"))
        await stage.until(lambda: bool(other._takeover.elsewhere))
        assert await codes(client, a_job()) == [""]

    tell(story)


def test_what_one_client_adds_is_bounded_and_others_may_add_more() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_client_lanes=2)
        client = stage.client()
        assert await codes(client, *kinds(*"abcab")) == ["", "", TooLarge.code, "", ""]
        (too_many,) = await client.submit(*kinds("c"))
        assert "max_client_lanes" in too_many.message
        assert await codes(stage.client(), *kinds("c")) == [""]
        await stage.worker()
        assert await codes(client, a_job()) == [""]

    tell(story)


def test_lanes_without_jobs_are_forgotten_and_make_room() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher(max_lanes=2, max_client_lanes=2, keep_failed_s=1.0)
        client, jobs = stage.client(), kinds("a", "b")
        await client.submit(*jobs)
        assert await codes(client, *kinds("c")) == [TooLarge.code]
        await client.ask(m.Cancel(1, new_id(), tuple(job.id for job in jobs)))
        await stage.until(lambda: len(dispatcher._scheduler.lanes) == 0)
        assert await codes(client, *kinds("c", "d", "e")) == ["", "", TooLarge.code]

    tell(story)


def test_a_job_in_a_lane_that_was_forgotten_is_run() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher(keep_succeeded_s=1.0)
        worker, client = await stage.worker(), stage.client()
        for _ in range(2):
            job = a_job()
            await client.submit(job)
            await stage.until(lambda: bool(worker.jobs.running))
            worker.jobs.succeed()
            await client.wait(job)
            await stage.until(lambda: len(dispatcher._scheduler.lanes) == 0)

    tell(story)
