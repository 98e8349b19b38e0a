"""What a submit does when its key is full, and debounced jobs: one transaction decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from longshore.model.batch import BatchResult
from longshore.model.ends import Cancelled
from longshore.model.job import Job, JobState, Refused, Submission, Submitted
from longshore.model.limits import Debounced, Full, JobLimit, LimitRule, Rate
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, done

READY, RUNNING, DELAYED = JobState.READY, JobState.RUNNING, JobState.DELAYED
SKIPPED, CANCELLED, CANCELLING = JobState.SKIPPED, JobState.CANCELLED, JobState.CANCELLING
ROUNDS = 10


def some(number: int, full: Full, most: int = 2, key: str = "t=a") -> list[Submission]:
    return [a_job(limits=(JobLimit(key, most, full=full),)) for _ in range(number)]


async def states(scene: Scene, jobs: list[Submission]) -> list[JobState]:
    return [(await whole(scene, job.id)).state for job in jobs]


async def whole(scene: Scene, id: UUID) -> Job:
    job = await scene.store.job(id)
    assert job is not None
    return job


async def last_words(scene: Scene, job: Submission) -> str:
    return (await whole(scene, job.id)).history[-1].info


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def test_the_newest_is_dropped_when_its_key_is_full(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = some(3, Full.DROP_NEWEST)
    first = await scene.pump(submits=jobs[:2])
    assert first.ended == []
    await scene.claim(slot, most=1)
    pumped = await scene.pump(submits=jobs[2:])
    assert [(one.id, one.state) for one in pumped.ended] == [(jobs[2].id, SKIPPED)]
    assert isinstance(pumped.submitted[0], Submitted), "it is accepted, and has an end"
    assert not any(pumped.ready.values()), "what was dropped is not ready"
    assert await states(scene, jobs) == [RUNNING, READY, SKIPPED]
    assert await last_words(scene, jobs[2]) == "t=a is at 2 of 2"


async def test_of_jobs_that_come_together_the_last_are_dropped(scene: Scene) -> None:
    jobs = some(5, Full.DROP_NEWEST)
    other = some(1, Full.DROP_NEWEST, key="t=b")
    pumped = await scene.pump(submits=[*jobs, *other])
    assert await states(scene, jobs) == [READY, READY, SKIPPED, SKIPPED, SKIPPED]
    assert await states(scene, other) == [READY]
    assert sum(pumped.ready.values()) == 3


async def test_a_repeated_submit_changes_nothing(scene: Scene) -> None:
    for full in (Full.DROP_NEWEST, Full.CANCEL_OLDEST, Full.REPLACE_WAITING):
        jobs = some(3, full, key=f"t={full}")
        first = await scene.pump(submits=jobs)
        before = await states(scene, jobs)
        again = await scene.pump(submits=jobs)
        assert again.submitted == first.submitted
        assert (again.ended, again.stopping) == ([], [])
        assert await states(scene, jobs) == before


async def test_an_end_makes_place_in_its_own_batch(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = some(2, Full.DROP_NEWEST, most=1)
    await scene.accepted(jobs[0])
    [one] = await scene.claim(slot)
    await scene.pump([done(one)], jobs[1:])
    assert await states(scene, jobs) == [JobState.SUCCEEDED, READY]


async def test_the_oldest_is_cancelled_also_if_it_runs(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = some(4, Full.CANCEL_OLDEST)
    await scene.accepted(*jobs[:2])
    [one] = await scene.claim(slot, most=1)
    pumped = await scene.pump(submits=[jobs[2]])
    assert (pumped.stopping, pumped.ended) == ([jobs[0].id], [])
    assert await last_words(scene, jobs[0]) == f"replaced by job {number(pumped)}"
    assert [job.id for job in await scene.store.cancelling(scene.dispatcher)] == [jobs[0].id]
    pumped = await scene.pump(submits=[jobs[3]])
    assert [one.id for one in pumped.ended] == [jobs[1].id], "the one being cancelled is gone"
    assert await states(scene, jobs) == [CANCELLING, CANCELLED, READY, READY]
    first = await scene.claim(slot, most=5)
    assert len(first) == 1, "the slot is taken until the old attempt is over"
    await scene.finish(Cancelled(one.id, one.token))
    assert len(await scene.claim(slot, most=5)) == 1


def number(pumped: BatchResult) -> int:
    [answer] = pumped.submitted
    assert not isinstance(answer, Refused)
    return answer.number


async def test_only_those_that_wait_are_replaced(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = some(4, Full.REPLACE_WAITING, most=1)
    await scene.accepted(jobs[0])
    await scene.claim(slot)
    for newest in jobs[1:]:
        await scene.accepted(newest)
    assert await states(scene, jobs) == [RUNNING, CANCELLED, CANCELLED, READY]


async def test_no_more_are_replaced_than_need_be(scene: Scene) -> None:
    slot = await scene.attend()
    jobs = some(4, Full.REPLACE_WAITING, most=3)
    await scene.accepted(*jobs[:3])
    await scene.claim(slot)
    await scene.accepted(jobs[3])
    assert await states(scene, jobs) == [RUNNING, CANCELLED, READY, READY]


async def test_a_delayed_job_is_live_too(scene: Scene) -> None:
    limit = JobLimit("t=a", 1, full=Full.DROP_NEWEST)
    jobs = [a_job(limits=(limit,), delay_s=60.0), a_job(limits=(limit,))]
    await scene.accepted(*jobs)
    assert await states(scene, jobs) == [DELAYED, SKIPPED]


async def test_a_rule_says_when_a_key_is_full(scene: Scene) -> None:
    await scene.store.set_limit(LimitRule("t=*", 1))
    jobs = some(2, Full.DROP_NEWEST)
    await scene.accepted(*jobs)
    assert await states(scene, jobs) == [READY, SKIPPED]
    await scene.store.set_limit(LimitRule("t=*", rate=Rate(1, 60.0)))
    more = some(3, Full.DROP_NEWEST)
    await scene.accepted(*more)
    assert await states(scene, more) == [READY] * 3, "without a concurrency no key is full"


async def test_jobs_that_only_wait_for_the_key_are_let_be(scene: Scene) -> None:
    waiting = [a_job(limits=(JobLimit("t=a", 1),)) for _ in range(3)]
    await scene.accepted(*waiting)
    await scene.accepted(*some(2, Full.CANCEL_OLDEST, most=1))
    assert await states(scene, waiting) == [READY] * 3


async def test_a_job_that_was_dropped_can_be_retried(scene: Scene) -> None:
    jobs = some(2, Full.DROP_NEWEST, most=1)
    await scene.accepted(*jobs)
    await scene.store.retry([jobs[1].id])
    assert await states(scene, jobs) == [READY, READY]
    more = some(1, Full.DROP_NEWEST, most=2)
    await scene.accepted(*more)
    assert await last_words(scene, more[0]) == "t=a is at 2 of 2", "it counts again"


@pytest.mark.parametrize("full", [Full.DROP_NEWEST, Full.CANCEL_OLDEST, Full.REPLACE_WAITING])
async def test_submits_at_the_same_moment_come_one_after_the_other(
    scene: Scene, rival: Scene, full: Full
) -> None:
    for n in range(ROUNDS):
        key = f"{full}={n}"
        mine, theirs = some(3, full, key=key), some(3, full, key=key)
        await asyncio.gather(scene.pump(submits=mine), rival.pump(submits=theirs))
        found = await states(scene, [*mine, *theirs])
        assert found.count(READY) == 2, f"round {n}: {found}"


async def test_submits_and_ends_at_the_same_moment(scene: Scene, rival: Scene) -> None:
    """A submit wants to cancel the job that the other dispatcher ends: neither waits for long."""
    slot = await scene.attend()
    for n in range(ROUNDS):
        jobs = some(2, Full.CANCEL_OLDEST, most=1, key=f"t={n}")
        await scene.accepted(jobs[0])
        [one] = await scene.claim(slot)
        await asyncio.gather(scene.pump([done(one)]), rival.pump(submits=jobs[1:]))
        state = (await states(scene, jobs))[0]
        assert state in (JobState.SUCCEEDED, CANCELLING), f"round {n}: {state}"
        if state is CANCELLING:
            await scene.finish(Cancelled(one.id, one.token))
        [new] = await scene.claim(slot) or await scene.claim(slot)
        assert new.id == jobs[1].id
        await scene.finish(done(new))


# debounce


def debounced(
    wait_s: float = 60.0, max_wait_s: float | None = None, key: str = "d=1"
) -> Submission:
    return a_job(delay_s=wait_s, debounce=Debounced(key, wait_s, max_wait_s))


async def test_a_debounced_job_takes_the_place_of_the_one_before(scene: Scene) -> None:
    jobs = [debounced() for _ in range(3)]
    other = debounced(key="d=2")
    await scene.accepted(jobs[0], other)
    pumped = await scene.pump(submits=[jobs[1]])
    assert [(one.id, one.state) for one in pumped.ended] == [(jobs[0].id, CANCELLED)]
    assert await last_words(scene, jobs[0]) == f"replaced by job {number(pumped)}"
    await scene.accepted(jobs[2])
    assert await states(scene, [*jobs, other]) == [CANCELLED, CANCELLED, DELAYED, DELAYED]


async def test_a_debounced_job_is_due_after_its_wait(scene: Scene) -> None:
    job = debounced(60.0)
    await scene.accepted(job)
    found = await whole(scene, job.id)
    assert found.run_at is not None
    assert 59.9 < (found.run_at - found.created_at).total_seconds() < 60.1


async def test_a_debounce_ends_at_its_longest_wait(scene: Scene) -> None:
    jobs = [debounced(60.0, 90.0) for _ in range(3)]
    for job in jobs:
        await scene.accepted(job)
    first, last = await whole(scene, jobs[0].id), await whole(scene, jobs[2].id)
    assert last.run_at is not None
    assert (last.run_at - last.created_at).total_seconds() == pytest.approx(60.0, abs=0.1)
    late = debounced(120.0, 120.0)
    await scene.accepted(late)
    found = await whole(scene, late.id)
    assert found.run_at is not None
    waited_s = (found.run_at - first.created_at).total_seconds()
    assert waited_s == pytest.approx(90.0, abs=0.5), "counted from the first"


async def test_a_debounced_job_whose_time_has_come_is_not_replaced(scene: Scene) -> None:
    slot = await scene.attend()
    first, second = debounced(0.000001), debounced()
    await scene.accepted(first)
    await scene.store.promote()
    await scene.accepted(second)
    assert await states(scene, [first, second]) == [READY, DELAYED]
    assert [one.id for one in await scene.claim(slot, most=2)] == [first.id]


async def test_debounced_submits_at_the_same_moment(scene: Scene, rival: Scene) -> None:
    for n in range(ROUNDS):
        mine = [debounced(key=f"d={n}") for _ in range(2)]
        theirs = [debounced(key=f"d={n}") for _ in range(2)]
        await asyncio.gather(scene.pump(submits=mine), rival.pump(submits=theirs))
        found = await states(scene, [*mine, *theirs])
        assert (found.count(DELAYED), found.count(CANCELLED)) == (1, 3), f"round {n}"


async def test_debounced_jobs_may_have_limits_that_wait(scene: Scene) -> None:
    slot = await scene.attend()
    limit = JobLimit("t=a", 1)
    job = a_job(delay_s=0.000001, debounce=Debounced("d=1", 0.000001), limits=(limit,))
    await scene.accepted(job)
    await scene.store.promote()
    assert [one.id for one in await scene.claim(slot)] == [job.id]
    assert (await scene.store.limit_key("t=a")).held == 1
