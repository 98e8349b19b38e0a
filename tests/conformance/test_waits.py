"""How long jobs waited for what: told for each job, and added up for each key, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.effects import FARTHEST_S
from longshore.model.attempt import Attempt
from longshore.model.ends import Failed, Retried
from longshore.model.job import Job, JobState, Submission
from longshore.model.limits import JobLimit
from longshore.model.waited import MOST_STAYS, WaitCause
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_group, a_job, done

S, C = JobState, WaitCause
ONE = JobLimit("tenant=a", 1)
OTHER = JobLimit("region=eu", 1)


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


def limited(number: int, *limits: JobLimit) -> list[Submission]:
    return [a_job(limits=limits) for _ in range(number)]


def causes(job: Job) -> set[WaitCause]:
    return {one.cause for one in job.waited}


def for_key(job: Job, key: str = ONE.key) -> float:
    return sum(one.s for one in job.waited if one.key == key)


def before_it_began(job: Job) -> float:
    """How long a job that was not begun twice was there before its attempt began."""
    began = next(one.at for one in job.history if one.state is S.RUNNING)
    return (max(began, job.started_at or began) - job.history[0].at).total_seconds()


async def assert_added_up(scene: Scene, jobs: Sequence[UUID], key: str = ONE.key) -> int:
    """The sum of a key is that of its jobs; answers how often jobs waited for it."""
    view = await scene.store.limit_key(key)
    each = [for_key(await scene.job(one), key) for one in jobs]
    assert view.waited_s == pytest.approx(sum(each), abs=1e-5)
    return view.stays


async def test_a_job_tells_how_long_it_waited_for_a_key(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(3, ONE)
    await scene.accepted(*jobs)
    [first] = await scene.claim(slot, most=3)
    waiting = await scene.job(jobs[1].id)
    assert [(one.cause, one.key) for one in waiting.waited if one.since] == [(C.LIMIT, ONE.key)]
    assert waiting == await scene.job(jobs[1].id), "it changes only when something happens"
    view = await scene.store.limit_key(ONE.key)
    assert (view.waiting, view.stays, view.waited_s) == (2, 0, 0)
    assert view.waiting_s > 0
    await scene.finish(done(first))
    [second] = await scene.claim(slot, most=3)
    await scene.finish(done(second))
    over = await scene.job(second.id)
    assert causes(over) <= {C.LIMIT, C.SLOT}
    assert 0 < for_key(over) <= before_it_began(over)
    assert sum(one.s for one in over.waited) == pytest.approx(before_it_began(over), abs=1e-5)
    assert causes(await scene.job(first.id)) <= {C.SLOT}


async def test_a_key_has_the_sum_of_its_jobs(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = [one.id for one in limited(1, ONE)]
    submitted = [a_job(id=jobs[0], limits=(ONE,)), *limited(4, ONE)]
    await scene.accepted(*submitted)
    ran = 0
    while claimed := await scene.claim(slot, most=5):
        await scene.finish(*map(done, claimed))
        ran += len(claimed)
    assert ran == 5
    stays = await assert_added_up(scene, [one.id for one in submitted])
    assert stays >= 4


async def test_a_repeat_adds_nothing_twice(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(2, ONE)
    await scene.accepted(*jobs)
    [first] = await scene.claim(slot, most=2)
    for _ in range(3):
        await scene.pump([done(first)])
        await scene.store.open_limits()
        await scene.pump([])
    [second] = await scene.claim(slot, most=2)
    await scene.finish(done(second))
    assert await assert_added_up(scene, [job.id for job in jobs]) == 1
    await scene.accepted(*jobs)
    assert await assert_added_up(scene, [job.id for job in jobs]) == 1


async def test_a_claim_that_looks_again_begins_no_new_stay(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(2, ONE)
    await scene.accepted(*jobs)
    await scene.claim(slot, most=2)
    [since] = [one.since for one in (await scene.job(jobs[1].id)).waited if one.since]
    for _ in range(3):
        await scene.claim(slot, most=2)
        await scene.store.open_limits()
    [still] = [one.since for one in (await scene.job(jobs[1].id)).waited if one.since]
    assert still == since


async def test_a_job_that_is_cancelled_behind_a_key_counts(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(3, ONE)
    await scene.accepted(*jobs)
    await scene.claim(slot, most=3)
    await scene.store.cancel([jobs[1].id])
    await scene.store.cancel([jobs[1].id])
    cancelled = await scene.job(jobs[1].id)
    assert for_key(cancelled) > 0
    assert not any(one.since for one in cancelled.waited)
    assert await assert_added_up(scene, [job.id for job in jobs]) == 1
    assert (await scene.store.limit_key(ONE.key)).waiting == 1


async def test_a_retry_waits_anew_and_its_new_round_counts_alone(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(2, ONE)
    await scene.accepted(*jobs)
    [first] = await scene.claim(slot, most=2)
    await scene.store.cancel([jobs[1].id])
    [(_, before)] = [(one.id, for_key(one)) for one in [await scene.job(jobs[1].id)]]
    await scene.store.retry([jobs[1].id])
    assert for_key(await scene.job(jobs[1].id)) == 0
    assert await scene.claim(slot, most=2) == []
    assert (await scene.store.limit_key(ONE.key)).waiting == 1, "a claim puts it behind its key"
    await scene.finish(done(first))
    [again] = await scene.claim(slot, most=2)
    await scene.finish(done(again))
    view = await scene.store.limit_key(ONE.key)
    after = for_key(await scene.job(jobs[1].id))
    assert view.waited_s == pytest.approx(before + after, abs=1e-5)
    assert view.stays == 2


async def test_a_job_tells_which_of_its_keys_it_waited_for(scene: Scene) -> None:
    slot = await scene.attend()
    a, b, both = a_job(limits=(ONE,)), a_job(limits=(OTHER,)), a_job(limits=(ONE, OTHER))
    await scene.accepted(a, b, both)
    first, second = await scene.claim(slot, most=3)
    await scene.finish(done(first))
    assert await scene.claim(slot, most=3) == []
    await scene.finish(done(second))
    [third] = await scene.claim(slot, most=3)
    await scene.finish(done(third))
    over = await scene.job(both.id)
    assert {one.key for one in over.waited if one.cause is C.LIMIT} == {ONE.key, OTHER.key}
    for key in (ONE.key, OTHER.key):
        assert await assert_added_up(scene, [both.id], key) == 1


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"], indirect=True)
async def test_only_the_newest_stays_are_kept_and_older_time_is_unknown(scene: Scene) -> None:
    slot = await scene.attend()
    waiting = a_job(limits=(ONE,))
    await scene.accepted(waiting)
    for _ in range(MOST_STAYS + 1):
        first = a_job(limits=(ONE,), priority=1)
        await scene.accepted(first)
        [held] = await scene.claim(slot, most=2)
        assert held.id == first.id
        await scene.pump([done(held)])
    view = await scene.store.limit_key(ONE.key)
    assert view.stays == MOST_STAYS + 1
    over = await scene.job(waiting.id)
    assert C.UNKNOWN in causes(over)
    assert 0 < for_key(over) < view.waited_s


async def test_a_paused_queue_is_told(scene: Scene) -> None:
    slot = await scene.attend()
    job = a_job()
    await scene.store.set_paused("default", True)
    await scene.store.set_paused("default", True)
    await scene.accepted(job)
    paused = await scene.job(job.id)
    assert [one.cause for one in paused.waited if one.since] == [C.PAUSED_QUEUE]
    await scene.store.set_paused("default", False)
    await scene.claim(slot)
    begun = await scene.job(job.id)
    assert causes(begun) == {C.PAUSED_QUEUE, C.SLOT}
    assert sum(one.s for one in begun.waited) == pytest.approx(before_it_began(begun), abs=1e-5)
    after = a_job()
    await scene.accepted(after)
    await scene.claim(slot)
    assert causes(await scene.job(after.id)) == {C.SLOT}, "the pause was over before it came"


async def test_a_paused_group_is_told_and_ends_a_stay(scene: Scene) -> None:
    slot = await scene.attend()
    [holder] = limited(1, ONE)
    await scene.accepted(holder)
    [held] = await scene.claim(slot)
    jobs = {"b": a_job(limits=(ONE,))}
    group = await scene.submit_group(a_group({"b": ""}, jobs=jobs))
    assert await group.claim() == set()
    [job] = [one.job for one in (await group.look()).values()]
    assert (await scene.store.limit_key(ONE.key)).waiting == 1
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert (await scene.store.limit_key(ONE.key)).waiting == 0
    assert await assert_added_up(scene, [job]) == 1
    await scene.store.pause_group(group.id, False)
    await group.settle()
    await scene.finish(done(held))
    assert await group.claim() == {"b"}
    over = await scene.job(job)
    assert {C.LIMIT, C.PAUSED_GROUP} <= causes(over)
    assert sum(one.s for one in over.waited) == pytest.approx(before_it_began(over), abs=1e-5)
    await assert_added_up(scene, [job])


async def test_a_delay_and_a_backoff_are_told(scene: Scene) -> None:
    later = a_job(delay_s=FARTHEST_S / 1e6)
    await scene.accepted(later)
    assert [one.cause for one in (await scene.job(later.id)).waited if one.since] == [C.DELAY]
    attempt = await scene.running()
    await scene.finish(done(attempt, Retried, delay_s=1000))
    tried = await scene.job(attempt.id)
    assert [one.cause for one in tried.waited if one.since] == [C.BACKOFF]


async def test_dependencies_are_told(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    [b] = [one.job for key, one in (await group.look()).items() if key == "b"]
    await group.claim()
    assert [one.cause for one in (await scene.job(b)).waited] == [C.DEPENDENCIES]
    await group.end("a")
    await group.claim()
    assert C.DEPENDENCIES in causes(await scene.job(b))


async def test_the_sum_of_a_key_is_kept_when_nothing_holds_it(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = limited(2, ONE)
    await scene.accepted(*jobs)
    [first] = await scene.claim(slot, most=2)
    await scene.store.cancel([jobs[1].id])
    await scene.finish(done(first, Failed))
    before = await scene.store.limit_key(ONE.key)
    for _ in range(2):
        await scene.store.forget_lanes()
    assert await scene.store.limit_key(ONE.key) == structs.replace(before, held=0)
    assert before.stays == 1


async def test_whoever_claims_ends_and_cancels_the_sum_is_that_of_the_jobs(
    scene: Scene, rival: Scene
) -> None:
    jobs = [a_job(limits=(ONE, OTHER) if n % 3 else (OTHER, ONE)) for n in range(9)]
    await scene.accepted(*jobs)

    async def work(one: Scene) -> None:
        slot = await one.attend()
        idle = 0
        while idle < 3:
            claimed: list[Attempt] = await one.claim(slot, most=2)
            idle = 0 if claimed else idle + 1
            await one.store.open_limits()
            await one.finish(*map(done, claimed))

    async def cancel() -> None:
        for job in jobs[::4]:
            await rival.store.cancel([job.id])

    await asyncio.gather(work(scene), work(rival), cancel())
    await work(scene)
    assert all([(await scene.job(job.id)).ended_at for job in jobs])
    stays = 0
    for key in (ONE.key, OTHER.key):
        stays += await assert_added_up(scene, [job.id for job in jobs], key)
    assert stays


async def test_a_lane_tells_how_many_of_its_jobs_are_behind_keys(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*limited(3, ONE), a_job(kind="other"))
    await scene.claim(slot, most=3)
    behind = {one.lane.kind: one.behind for one in await scene.store.depths()}
    assert behind == {"work": 2, "other": 0}


async def test_a_queue_adds_up_what_it_is_told(scene: Scene) -> None:
    await scene.accepted(a_job(), a_job(queue="other"))
    for _ in range(2):
        waits = {("default", "limit"): 1.5, ("default", "slot"): 2.0, ("gone", "slot"): 1.0}
        await scene.store.add_queue_waits(waits)
    await scene.store.add_queue_waits({})
    waited = {one.name: one.waited for one in await scene.store.queues()}
    assert waited == {"default": {"limit": 3.0, "slot": 4.0}, "other": {}}
