"""Dispatchers that die, and what becomes of their workers and jobs."""

from longshore.model.job import JobState
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault

from .stage import Stage, worker_id
from .test_stories import tell


def test_a_restarted_dispatcher_takes_its_workers_back_and_their_jobs_go_on() -> None:
    """G1, G8: the jobs survive, running ones are not started twice."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher()
        worker = await stage.worker()
        running, queued = a_job(), a_job(kind="nobody-serves-this")
        await stage.client().submit(running, queued)
        await stage.until(lambda: bool(worker.jobs.running))
        await stage.kill(first)
        worker.joined.clear()
        await stage.dispatcher()
        await worker.joined.wait()
        worker.jobs.succeed()
        client = stage.client()
        (ended,) = await client.wait(running)
        assert ended.state is JobState.SUCCEEDED
        assert len(worker.jobs.started) == 1
        assert await stage.state(queued) is JobState.READY

    tell(story)


def test_a_result_that_was_not_acknowledged_is_told_to_the_next_dispatcher() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1,d2")
        job = a_job()
        await stage.client("d1").submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        await stage.kill(first)
        worker.jobs.succeed()
        (ended,) = await stage.client("d2").wait(job)
        assert ended.state is JobState.SUCCEEDED

    tell(story)


def test_a_dispatcher_that_lost_the_store_loses_its_workers_to_one_that_has_it() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        worker = await stage.worker(to="d1,d2")
        job = a_job()
        await stage.client("d1").submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        away = stage.store
        stage.store = type(away)(stage.model)
        await stage.dispatcher("d2")
        away.plan = lambda _verb: Fault.BEFORE
        before = worker_id(worker)
        worker.joined.clear()
        await worker.joined.wait()
        assert worker_id(worker) == before
        worker.jobs.succeed()
        (ended,) = await stage.client("d2").wait(job)
        assert ended.state is JobState.SUCCEEDED
        assert len(worker.jobs.started) == 1
        away.plan = lambda _verb: None
        assert first.broken.is_set() is False

    tell(story)


def test_workers_that_died_with_their_dispatcher_are_harvested_by_another() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        doomed = await stage.worker("w1", to="d1")
        await stage.dispatcher("d2")
        await stage.client("d1").submit(a_job())
        await stage.until(lambda: bool(doomed.jobs.running))
        survivor = await stage.worker("w2", to="d2")
        await doomed.die()
        await stage.kill(first)
        waited = await stage.until(lambda: bool(survivor.jobs.running))
        assert 20.0 < waited < 35.0
        names = [one.name for one in await stage.model.dispatchers()]
        assert names == ["d2"]

    tell(story)


def test_a_worker_cut_off_from_everybody_stops_its_jobs_before_others_may_start_them() -> None:
    """G6: self-stop before the lease ends."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker("w1")
        job = a_job()
        await stage.client().submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        before = worker_id(worker)
        stage.network.cut.add("d1/workers")
        stopped = await stage.until(lambda: not worker.jobs.running)
        assert stopped <= 10.1
        assert await stage.state(job) is JobState.RUNNING
        stage.network.cut.clear()
        await stage.until(lambda: bool(worker.jobs.running))
        view = await stage.model.job(job.id)
        assert view is not None
        assert (view.crashes, view.failures) == (0, 0)
        assert worker_id(worker) == before

    tell(story)
