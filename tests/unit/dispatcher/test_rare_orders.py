"""Rare orders of events, found by simulation: a slow store, a full queue, a long silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from msgspec import structs

from longshore.dispatcher.engine import Dispatcher
from longshore.model.job import JobState
from longshore.ports import Store
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault, FaultyStore, scripted
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .stage import Stage, StagedWorker, worker_id
from .test_stories import tell

Answer = TypeVar("Answer")


class HeldStore(FaultyStore):
    """Holds calls of one verb on their way to the store until the test releases them."""

    verb = ""
    let_go: asyncio.Event

    def hold(self, verb: str) -> None:
        self.verb, self.let_go = verb, asyncio.Event()

    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        if verb == self.verb:
            await self.let_go.wait()
        return await super()._call(verb, call)


class SlowStore(FaultyStore):
    """Attends one worker at a time, each within `each_s`."""

    def __init__(self, store: Store, each_s: float) -> None:
        super().__init__(store)
        self._each_s = each_s
        self.attended = 0
        self._turn = asyncio.Lock()

    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        if verb == "attend":
            async with self._turn:
                await asyncio.sleep(self._each_s)
                self.attended += 1
        return await super()._call(verb, call)


class NoRoom:
    """A dispatcher's link to its workers that has no room for messages of one verb."""

    def __init__(self, dispatcher: Dispatcher, verb: str) -> None:
        self._link = dispatcher._link.socket
        self.verb: bytes | None = verb.encode()
        self.sent: list[bytes] = []
        """The verbs of what was to be sent."""
        dispatcher._link.socket = self

    def key_of(self, peer: bytes) -> str:
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        self.sent.append(frames[1])
        return frames[1] != self.verb and self._link.send(peer, frames)

    def close(self) -> None:
        self._link.close()


async def pass_time(stage: Stage, seconds: float) -> None:
    """Lets so much time pass."""
    until = stage.clock.now() + seconds
    await stage.until(lambda: stage.clock.now() >= until)


async def alive(stage: Stage) -> set[UUID]:
    """The workers that are alive in the store."""
    return {view.info.id for view in await stage.model.workers() if view.alive}


def test_a_dispatcher_that_was_slow_to_attend_a_worker_does_not_take_it_from_the_next() -> None:
    """G6, G8: the session a worker is in is the last one it asked for."""

    async def story(stage: Stage) -> None:
        stage.store = slow = HeldStore(stage.model)
        slow.hold("attend")
        await stage.dispatcher("d1")
        stage.store = FaultyStore(stage.model)
        second = await stage.dispatcher("d2")
        worker = await stage.worker(to="d1,d2")
        await stage.client("d2").submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        slow.let_go.set()
        await pass_time(stage, 60.0)
        assert len(worker.jobs.started) == len(worker.jobs.running) == 1
        [view] = await stage.model.workers()
        assert (view.alive, view.dispatcher) == (True, second.id)

    tell(story)


def test_of_many_workers_that_ask_at_once_few_are_attended_where_they_wait_no_more() -> None:
    """Each asks again, from another socket, every three seconds; the last waits for ten."""

    async def story(stage: Stage) -> None:
        stage.store = slow = SlowStore(stage.model, each_s=0.1)
        await stage.dispatcher()
        workers = [StagedWorker(stage, f"w{n}", 1, ["d1/workers"]) for n in range(100)]
        stage._workers += workers
        await stage.until(lambda: all(one.joined.is_set() for one in workers), at_most_s=13.0)
        assert slow.attended < 1.2 * len(workers)

    tell(story)


def test_a_job_that_one_dispatcher_could_not_send_is_not_taken_from_a_worker_it_reached() -> None:
    """G2, G6: a dispatcher that lost a session cannot end jobs of the next session."""

    async def story(stage: Stage) -> None:
        NoRoom(await stage.dispatcher("d1"), "JOBS")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1,d2")
        await stage.client("d1").submit(a_job())
        stage.network.cut.add("d1/workers")
        await stage.until(lambda: bool(worker.jobs.running))
        await pass_time(stage, 30.0)
        assert len(worker.jobs.started) == len(worker.jobs.running) == 1

    tell(story)


def test_a_job_that_never_reached_its_worker_is_not_blamed_for_its_loss() -> None:
    async def story(stage: Stage) -> None:
        NoRoom(await stage.dispatcher(), "JOBS")
        worker = await stage.worker()
        job = a_job()
        await stage.client().submit(job)
        await worker.die()
        while await stage.state(job) is not JobState.READY:
            await pass_time(stage, 1.0)
        view = await stage.model.job(job.id)
        assert view is not None
        assert view.crashes == 0

    tell(story)


def test_a_job_for_which_there_was_no_room_is_sent_at_the_next_ping() -> None:
    async def story(stage: Stage) -> None:
        link = NoRoom(await stage.dispatcher(), "JOBS")
        worker = await stage.worker()
        await stage.client().submit(a_job())
        await pass_time(stage, 3.0)
        link.verb = None
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=1.5)
        assert len(worker.jobs.started) == 1

    tell(story)


def test_an_acknowledgement_for_which_there_was_no_room_comes_with_the_next_ping() -> None:
    async def story(stage: Stage) -> None:
        link = NoRoom(await stage.dispatcher(), "ACK")
        worker = await stage.worker()
        await stage.client().submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.succeed()
        await pass_time(stage, 3.0)
        assert not worker.worker._session.settled
        link.verb = None
        await stage.until(lambda: worker.worker._session.settled, at_most_s=1.5)
        link.sent.clear()
        await pass_time(stage, 3.0)
        assert b"PONG" in link.sent
        assert b"ACK" not in link.sent

    tell(story)


