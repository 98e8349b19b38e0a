"""The hook for lost workers: which losses it hears of, when, and how often."""

from __future__ import annotations

from longshore.model.worker import LostWorker
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m

from .stage import Stage
from .test_stories import tell


def test_the_dispatcher_that_declared_a_worker_lost_tells_of_it_once() -> None:
    async def story(stage: Stage) -> None:
        told: list[LostWorker] = []
        stage.on_lost = told.append
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker("w1", to="d1")
        await worker.die()
        await stage.until(lambda: bool(told))
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() - began > 60)
        assert [(one.info.name, one.info.host, one.session) for one in told] == [("w1", "stage", 1)]
        assert told[0].reason == "not heard of for 15 s"

    tell(story)


def test_a_worker_that_died_with_its_dispatcher_is_told_of_by_another_once() -> None:
    async def story(stage: Stage) -> None:
        told: list[LostWorker] = []
        stage.on_lost = told.append
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        await stage.dispatcher("d3")
        worker = await stage.worker("w1", to="d1")
        await worker.die()
        await stage.kill(first)
        await stage.until(lambda: bool(told))
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() - began > 60)
        assert [one.info.name for one in told] == ["w1"]

    tell(story)


def test_a_loss_that_the_store_could_not_be_told_at_first_is_told_of_all_the_same() -> None:
    async def story(stage: Stage) -> None:
        told: list[LostWorker] = []
        stage.on_lost = told.append
        await stage.dispatcher()
        worker = await stage.worker("w1")
        stage.store.plan = scripted(("harvest", Fault.BEFORE))
        await worker.die()
        await stage.until(lambda: bool(told))
        assert [one.info.name for one in told] == ["w1"]

    tell(story)


def test_a_worker_that_leaves_or_moves_is_not_lost() -> None:
    async def story(stage: Stage) -> None:
        told: list[LostWorker] = []
        stage.on_lost = told.append
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        leaver = await stage.worker("w1", to="d2")
        mover = await stage.worker("w2", to="d1,d2")
        client = stage.client("d2")
        await client.submit(a_job())
        await client.ask(m.Drain(7, new_id(), ("w1",)))
        for executor in leaver.executors.values():
            executor.succeed()
        await stage.until(leaver.task.done)
        mover.joined.clear()
        await stage.kill(first)
        await mover.joined.wait()
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() - began > 60)
        assert told == []

    tell(story)
