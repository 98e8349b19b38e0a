"""Who pays for the loss of a worker: the job, if it may have caused it, and not for an outage."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from longshore.config import DispatcherSettings
from longshore.dispatcher.engine import Dispatcher
from longshore.dispatcher.own_lease import OwnLease
from longshore.errors import StoreUnavailable
from longshore.model.job import JobState, Submission
from longshore.model.worker import LostWorker
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault, FaultyStore, scripted
from longshore.testing.virtual import EPOCH
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .late import LateStore
from .stage import Stage, StagedWorker, worker_id
from .test_rare_orders import NoRoom, alive, pass_time
from .test_stories import tell


def away(_verb: str) -> Fault | None:
    """The plan of a store that does not answer."""
    return Fault.BEFORE


def back(_verb: str) -> Fault | None:
    """The plan of a store that answers again."""
    return None


async def crashes(stage: Stage, job: Submission) -> int:
    """How many crashes a job has paid for, once it has lost its worker."""
    while await stage.state(job) is JobState.RUNNING:
        await pass_time(stage, 0.5)
    view = await stage.model.job(job.id)
    assert view is not None
    return view.crashes


async def running(stage: Stage, job: Submission, to: str = "d1") -> StagedWorker:
    """A worker that runs this job."""
    worker = await stage.worker(to=to)
    await stage.client(to.split(",")[0]).submit(job)
    await stage.until(lambda: bool(worker.jobs.running))
    return worker


# the store was away


class HandClock:
    """A clock that is set by hand."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def utc(self) -> datetime:
        return EPOCH + timedelta(seconds=self.at)


def test_the_store_is_blamed_for_two_leases_after_it_was_away() -> None:
    """A worker that lost its lease to an outage is found lost within this time."""

    clock = HandClock()
    own_lease = OwnLease(DispatcherSettings(lease_s=15.0), clock)
    assert not own_lease.blames_store()
    own_lease.saw_outage(StoreUnavailable("it is away; try again"))
    assert own_lease.blames_store()
    clock.at = 29.9
    assert own_lease.blames_store()
    clock.at = 30.0
    assert not own_lease.blames_store()


@pytest.mark.parametrize(("before_s", "paid"), [(12.0, 0), (17.0, 1)])
def test_a_worker_that_is_lost_within_two_leases_of_an_outage_costs_its_jobs_nothing(
    before_s: float, paid: int
) -> None:
    """It dies so long after the store came back, and is found lost a lease after that."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        job = a_job()
        worker = await running(stage, job)
        stage.store.plan = away
        await pass_time(stage, 2.0)
        stage.store.plan = back
        await pass_time(stage, before_s)
        await worker.die()
        assert await crashes(stage, job) == paid

    tell(story)


@pytest.mark.parametrize(("is_lost", "paid"), [(True, 0), (False, 1)])
def test_a_worker_that_its_dispatcher_never_heard_of_pays_unless_the_store_was_away(
    is_lost: bool, paid: int
) -> None:
    """It came with a job, and died. The answer to its attend was lost, or came too late."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        job = a_job()
        worker = await running(stage, job, to="d1,d2")
        stage.store = late = LateStore(stage.model)
        await stage.dispatcher("d2")
        if is_lost:
            late.plan = scripted(("attend", Fault.AFTER))
        else:
            late.delay("attend", 8.0)
        await stage.kill(first)
        await stage.until(lambda: next(iter(stage.model._workers.values())).session == 2)
        await worker.die()
        assert await crashes(stage, job) == paid
        [view] = await stage.model.workers()
        assert view.ended_why == "its dispatcher never heard of it again"

    tell(story)


@pytest.mark.parametrize(("was_away", "paid"), [(False, 1), (True, 0)])
def test_what_a_silent_dispatchers_workers_held_pays_unless_the_store_was_away(
    was_away: bool, paid: int
) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        job = a_job()
        worker = await running(stage, job)
        stage.store = FaultyStore(stage.model)
        await stage.dispatcher("d2")
        await pass_time(stage, 5.0)
        await stage.kill(first)
        await worker.die()
        await pass_time(stage, 10.0)
        stage.store.plan = away if was_away else back
        await pass_time(stage, 2.0)
        stage.store.plan = back
        assert await crashes(stage, job) == paid

    tell(story)