def test_workers_that_died_before_their_dispatcher_stopped_are_harvested_by_another() -> None:
    """G1: a dispatcher that stopped in good order leaves no worker behind."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        doomed = await stage.worker("w1", to="d1")
        await stage.dispatcher("d2")
        await stage.client("d1").submit(a_job())
        await stage.until(lambda: bool(doomed.jobs.running))
        survivor = await stage.worker("w2", to="d2")
        await doomed.die()
        stage._dispatchers.remove(first)
        await first.stop()
        await stage.until(lambda: bool(survivor.jobs.running), at_most_s=35.0)

    tell(story)


def test_a_worker_whose_attendance_got_lost_with_the_answer_is_harvested_if_it_dies() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stage.store.plan = scripted(("attend", Fault.AFTER))
        doomed = StagedWorker(stage, "w1", 1, ["d1/workers"])
        await stage.until(lambda: bool(stage.model._workers))
        await doomed.die()
        [id] = stage.model._workers
        await stage.until(lambda: not stage.model._workers[id].alive, at_most_s=30.0)

    tell(story)


def test_a_dispatcher_that_cannot_renew_its_own_lease_attends_nobody() -> None:
    """G6: a WELCOME is a lease, and others may declare this dispatcher's workers lost."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stage.store.plan = lambda verb: Fault.BEFORE if verb == "renew" else None
        await pass_time(stage, 6.0)
        worker = StagedWorker(stage, "w1", 1, ["d1/workers"])
        stage._workers.append(worker)
        await pass_time(stage, 10.0)
        assert not worker.joined.is_set()
        stage.store.plan = lambda _verb: None
        await stage.until(worker.joined.is_set, at_most_s=6.0)

    tell(story)


def test_a_dispatcher_that_was_silent_for_too_long_takes_its_workers_anew() -> None:
    """G6: other dispatchers may have declared them lost meanwhile."""

    async def story(stage: Stage) -> None:
        stage.store = away = FaultyStore(stage.model)
        await stage.dispatcher("d1")
        stage.store = FaultyStore(stage.model)
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        before = worker_id(worker)
        away.plan = lambda _verb: Fault.BEFORE
        await pass_time(stage, 40.0)
        away.plan = lambda _verb: None
        await stage.client("d1").submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=10.0)
        assert worker_id(worker) != before

    tell(story)


def test_a_dispatcher_that_was_forgotten_and_came_back_is_not_taken_for_silent() -> None:
    """G6, G8: a new row may have the renewal number of an old one."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        stage.store = blind = FaultyStore(stage.model)
        observer = await stage.dispatcher("d2")
        await observer._takeover.look()
        seen = stage.model._dispatchers[first.id].renewed_no
        blind.plan = lambda verb: Fault.BEFORE if verb == "dispatchers" else None
        await stage.model.retire(first.id)
        worker = await stage.worker(to="d1")
        await pass_time(stage, 30.0)
        row = stage.model._dispatchers[first.id]
        stage.model._dispatchers[first.id] = structs.replace(row, renewed_no=seen)
        blind.plan = lambda _verb: None
        await observer._takeover.look()
        assert await alive(stage) == {worker_id(worker)}

    tell(story)


def test_what_a_dispatcher_attends_after_its_silence_is_not_taken_from_it() -> None:
    """G6, G8: the dispatcher that found it silent knows only its earlier sessions."""

    async def story(stage: Stage) -> None:
        stage.store = away = FaultyStore(stage.model)
        await stage.dispatcher("d1")
        stage.store = slow = HeldStore(stage.model)
        observer = await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        await pass_time(stage, 5.0)
        away.plan = lambda verb: Fault.BEFORE if verb == "renew" else None
        await pass_time(stage, 18.0)
        slow.hold("workers")
        await pass_time(stage, 10.0)
        looking = asyncio.create_task(observer._takeover.look())
        worker.joined.clear()
        away.plan = lambda _verb: None
        await worker.joined.wait()
        slow.let_go.set()
        await looking
        assert await alive(stage) == {worker_id(worker)}

    tell(story)


def test_a_job_that_started_late_has_its_whole_time() -> None:
    """The backstop of a timeout counts from when the worker had the job, not from the claim."""

    async def story(stage: Stage) -> None:
        link = NoRoom(await stage.dispatcher("d1"), "JOBS")
        await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        worker.jobs.stubborn = True
        job = a_job(timeout_s=10.0)
        await stage.client("d1").submit(job)
        await pass_time(stage, 15.0)
        link.verb = None
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=2.0)
        await pass_time(stage, 15.0)
        assert await stage.state(job) is JobState.RUNNING
        await pass_time(stage, 12.0)
        assert await stage.state(job) is JobState.FAILED

    tell(story)


def test_a_worker_that_comes_back_as_another_gives_up_what_it_had_at_once() -> None:
    """G3: a message to its old name must not reach the new worker."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        worker = await stage.worker()
        job = a_job()
        await stage.client().submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [attempt] = worker.jobs.running
        before, peer = worker_id(worker), worker.worker._link
        gone = m.Gone(before, "by a story")
        for session in dispatcher._roster:
            dispatcher._link.send(session.peer, encode(gone))
        await stage.until(lambda: bool(worker.jobs.running) and attempt not in worker.jobs.running)
        assert worker.worker._link is peer
        assert stage.clock.now() < 1.0
        assert await alive(stage) == {worker_id(worker)}
        assert worker_id(worker) != before

    tell(story)
