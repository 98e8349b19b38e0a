"""Pruning: what ended and is past its bounds goes, whole; nothing else does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from longshore.core.lifecycle import TERMINAL
from longshore.errors import StoreUnavailable
from longshore.model.ends import Failed, Succeeded
from longshore.model.job import JobFilter, JobState, LogEntry, LogKind, Submitted
from longshore.model.retention import Pruned, Retention
from longshore.model.worker import Attended, Gone
from longshore.ports import Store
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_claim, a_job, a_worker, done, some_jobs
from longshore.testing.faults import Fault, FaultyStore, scripted
from longshore.wire.messages import Stats

S = JobState
DAY_S = 86_400.0
AT_ONCE = Retention(seconds=dict.fromkeys(TERMINAL, 0.0))


async def prune(
    store: Store, kept: Retention, *, most: int = 1000, dry_run: bool = False
) -> dict[JobState, int]:
    """All that a pruning from the first job to the last removes."""
    removed: Counter[JobState] = Counter()
    step = Pruned({}, 0, False)
    while not step.done:
        step = await store.prune(kept, after=step.up_to, most=most, dry_run=dry_run)
        removed.update(step.removed)
    return dict(removed)


async def succeeded(scene: Scene, number: int) -> list[UUID]:
    """So many new jobs that went well, in the order of their numbers."""
    slot = await scene.attend()
    pumped = await scene.pump(submits=some_jobs(number), claims=[a_claim([slot] * number)])
    await scene.finish(*map(done, pumped.claimed))
    return [attempt.id for attempt in sorted(pumped.claimed, key=lambda one: one.number)]


async def left(store: Store) -> list[UUID]:
    """The jobs there are, oldest first."""
    return [job.id for job in reversed((await store.jobs(JobFilter(limit=1000))).jobs)]


async def counts(store: Store) -> dict[str, int]:
    """How many jobs the queues say there are."""
    total: Counter[str] = Counter()
    for queue in await store.queues():
        total.update(queue.counts)
    return dict(total)


async def one_of_each(scene: Scene) -> dict[JobState, UUID]:
    """A job in every state that something leads to."""
    jobs = {
        S.SUCCEEDED: (await scene.ended(Succeeded)).id,
        S.FAILED: (await scene.ended(Failed)).id,
        S.RUNNING: (await scene.running()).id,
        S.CANCELLING: (await scene.being_cancelled()).id,
    }
    for state, job in (
        (S.CANCELLED, a_job()),
        (S.DELAYED, a_job(delay_s=1e6)),
        (S.READY, a_job()),
    ):
        await scene.accepted(job)
        jobs[state] = job.id
    await scene.store.cancel([jobs[S.CANCELLED]])
    return jobs


async def test_only_what_ended_goes(scene: Scene) -> None:
    jobs = await one_of_each(scene)
    removed = await prune(scene.store, AT_ONCE)
    assert removed == {S.SUCCEEDED: 1, S.FAILED: 1, S.CANCELLED: 1}
    live = [id for state, id in jobs.items() if state not in TERMINAL]
    assert sorted(await left(scene.store)) == sorted(live)
    assert await counts(scene.store) == {"running": 1, "cancelling": 1, "delayed": 1, "ready": 1}


async def test_a_pruned_job_is_not_there_by_any_way(scene: Scene, backend: Backend) -> None:
    attempt = await scene.running()
    said = LogEntry(attempt.id, attempt.token, 1, LogKind.TEXT, b"hello")
    await scene.store.log([said])
    await scene.finish(done(attempt))
    kept = await scene.running()
    await scene.store.log([LogEntry(kept.id, kept.token, 1, LogKind.TEXT, b"hello")])
    assert await prune(scene.store, AT_ONCE) == {S.SUCCEEDED: 1}
    assert await scene.store.job(attempt.id) is None
    assert await scene.store.job(attempt.number) is None
    assert await scene.store.ended([attempt.id]) == []
    assert await backend.logged() == 1


async def test_a_pruned_id_may_be_submitted_again_as_a_new_job(scene: Scene) -> None:
    job = a_job()
    first = await scene.ended(Succeeded, job)
    await prune(scene.store, AT_ONCE)
    [answer] = await scene.submit(job)
    assert isinstance(answer, Submitted)
    assert answer.number > first.number
    assert await scene.state(job.id) is S.READY
    assert await counts(scene.store) == {"ready": 1}


async def test_lanes_and_queues_stay(scene: Scene) -> None:
    await succeeded(scene, 1)
    lanes = await scene.store.lanes()
    await prune(scene.store, AT_ONCE)
    assert await scene.store.lanes() == lanes != []
    [queue] = await scene.store.queues()
    assert (queue.name, queue.counts) == ("default", {})


async def test_the_age_counts_from_the_end(scene: Scene, backend: Backend) -> None:
    """A job that was accepted long ago and has just ended is as young as any."""
    running = await scene.running()
    [old] = await succeeded(scene, 1)
    await backend.pass_time(2 * DAY_S)
    await scene.finish(done(running))
    kept = Retention(seconds={S.SUCCEEDED: DAY_S})
    assert await prune(scene.store, kept) == {S.SUCCEEDED: 1}
    assert await scene.store.job(old) is None
    assert await left(scene.store) == [running.id]


async def test_each_state_has_its_own_age(scene: Scene, backend: Backend) -> None:
    failed = (await scene.ended(Failed)).id
    await succeeded(scene, 2)
    await backend.pass_time(2 * DAY_S)
    kept = Retention(seconds={S.SUCCEEDED: DAY_S, S.FAILED: 3 * DAY_S})
    assert await prune(scene.store, kept) == {S.SUCCEEDED: 2}
    assert await left(scene.store) == [failed]
    await backend.pass_time(2 * DAY_S)
    assert await prune(scene.store, kept) == {S.FAILED: 1}


async def test_a_state_without_a_bound_is_kept(scene: Scene) -> None:
    jobs = await one_of_each(scene)
    assert await prune(scene.store, Retention(seconds={S.FAILED: 0.0})) == {S.FAILED: 1}
    assert await prune(scene.store, Retention()) == {}
    assert jobs[S.FAILED] not in await left(scene.store)
    assert len(await left(scene.store)) == len(jobs) - 1


async def test_at_most_so_many_of_a_state_are_kept_the_newest(scene: Scene) -> None:
    failed = (await scene.ended(Failed)).id
    jobs = await succeeded(scene, 5)
    assert await prune(scene.store, Retention(most={S.SUCCEEDED: 2})) == {S.SUCCEEDED: 3}
    assert await left(scene.store) == [failed, *jobs[3:]]
    assert await prune(scene.store, Retention(most={S.SUCCEEDED: 2, S.FAILED: 1})) == {}


async def test_either_bound_is_enough(scene: Scene, backend: Backend) -> None:
    old = await succeeded(scene, 3)
    await backend.pass_time(2 * DAY_S)
    young = await succeeded(scene, 3)
    kept = Retention(seconds={S.SUCCEEDED: DAY_S}, most={S.SUCCEEDED: 2})
    assert await prune(scene.store, kept) == {S.SUCCEEDED: len(old) + 1}
    assert await left(scene.store) == young[1:]


@pytest.mark.parametrize("kept", [AT_ONCE, Retention(most=dict.fromkeys(TERMINAL, 1))])
async def test_one_call_looks_at_no_more_than_it_may(scene: Scene, kept: Retention) -> None:
    jobs = await succeeded(scene, 5)
    first = await scene.store.prune(kept, most=2)
    assert (first.removed, first.done) == ({S.SUCCEEDED: 2}, False)
    assert await left(scene.store) == jobs[2:]
    second = await scene.store.prune(kept, after=first.up_to, most=2)
    assert second.removed == {S.SUCCEEDED: 2}
    assert await prune(scene.store, kept, most=2) == ({S.SUCCEEDED: 1} if kept is AT_ONCE else {})


async def test_what_ended_behind_a_walk_is_met_by_the_next(scene: Scene) -> None:
    running = await scene.running()
    await succeeded(scene, 2)
    step = await scene.store.prune(AT_ONCE)
    await scene.finish(done(running))
    assert (await scene.store.prune(AT_ONCE, after=step.up_to)).removed == {}
    assert await prune(scene.store, AT_ONCE) == {S.SUCCEEDED: 1}


@pytest.mark.parametrize("most", [1, 2, 1000])
async def test_a_dry_run_tells_what_would_go_and_removes_nothing(scene: Scene, most: int) -> None:
    jobs = await one_of_each(scene)
    would = await prune(scene.store, AT_ONCE, most=most, dry_run=True)
    assert would == {S.SUCCEEDED: 1, S.FAILED: 1, S.CANCELLED: 1}
    assert len(await left(scene.store)) == len(jobs)
    assert await prune(scene.store, AT_ONCE) == would


async def test_a_repeat_after_a_lost_answer_removes_nothing_more(scene: Scene) -> None:
    jobs = await succeeded(scene, 4)
    faulty = FaultyStore(scene.store, scripted(("prune", Fault.AFTER)))
    kept = Retention(most={S.SUCCEEDED: 2})
    with pytest.raises(StoreUnavailable):
        await faulty.prune(kept)
    assert await prune(faulty, kept) == {}
    assert await left(scene.store) == jobs[2:]
    assert await counts(scene.store) == {"succeeded": 2}


@pytest.mark.parametrize("kept", [AT_ONCE, Retention(most={S.SUCCEEDED: 3})])
async def test_several_at_once_remove_no_more_than_one(
    scene: Scene, backend: Backend, kept: Retention
) -> None:
    """Wherever each of them has come to, and the counts are right afterwards."""
    jobs = await succeeded(scene, 40)
    numbers = [(await scene.job(jobs[place])).number for place in (0, 10, 20)]

    async def by(after: int) -> int:
        async with backend.opened() as other:
            pruned = await other.prune(kept, after=after, most=30)
        return sum(pruned.removed.values())

    removed = sum(await asyncio.gather(*map(by, numbers)))
    rest = await left(scene.store)
    assert len(rest) == len(jobs) - removed >= (0 if kept is AT_ONCE else 3)
    assert await counts(scene.store) == ({"succeeded": len(rest)} if rest else {})


async def test_claims_go_on_while_jobs_are_pruned(scene: Scene, backend: Backend) -> None:
    await succeeded(scene, 100)
    waiting = await scene.accepted(*some_jobs(20))
    slot = await scene.attend()

    async def work() -> list[int]:
        taken: list[int] = []
        while len(taken) < len(waiting):
            claimed = await scene.claim(slot, most=2)
            taken += [one.number for one in claimed]
            await scene.finish(*map(done, claimed))
        return taken

    async with backend.opened() as other:
        taken, _ = await asyncio.gather(work(), prune(other, AT_ONCE, most=10))
    assert taken == waiting
    await prune(scene.store, AT_ONCE)
    assert await left(scene.store) == []
    assert await counts(scene.store) == {}


async def test_a_late_end_of_a_pruned_job_is_stale(scene: Scene) -> None:
    attempt = await scene.ended(Succeeded)
    await prune(scene.store, AT_ONCE)
    [answer] = await scene.finish(done(attempt))
    assert answer.verdict.value == "stale"
    await scene.store.log([LogEntry(attempt.id, attempt.token, 1, LogKind.TEXT, b"late")])
    assert await left(scene.store) == []


# workers


async def lost(scene: Scene, number: int) -> Sequence[UUID]:
    """Workers that were declared lost."""
    slots = [await scene.attend() for _ in range(number)]
    beats = {slot.worker: Stats() for slot in slots}
    await scene.store.beat(scene.dispatcher, beats)
    for slot in slots:
        await scene.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=3)
    return list(beats)


async def test_workers_that_ended_long_ago_are_forgotten(scene: Scene, backend: Backend) -> None:
    old = await lost(scene, 3)
    await backend.pass_time(2 * DAY_S)
    lately = await lost(scene, 1)
    alive = await scene.attend()
    assert await scene.store.forget_workers(DAY_S, most=2) == 2
    assert await scene.store.forget_workers(DAY_S) == 1
    assert await scene.store.forget_workers(DAY_S) == 0
    shown = {worker.info.id for worker in await scene.store.workers()}
    assert shown == {*lately, alive.worker}
    dispatcher = scene.dispatcher
    assert isinstance(await scene.store.attend(dispatcher, a_worker(id=lately[0])), Gone)
    assert isinstance(await scene.store.attend(dispatcher, a_worker(id=old[0])), Attended)


async def test_a_worker_that_still_owns_a_job_is_not_forgotten(
    scene: Scene, backend: Backend
) -> None:
    """Its harvest died half-way: the sweep that ends it comes first."""
    attempt = await scene.running()
    await backend.half_harvest(attempt.worker)
    assert await scene.store.forget_workers(0.0) == 0
    await scene.store.sweep(3)
    assert await scene.state(attempt.id) is S.READY
