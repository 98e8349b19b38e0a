"""Faults: a call that failed is made again, and nothing happens twice.

A call may fail before it is committed, or after, when only its answer is lost. The caller cannot
tell which: it must be able to repeat every verb.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.ends import Failed, Retried
from longshore.model.job import JobFilter, JobState, LogEntry, LogKind
from longshore.model.worker import Attended, SessionKey
from longshore.ports import Batch, Store
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    ENDS,
    Scene,
    a_claim,
    a_job,
    a_worker,
    done,
    new_id,
    some_jobs,
)
from longshore.testing.faults import Fault, FaultyStore, scripted, seeded

Act = Callable[[Store], Awaitable[object]]
Story = Callable[[Scene, Backend], Awaitable[Act]]
S = JobState


async def seen(store: Store) -> object:
    """Everything that a user can see of a store, without the time of day."""
    listed = (await store.jobs(JobFilter(limit=1000))).jobs
    jobs = [await store.job(job.id) for job in listed]
    workers = sorted(await store.workers(), key=lambda view: view.info.id)
    dispatchers = sorted(await store.dispatchers(), key=lambda view: view.id)
    return jobs, workers, dispatchers, await store.queues()


async def submitting(scene: Scene, backend: Backend) -> Act:
    jobs = [a_job(), a_job(delay_s=60), a_job(unique_key="u"), a_job(unique_key="u")]
    return lambda store: store.pump(scene.dispatcher, Batch(submits=jobs))


async def finishing(scene: Scene, backend: Backend) -> Act:
    await scene.accepted(*some_jobs(len(ENDS)))
    attempts = await scene.claim(await scene.attend(), most=len(ENDS))
    finishes = [
        done(attempt, outcome, result=b"\x01", outbox=[a_job(kind="child")])
        for attempt, outcome in zip(attempts, ENDS, strict=True)
    ]
    return lambda store: store.pump(scene.dispatcher, Batch(finishes=finishes))


async def revoking(scene: Scene, backend: Backend) -> Act:
    attempt = await scene.running()
    finish = done(attempt, Retried, forced=True)
    return lambda store: store.pump(scene.dispatcher, Batch(finishes=[finish]))


async def harvesting(scene: Scene, backend: Backend) -> Act:
    attempt = await scene.running()
    return lambda store: store.harvest(
        attempt.worker, attempt.session, "lost", crash=True, crash_limit=3
    )


async def sweeping(scene: Scene, backend: Backend) -> Act:
    attempt = await scene.running()
    await backend.half_harvest(attempt.worker)
    return lambda store: store.sweep(3)


async def promoting(scene: Scene, backend: Backend) -> Act:
    await scene.accepted(a_job(delay_s=5), a_job(delay_s=500))
    await backend.pass_time(50)
    return lambda store: store.promote()


async def cancelling(scene: Scene, backend: Backend) -> Act:
    attempt, ready = await scene.running(), a_job()
    await scene.accepted(ready)
    return lambda store: store.cancel([attempt.id, ready.id], "ann")


async def retrying(scene: Scene, backend: Backend) -> Act:
    attempt, request = await scene.ended(Failed), new_id()
    return lambda store: store.retry([attempt.id], "ann", request)


async def logging(scene: Scene, backend: Backend) -> Act:
    attempt = await scene.running()
    entry = LogEntry(attempt.id, attempt.token, 1, LogKind.STEP, b"step")
    return lambda store: store.log([entry])


async def pausing(scene: Scene, backend: Backend) -> Act:
    return lambda store: store.set_paused("q", True)


async def draining(scene: Scene, backend: Backend) -> Act:
    slot = await scene.attend()
    return lambda store: store.set_draining(slot.worker, True)


async def retiring(scene: Scene, backend: Backend) -> Act:
    await scene.store.renew(scene.dispatcher, "d")
    return lambda store: store.retire(scene.dispatcher)


async def forgetting(scene: Scene, backend: Backend) -> Act:
    await scene.store.renew(scene.dispatcher, "d")
    return lambda store: store.forget_dispatcher(scene.dispatcher)


STORIES: dict[str, tuple[str, Story]] = {
    "submit": ("pump", submitting),
    "finish": ("pump", finishing),
    "revoke": ("pump", revoking),
    "harvest": ("harvest", harvesting),
    "sweep": ("sweep", sweeping),
    "promote": ("promote", promoting),
    "cancel": ("cancel", cancelling),
    "retry": ("retry", retrying),
    "log": ("log", logging),
    "set_paused": ("set_paused", pausing),
    "set_draining": ("set_draining", draining),
    "retire": ("retire", retiring),
    "forget_dispatcher": ("forget_dispatcher", forgetting),
}


@pytest.mark.parametrize(("verb", "story"), STORIES.values(), ids=STORIES.keys())
async def test_call_that_failed_is_repeated_and_nothing_happens_twice(
    scene: Scene, backend: Backend, verb: str, story: Story
) -> None:
    """G3: it never arrived, then only its answer was lost, then all is well: one effect."""
    act = await story(scene, backend)
    before = await seen(scene.store)
    faulty = FaultyStore(scene.store, scripted((verb, Fault.BEFORE), (verb, Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await act(faulty)
    assert await seen(scene.store) == before
    with pytest.raises(StoreUnavailable):
        await act(faulty)
    committed = await seen(scene.store)
    assert committed != before
    await act(faulty)
    assert await seen(scene.store) == committed


async def test_claim_whose_answer_was_lost_is_found_where_it_is_placed(scene: Scene) -> None:
    """G2: the attempts exist, have an owner, and their owner's dispatcher can ask for them."""
    jobs = some_jobs(3)
    await scene.accepted(*jobs)
    slot = await scene.attend()
    faulty = FaultyStore(scene.store, scripted(("pump", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await Scene(faulty, scene.dispatcher).claim(slot, most=2)
    placed = await faulty.placed([slot])
    assert {attempt.id for attempt in placed} == {job.id for job in jobs[:2]}
    assert [attempt.attempt for attempt in placed] == [1, 1]
    assert [one.id for one in await scene.claim(slot, most=9)] == [jobs[2].id]
    answers = await scene.finish(*(done(attempt) for attempt in placed))
    assert {answer.verdict for answer in answers} == {"recorded"}


async def test_attendance_whose_answer_was_lost_is_made_again(scene: Scene) -> None:
    """G8: the session rises once more, and the jobs stay placed."""
    info = a_worker()
    attempt = await scene.running(slot=await scene.attend(info))
    faulty = FaultyStore(scene.store, scripted(("attend", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await faulty.attend(scene.dispatcher, info)
    answer = await faulty.attend(scene.dispatcher, info)
    assert isinstance(answer, Attended)
    assert [placed.id for placed in answer.placed] == [attempt.id]
    assert await faulty.placed([SessionKey(info.id, answer.session)]) == list(answer.placed)
    assert (await scene.job(attempt.id)).token == attempt.token


async def test_first_attendance_whose_answer_was_lost_is_made_again(scene: Scene) -> None:
    info = a_worker()
    faulty = FaultyStore(scene.store, scripted(("attend", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await faulty.attend(scene.dispatcher, info)
    slot = await Scene(faulty, scene.dispatcher).attend(info)
    await scene.accepted(a_job())
    assert len(await scene.claim(slot)) == 1


async def test_renewal_whose_answer_was_lost_is_made_again(scene: Scene) -> None:
    faulty = FaultyStore(scene.store, scripted(("renew", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await faulty.renew(scene.dispatcher, "d")
    await faulty.renew(scene.dispatcher, "d")
    assert [view.id for view in await scene.store.dispatchers()] == [scene.dispatcher]


class Stubborn:
    """A dispatcher that goes on until its work is done, whatever the store answers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.dispatcher = new_id()
        self.recorded: list[UUID] = []
        self.faults = 0

    async def until_done(self, act: Callable[[], Awaitable[object]]) -> object:
        while True:
            try:
                return await act()
            except StoreUnavailable:
                self.faults += 1

    async def run(self, number: int) -> list[UUID]:
        """Submits so many jobs, a few at a time, and runs all of them."""
        info = a_worker()
        answer = await self.until_done(lambda: self.store.attend(self.dispatcher, info))
        assert isinstance(answer, Attended)
        slot = SessionKey(info.id, answer.session)
        jobs = some_jobs(number)
        held: dict[UUID, Attempt] = {}
        left = list(jobs)
        while left or held:
            finishes = [done(attempt) for attempt in held.values()]
            batch = Batch(finishes, left[:3], [a_claim([slot] * 3)])
            await self.until_done(lambda batch=batch: self._pump(batch))  # type: ignore[misc]
            del left[:3]
            placed = await self.until_done(lambda: self.store.placed([slot]))
            assert isinstance(placed, list)
            held = {attempt.id: attempt for attempt in placed}
        return [job.id for job in jobs]

    async def _pump(self, batch: Batch) -> None:
        pumped = await self.store.pump(self.dispatcher, batch)
        assert {answer.verdict for answer in pumped.finished} <= {"recorded", "already_recorded"}


@pytest.mark.parametrize("seed", range(3))
async def test_everything_ends_once_however_often_the_store_fails(scene: Scene, seed: int) -> None:
    """G1, G3: with half of the calls failing, each job is there, ran once, and ended once."""
    dispatcher = Stubborn(FaultyStore(scene.store, seeded(seed, rate=0.5)))
    ids = await dispatcher.run(30)
    assert dispatcher.faults > 5
    for id in ids:
        job = await scene.job(id)
        states = [entry.state for entry in job.history]
        assert states == [S.READY, S.RUNNING, S.SUCCEEDED]
        assert job.attempt == 1
    assert len((await scene.store.jobs(JobFilter(limit=1000))).jobs) == len(ids)


def test_seeded_plan_is_the_same_for_a_seed() -> None:
    plans = [seeded(7, rate=0.5), seeded(7, rate=0.5)]
    first, second = ([plan("pump") for _ in range(100)] for plan in plans)
    assert first == second
    assert set(first) == {None, Fault.BEFORE, Fault.AFTER}


def test_seeded_plan_leaves_other_verbs_alone() -> None:
    plan = seeded(7, rate=1.0, verbs={"pump"})
    assert plan("renew") is None
    assert plan("pump") is not None


def test_scripted_plan_is_used_up() -> None:
    plan = scripted(("pump", None), ("pump", Fault.AFTER), ("renew", Fault.BEFORE))
    assert [plan("pump") for _ in range(3)] == [None, Fault.AFTER, None]
    assert [plan("renew") for _ in range(2)] == [Fault.BEFORE, None]
