"""What a dispatcher may still believe when the store's answer took long."""

from __future__ import annotations

import asyncio

import pytest

from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, FaultyStore
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .late import LateStore
from .plain_player import Player, alive, raw, ready, submit
from .stage import Stage, StagedWorker, worker_id
from .test_rare_orders import HeldStore, pass_time
from .test_rare_orders import alive as alive_ids
from .test_stories import tell


class Patient:
    """A worker, played by hand, that says READY once and waits."""

    def __init__(self, stage: Stage) -> None:
        self.heard: list[bytes] = []
        """The verbs of what it was told."""
        link = stage.network.connect("d1/workers", self._receive)
        link.send(b"", encode(m.Ready(v=m.PROTOCOL_VERSION, worker=new_id())))

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        self.heard += [frames[1] for _, frames in arrived]


class HeldAndLate(HeldStore, LateStore):
    """Calls of one verb wait on their way, and answers to others come late."""


def late_store(stage: Stage) -> LateStore:
    """What dispatchers that come from now on have for a store."""
    stage.store = late = LateStore(stage.model)
    return late


def test_a_dispatchers_lease_counts_from_when_it_asked_for_it() -> None:
    """G6: others saw that renewal when it was made, not when its answer came."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        late.delay("renew", 0.0, *[6.0] * 3)
        await stage.dispatcher()
        await pass_time(stage, 6.0)
        worker = StagedWorker(stage, "w1", 1, ["d1/workers"])
        stage._workers.append(worker)
        await pass_time(stage, 15.0)
        assert not worker.joined.is_set()
        await stage.until(worker.joined.is_set, at_most_s=15.0)

    tell(story)


def test_a_late_renewal_does_not_let_workers_run_what_others_may_take_over() -> None:
    """G6: the worker stops its job before a dispatcher that saw no newer renewal gives it away."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        await stage.dispatcher("d1")
        stage.store = FaultyStore(stage.model)
        observer = await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        worker.jobs.stubborn = True
        await stage.client("d1").submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        late.delay("renew", 9.0)
        await last_renewal(stage, late)
        await observer._takeover.look()
        await pass_time(stage, 22.1)
        await observer._takeover.look()
        assert alive(stage) == []
        assert not worker.jobs.running

    tell(story)


async def last_renewal(stage: Stage, late: LateStore) -> None:
    """Waits until a renewal whose answer is late was made; none after it reaches the store."""
    dispatchers = stage.model._dispatchers
    first, row = next(iter(dispatchers.items()))
    await stage.until(lambda: dispatchers[first].renewed_no > row.renewed_no)
    late.plan = lambda verb: Fault.BEFORE if verb == "renew" else None


def test_of_two_attends_of_one_worker_answered_in_reverse_the_newer_session_counts() -> None:
    """The first READY was given up by the worker, which sent another, three seconds later."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        late.delay("attend", 5.0)
        await stage.dispatcher()
        worker = await stage.worker()
        assert stage.clock.now() < 5.0
        await pass_time(stage, 10.0)
        assert worker.worker._session.session == 2
        await stage.client().submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=0.5)

    tell(story)


@pytest.mark.parametrize(("late_s", "told"), [(7.4, [b"WELCOME"]), (7.6, [])])
def test_a_worker_that_waited_for_half_a_lease_is_not_welcomed_any_more(
    late_s: float, told: list[bytes]
) -> None:
    """It is elsewhere by then, or asks again."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        await stage.dispatcher()
        late.delay("attend", late_s)
        worker = Patient(stage)
        await pass_time(stage, 8.0)
        assert worker.heard == told

    tell(story)


def test_a_dispatcher_whose_lease_ended_while_it_attended_a_worker_does_not_welcome_it() -> None:
    """G6: a WELCOME is a lease."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        await stage.dispatcher()
        late.delay("attend", 6.0)
        worker = Patient(stage)
        late.plan = lambda verb: Fault.BEFORE if verb == "renew" else None
        await pass_time(stage, 7.0)
        assert len(alive(stage)) == 1
        assert worker.heard == []

    tell(story)


def test_a_renewal_that_took_longer_than_others_wait_counts_as_a_silence() -> None:
    """Its plain workers have no lease of their own: each must be attended anew to get a job."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        await stage.dispatcher("d1")
        stage.store = FaultyStore(stage.model)
        await stage.dispatcher("d2")
        worker = await ready(stage, to="d1")
        late.delay("renew", 40.0)
        await stage.until(lambda: alive(stage) == [], at_most_s=35.0)
        await stage.until(lambda: len(alive(stage)) == 1, at_most_s=20.0)
        await submit(stage, raw(b"x"))
        assert await worker.given(1) == b"x"

    tell(story)


def test_a_dispatcher_is_silent_from_when_it_was_read_not_from_when_that_was_asked_for() -> None:
    """G6: it may have renewed while the question was on its way."""

    async def story(stage: Stage) -> None:
        stage.store = unheard = FaultyStore(stage.model)
        await stage.dispatcher("d1")
        stage.store = slow = HeldStore(stage.model)
        observer = await stage.dispatcher("d2")
        worker = await stage.worker(to="d1")
        slow.hold("dispatchers")
        looking = asyncio.create_task(observer._takeover.look())
        await pass_time(stage, 10.0)
        unheard.plan = lambda verb: Fault.BEFORE if verb == "renew" else None
        slow.let_go.set()
        await looking
        await pass_time(stage, 21.5)
        await observer._takeover.look()
        assert await alive_ids(stage) == {worker_id(worker)}

    tell(story)


def test_a_worker_is_missed_from_when_it_was_read_not_from_when_that_was_asked_for() -> None:
    """It came while the question was on its way, and is about to be welcomed."""

    async def story(stage: Stage) -> None:
        stage.store = slow = HeldAndLate(stage.model)
        dispatcher = await stage.dispatcher()
        slow.hold("workers")
        looking = asyncio.create_task(dispatcher._takeover.look())
        await pass_time(stage, 14.0)
        slow.delay("attend", 7.0)
        Patient(stage)
        await stage.until(lambda: bool(stage.model._workers))
        slow.let_go.set()
        await looking
        await pass_time(stage, 6.0)
        await dispatcher._takeover.look()
        assert len(alive(stage)) == 1

    tell(story)


@pytest.mark.parametrize(("late_s", "is_taken"), [(7.4, True), (7.6, False)])
def test_a_plain_worker_whose_attend_was_answered_after_half_a_lease_is_attended_anew(
    late_s: float, is_taken: bool
) -> None:
    """Another dispatcher may have declared it lost by then."""

    async def story(stage: Stage) -> None:
        late = late_store(stage)
        late.delay("attend", late_s)
        await stage.dispatcher()
        worker = Player(stage)
        worker.beat()
        await submit(stage, raw(b"x"))
        await stage.until(lambda: worker.jobs == [b"x"])
        assert [row.alive for row in stage.model._workers.values()] == (
            [True] if is_taken else [False, True]
        )
        assert len(alive(stage)) == 1

    tell(story)
