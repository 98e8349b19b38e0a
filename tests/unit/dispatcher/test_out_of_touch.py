"""Workers whose processes ended on this machine, and workers whose dispatcher is silent."""

import asyncio

from longshore.dispatcher.duties.lost_workers import find_lost
from longshore.model.job import JobState
from longshore.model.worker import Capacity, WorkerView
from longshore.testing.builders import a_job, new_id
from longshore.testing.virtual import VirtualLoop
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .plain_player import alive, ready
from .stage import Client, Stage, worker_id
from .test_stories import tell


async def workers(client: Client) -> list[WorkerView]:
    answer = await client.ask(m.ListWorkers(7))
    assert isinstance(answer, tuple), answer
    return list(answer)


def test_a_worker_whose_process_ended_on_this_machine_is_lost_long_before_its_lease() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        dead, client = await stage.worker("w1"), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(dead.jobs.running))
        alive = await stage.worker("w2")
        await dead.die()
        stage.ended.add("w1")
        assert await stage.until(lambda: bool(alive.jobs.running)) < 3.0
        views = {view.info.name: view for view in await workers(client)}
        assert views["w1"].ended_why == "its process ended"
        assert views["w2"].alive

    tell(story)


def test_workers_that_died_with_their_dispatcher_are_lost_as_soon_as_the_next_one_starts() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher()
        dead = await stage.worker("w1")
        job = a_job()
        await stage.client().submit(job)
        await stage.until(lambda: bool(dead.jobs.running))
        await stage.kill(first)
        await dead.die()
        stage.ended.add("w1")
        await stage.dispatcher()
        alive = await stage.worker("w2")
        assert await stage.until(lambda: bool(alive.jobs.running)) < 3.0

    tell(story)


def test_a_worker_whose_dispatcher_is_silent_counts_for_nothing_and_why_says_so() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        client = stage.client("d2")
        running, ready = a_job(), a_job(kind="grind")
        await client.submit(running)
        await stage.until(lambda: bool(worker.jobs.running))
        await stage.kill(first)
        await worker.die()
        await client.submit(ready)
        now = stage.clock.now()
        await stage.until(lambda: stage.clock.now() >= now + 12.0)
        assert [view.silent_s > 5.0 for view in await workers(client)] == [True]
        capacity = await client.ask(m.ShowCapacity(8))
        assert isinstance(capacity, Capacity)
        assert [pool.free for pool in capacity.pools] == [0, 0]
        assert "has shown no sign of life for" in await client.why(running)
        assert "w1 could run it, but the dispatcher" in await client.why(ready)
        assert await stage.state(running) is JobState.RUNNING

    tell(story)


def test_the_grace_of_a_cancelled_job_counts_from_when_its_worker_was_told() -> None:
    """G6: a worker that hears of the cancel late still has its time to stop the job."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1", cancel_grace_s=8.0)
        worker = await stage.worker(to="d1,d2")
        worker.jobs.stubborn = True
        job = a_job()
        await stage.client("d1").submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        await stage.kill(first)
        await stage.dispatcher("d2", cancel_grace_s=8.0)
        client = stage.client("d2")
        await client.ask(m.Cancel(5, new_id(), (job.id,)))
        worker.joined.clear()
        waited_s = await stage.until(worker.joined.is_set)
        assert waited_s > 1.0
        joined_at = stage.clock.now()
        (ended,) = await client.wait(job)
        assert ended.state is JobState.CANCELLED
        assert stage.clock.now() - joined_at >= 8.0

    tell(story)


def hold_up(seconds: float) -> None:
    """Nothing runs for so long: the process was stopped, or its machine slept."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._jumping.now += seconds


def test_a_dispatcher_that_was_held_up_reads_what_came_before_it_declares_anybody_lost() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        worker = await stage.worker()
        hold_up(16.0)
        worker.worker._link.send(b"", encode(m.Ping(worker_id(worker), 99)))
        await find_lost(dispatcher._here, dispatcher._losses, lambda process: False)
        assert len(alive(stage)) == len(dispatcher._roster) == 1

    tell(story)


def test_a_dispatcher_that_was_held_up_reads_what_came_before_it_removes_a_plain_worker() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        worker = await ready(stage)
        hold_up(4.0)
        worker.say(b"PING")
        await dispatcher._plain.look_after()
        assert len(alive(stage)) == len(dispatcher._roster) == 1

    tell(story)
