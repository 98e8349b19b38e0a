"""Workers that an operator drains, and what is known of a fleet."""

from __future__ import annotations

from longshore.model.job import JobState
from longshore.model.worker import Capacity, DrainVerdict
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .stage import Client, Stage, StagedWorker, worker_id
from .test_stories import tell

V = DrainVerdict


async def drain(client: Client, *names: str) -> list[DrainVerdict]:
    answers = await client.ask(m.Drain(7, new_id(), names))
    assert isinstance(answers, tuple), answers
    return [answer.verdict for answer in answers]


async def left(stage: Stage, worker: StagedWorker, at_most_s: float = 300.0) -> float:
    """How long it took a worker to leave in good order."""
    waited = await stage.until(worker.task.done, at_most_s)
    assert worker.task.exception() is None
    return waited


def test_a_drained_worker_finishes_what_it_runs_and_leaves() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker("w1"), stage.client()
        running, late = a_job(), a_job()
        await client.submit(running)
        await stage.until(lambda: bool(worker.jobs.running))
        assert await drain(client, "w1") == [V.DRAINING]
        [view] = await stage.model.workers()
        assert view.draining
        await client.submit(late)
        assert await drain(client, "w1") == [V.ALREADY_DRAINING]
        await stage.until(lambda: worker.worker._draining.is_set(), at_most_s=0.1)
        worker.jobs.succeed()
        assert await left(stage, worker) < 1.0
        [ended] = await client.wait(running)
        assert ended.state is JobState.SUCCEEDED
        assert await stage.state(late) is JobState.READY
        assert [one.job for one in worker.jobs.started] == [running.id]
        [view] = await stage.model.workers()
        assert (view.alive, view.ended_why) == (False, "drained")
        assert await drain(client, "w1") == [V.GONE]

    tell(story)


def test_a_drain_reaches_a_worker_whichever_dispatcher_it_was_asked_of() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker("w1", to="d1")
        assert await drain(stage.client("d2"), str(worker_id(worker))) == [V.DRAINING]
        assert await left(stage, worker) < 1.0

    tell(story)


def test_a_drain_is_found_without_any_hint() -> None:
    async def story(stage: Stage) -> None:
        stage.model._hint = lambda *hints: None  # type: ignore[method-assign]
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker("w1", to="d1")
        await drain(stage.client("d2"), "w1")
        assert await left(stage, worker) < 1.5

    tell(story)


def test_a_drain_survives_the_death_of_the_dispatcher_that_was_to_tell_it() -> None:
    """G8: the dispatcher that adopts the worker tells it."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await stage.worker("w1", to="d1,d2")
        await stage.kill(first)
        await drain(stage.client("d2"), "w1")
        assert not worker.worker._draining.is_set()
        assert await left(stage, worker) < 10.0

    tell(story)


def test_an_exit_that_got_lost_is_said_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker("w1")
        stage.network.cut.add("d1/workers")
        await drain(stage.client(), "w1")
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() - began > 0.5)
        stage.network.cut.clear()
        assert await left(stage, worker) < 6.0

    tell(story)


def test_a_worker_that_drains_by_itself_is_marked_even_if_the_store_was_away_just_then() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker("w1"), stage.client()
        await client.submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        stage.store.plan = scripted(("set_draining", Fault.BEFORE))
        worker.worker.drain()
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() - began > 2.0)
        [view] = await stage.model.workers()
        assert (view.alive, view.draining) == (True, True)

    tell(story)


def test_a_text_that_means_no_worker_or_several_drains_nobody() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await stage.worker("same")
        await stage.worker("same")
        assert await drain(stage.client(), "same", "nobody") == [V.AMBIGUOUS, V.NOT_FOUND]
        assert [view.draining for view in await stage.model.workers()] == [False, False]

    tell(story)


def test_what_workers_say_of_their_machines_is_written_down_now_and_then() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(heartbeat_s=10.0)
        worker = await stage.worker()
        worker.worker._measure = lambda: m.Stats(50.0, 25.0)
        calls: list[str] = []

        def count(verb: str) -> None:
            calls.append(verb)

        stage.store.plan = count
        await stage.until(lambda: calls.count("beat") == 3)
        [view] = await stage.model.workers()
        assert (view.cpu_percent, view.memory_percent) == (50.0, 25.0)
        assert view.seen_at is not None
        assert (stage.clock.utc() - view.seen_at).total_seconds() < 0.1
        assert 20.0 < stage.clock.now() < 31.0

    tell(story)


def test_a_worker_that_fell_silent_is_not_said_to_have_been_seen() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(heartbeat_s=2.0)
        worker = await stage.worker()
        await stage.until(lambda: stage.clock.now() > 5.0)
        await worker.die()
        died_at = stage.clock.utc()
        await stage.until(lambda: stage.clock.now() > 15.0)
        [view] = await stage.model.workers()
        assert view.alive
        assert view.seen_at is not None
        assert (view.seen_at - died_at).total_seconds() <= 2.0

    tell(story)


def test_a_heartbeat_that_could_not_be_written_harms_nobody() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher(heartbeat_s=1.0)
        stage.store.plan = scripted(("beat", Fault.BEFORE), ("beat", Fault.AFTER))
        await stage.worker()
        await stage.until(lambda: stage.clock.now() > 5.0)
        assert not dispatcher.broken.is_set()
        [view] = await stage.model.workers()
        assert view.alive

    tell(story)


def test_dispatchers_say_who_attends_how_many_and_who_fell_silent() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        await stage.worker(to="d1")
        client = stage.client("d2")
        await stage.until(lambda: stage.clock.now() > 10.0)
        assert await seen(client) == {"d1": (True, 1), "d2": (True, 0)}
        await stage.kill(first)
        began = stage.clock.now()
        await stage.until(lambda: stage.clock.now() - began > 10.0)
        assert await seen(client) == {"d1": (False, 1), "d2": (True, 0)}

    tell(story)


async def seen(client: Client) -> dict[str, tuple[bool, int]]:
    answers = await client.ask(m.ListDispatchers(8))
    assert isinstance(answers, tuple), answers
    return {one.name: (one.alive, one.workers) for one in answers}


def test_capacity_is_what_the_live_workers_have_left() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(slots=10), stage.client()
        await client.submit(a_job(), a_job())
        await stage.until(lambda: len(worker.jobs.running) == 2)
        answer = await client.ask(m.ShowCapacity(9))
        assert isinstance(answer, Capacity)
        assert {one.kind: one.free for one in answer.kinds} == {"work": 8, "grind": 10}
        worker.worker._link.send(b"", encode(m.Bye(worker_id(worker), "enough")))

    tell(story)