# what was sent, and what was not


def test_a_job_that_could_not_be_sent_at_first_pays_once_it_ran() -> None:
    """Otherwise a job that takes its workers down is never found poisonous."""

    async def story(stage: Stage) -> None:
        link = NoRoom(await stage.dispatcher(), "JOBS")
        worker = await stage.worker()
        job = a_job()
        await stage.client().submit(job)
        await pass_time(stage, 2.5)
        link.verb = None
        await stage.until(lambda: bool(worker.jobs.running))
        await pass_time(stage, 1.5)
        await worker.die()
        assert await crashes(stage, job) == 1

    tell(story)


def test_a_job_that_arrived_although_its_dispatcher_doubted_it_pays_once_it_ran() -> None:
    """The answer to the PING before it found no room, so what went with it is not certain."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        worker = await stage.worker()
        await stage.until(lambda: worker.worker._session._ping_no == 2)
        job = a_job()
        await stage.client().submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [session] = dispatcher._roster
        session.unsent()  # type: ignore[attr-defined]
        assert [one.id for one in session.undelivered()] == [job.id]
        await pass_time(stage, 1.5)
        await worker.die()
        assert await crashes(stage, job) == 1

    tell(story)


# the same worker, another session


def test_a_job_of_a_worker_that_came_back_as_another_pays_nothing_and_nobody_is_told() -> None:
    async def story(stage: Stage) -> None:
        told: list[LostWorker] = []
        stage.on_lost = told.append
        dispatcher = await stage.dispatcher()
        job = a_job()
        worker = await running(stage, job)
        say_gone(dispatcher)
        await stage.until(lambda: len(worker.jobs.started) == 2)
        assert await crashes_so_far(stage, job) == 0
        before = worker_id(worker)
        await pass_time(stage, 10.0)
        assert (worker_id(worker), worker.worker._session.session) == (before, 2)
        worker.jobs.succeed()
        [ended] = await stage.client().wait(job)
        assert ended.state is JobState.SUCCEEDED
        assert not told

    tell(story)


def test_what_a_worker_still_held_when_it_left_in_good_order_costs_nothing() -> None:
    """It could not wait any longer for its dispatcher to take note of what it handed back."""

    async def story(stage: Stage) -> None:
        told: list[LostWorker] = []
        stage.on_lost = told.append
        await stage.dispatcher()
        job = a_job()
        worker = await running(stage, job)
        worker.worker._link.send(b"", encode(m.Bye(worker_id(worker), "drained")))
        assert await crashes(stage, job) == 0
        assert not told

    tell(story)


def say_gone(dispatcher: Dispatcher) -> None:
    """Tells its workers that they were declared lost."""
    for session in dispatcher._roster:
        dispatcher._link.send(session.peer, encode(m.Gone(session.worker, "by a story")))


async def crashes_so_far(stage: Stage, job: Submission) -> int:
    view = await stage.model.job(job.id)
    assert view is not None
    return view.crashes


def test_a_worker_that_says_ready_again_on_its_connection_keeps_what_it_runs() -> None:
    """G8: a proxy between the two may have lost the first WELCOME, and kept the connection."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        job = a_job()
        worker = await running(stage, job)
        [before] = dispatcher._roster
        agent = worker.worker
        asked: list[str] = []
        stage.store.plan = asked.append
        agent._session.connected(stage.clock.now())
        agent._flush()
        await stage.until(lambda: agent._session.session == 2)
        assert "harvest" not in asked
        other = await stage.worker("w2")
        await pass_time(stage, 30.0)
        assert worker_id(worker) in await alive(stage)
        [session] = [one for one in dispatcher._roster if one.info.id == before.info.id]
        assert (session.peer, session.number) == (before.peer, 2)
        assert agent._session.session == 2
        assert len(worker.jobs.started) == len(worker.jobs.running) == 1
        assert not other.jobs.started
        worker.jobs.succeed()
        [ended] = await stage.client().wait(job)
        assert ended.state is JobState.SUCCEEDED

    tell(story)
