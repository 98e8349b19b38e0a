"""Plain workers while their dispatcher or its store is in trouble, on virtual time."""

from __future__ import annotations

import asyncio

from longshore.dispatcher.engine import Dispatcher
from longshore.model.job import JobState
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault, scripted

from .plain_player import PING_S, Player, alive, raw, ready, shown, submit
from .stage import Stage
from .test_stories import tell


def test_a_claim_whose_answer_got_lost_reaches_the_worker_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        stage.store.plan = scripted(("pump", Fault.AFTER))
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs), at_most_s=5.0)
        worker.say(b"done")
        (ended,) = await client.wait(job)
        assert (ended.result, (await shown(stage, job)).attempt) == (b"done", 1)
        assert worker.jobs == [b"x"]

    tell(story)


def test_a_result_that_comes_while_the_store_is_away_is_recorded_when_it_is_back() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        stage.store.plan = lambda _verb: Fault.BEFORE
        worker.say(b"done")
        for _ in range(20):
            await asyncio.sleep(PING_S)
        stage.store.plan = lambda _verb: None
        (ended,) = await client.wait(job)
        assert (ended.result, (await shown(stage, job)).attempt) == (b"done", 1)

    tell(story)


def test_a_worker_that_comes_while_the_store_is_away_is_ready_when_it_is_back() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stage.store.plan = scripted(("attend", Fault.AFTER), ("harvest", Fault.BEFORE))
        worker = Player(stage)
        worker.beat()
        await submit(stage, raw(b"x"))
        await stage.until(lambda: worker.jobs == [b"x"], at_most_s=5.0)
        # The store does not keep a worker alive that no dispatcher knows.
        await stage.until(lambda: len(alive(stage)) == 1, at_most_s=5.0)

    tell(story)


def test_a_loss_that_the_store_could_not_be_told_is_told_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        doomed = await ready(stage)
        await submit(stage, raw(b"x"))
        await stage.until(lambda: bool(doomed.jobs))
        second = await ready(stage)
        stage.store.plan = scripted(("harvest", Fault.BEFORE), ("harvest", Fault.BEFORE))
        doomed.die()
        await stage.until(lambda: bool(second.jobs), at_most_s=12.0)

    tell(story)


def test_the_loss_of_a_full_worker_that_the_store_could_not_be_told_is_told_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        doomed = await stage.worker("w1")
        await submit(stage, a_job())
        await stage.until(lambda: bool(doomed.jobs.running))
        await doomed.die()
        second = await stage.worker("w2")
        stage.store.plan = scripted(("harvest", Fault.BEFORE))
        await stage.until(lambda: bool(second.jobs.running), at_most_s=30.0)

    tell(story)


def test_a_dispatcher_that_stops_gives_its_plain_workers_jobs_back_at_no_cost() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        worker, idle = await ready(stage, to="d1"), await ready(stage, to="d1")
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs or idle.jobs))
        await stop(stage, first)
        view = await shown(stage, job)
        assert (view.state, view.crashes, view.failures) == (JobState.READY, 0, 0)
        assert alive(stage) == []

    tell(story)


async def stop(stage: Stage, dispatcher: Dispatcher) -> None:
    stage._dispatchers.remove(dispatcher)
    await dispatcher.stop()


def test_a_killed_dispatchers_plain_workers_jobs_are_run_again_by_another() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        worker = await ready(stage, to="d1")
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.hush()
        await stage.dispatcher("d2")
        second = await ready(stage, to="d2")
        await stage.kill(first)
        waited = await stage.until(lambda: bool(second.jobs))
        assert 20.0 < waited < 35.0

    tell(story)


def test_after_a_long_outage_of_the_store_plain_workers_start_over_and_nothing_is_mixed_up() -> (
    None
):
    """Other dispatchers may have declared them lost meanwhile, and freed their jobs."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        (before,) = stage.model._workers
        stage.store.plan = lambda _verb: Fault.BEFORE
        for _ in range(60):
            await asyncio.sleep(PING_S)
        stage.store.plan = lambda _verb: None
        await stage.until(lambda: [*stage.model._workers][:-1] == [before])
        await stage.until(lambda: len(alive(stage)) == 1)
        view = await shown(stage, job)
        assert (view.state, view.crashes) == (JobState.READY, 0)
        worker.say(b"result of an attempt that was given up")
        await stage.until(lambda: worker.jobs == [b"x", b"x"], at_most_s=3)
        worker.say(b"done")
        (ended,) = await client.wait(job)
        assert ended.result == b"done"

    tell(story)


def test_one_that_nobody_could_listen_to_at_work_must_answer_before_it_gets_another_job() -> None:
    """G3: it may PING at work, and its answer would be taken for that of its next job."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        first, second = raw(b"first"), raw(b"second")
        await submit(stage, first)
        await stage.until(lambda: worker.jobs == [b"first"])
        worker.hush()
        stage.store.plan = lambda _verb: Fault.BEFORE
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() > began + 60)
        stage.store.plan = lambda _verb: None
        await stage.until(lambda: len(alive(stage)) == 1 and len(stage.model._workers) == 2)
        worker.beat()
        await submit(stage, second)
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() > began + 5)
        assert worker.jobs == [b"first"]
        worker.say(b"late")
        assert await worker.given(2) == b"first"
        worker.say(b"1")
        assert await worker.given(3) == b"second"
        worker.say(b"2")
        ended = await client.wait(first, second)
        assert {one.id: one.result for one in ended} == {first.id: b"1", second.id: b"2"}

    tell(story)
