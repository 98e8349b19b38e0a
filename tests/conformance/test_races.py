"""Races: two dispatchers do at the same moment what only one of them can, again and again.

Which of them wins is left to chance; that exactly one does, and that the store holds together
afterwards, is not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from longshore.model.ends import End, Failed, Retried, Succeeded
from longshore.model.job import CancelVerdict, JobState, Refused, RetryVerdict, Submitted, Verdict
from longshore.model.retention import Retention
from longshore.model.worker import Attended, Gone, SessionKey
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, a_worker, done, lane, some_jobs

ROUNDS = 12
S = JobState


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def test_claim_never_lands_on_a_worker_that_is_lost_meanwhile(
    scene: Scene, rival: Scene
) -> None:
    """G2: either the claim came first and the harvest freed it, or it got nothing."""
    for _ in range(ROUNDS):
        slot = await scene.attend()
        jobs = some_jobs(3, kind=f"kind {slot.worker}")
        await scene.accepted(*jobs)
        here = lane(kind=jobs[0].kind)
        claimed, harvested = await asyncio.gather(
            scene.claim(slot, here, most=3),
            rival.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=3),
        )
        assert harvested.lost
        assert harvested.requeued == len(claimed)
        assert await scene.states([job.id for job in jobs]) == [S.READY] * 3


async def test_claim_never_lands_on_a_worker_that_moves_meanwhile(
    scene: Scene, rival: Scene
) -> None:
    """G2: what the old dispatcher claimed in time is told to the new one; nothing in between."""
    for _ in range(ROUNDS):
        info = a_worker()
        slot = await scene.attend(info)
        job = a_job(kind=f"kind {slot.worker}")
        await scene.accepted(job)
        claimed, attended = await asyncio.gather(
            scene.claim(slot, lane(kind=job.kind)),
            rival.store.attend(rival.dispatcher, info),
        )
        assert isinstance(attended, Attended)
        assert [one.id for one in attended.placed] == [one.id for one in claimed]
        placed = await rival.store.placed([SessionKey(info.id, attended.session)])
        assert [one.id for one in placed] == [one.id for one in claimed]
        assert await scene.state(job.id) is (S.RUNNING if claimed else S.READY)


async def test_late_result_and_harvest_never_both_count(scene: Scene, rival: Scene) -> None:
    """G3: the job either ended with its result, or is ready for another attempt."""
    for _ in range(ROUNDS):
        attempt = await scene.running(a_job(kind=f"kind {scene.dispatcher}"))
        [finished], harvested = await asyncio.gather(
            scene.finish(done(attempt)),
            rival.store.harvest(attempt.worker, attempt.session, "", crash=True, crash_limit=3),
        )
        recorded = finished.verdict is Verdict.RECORDED
        assert recorded or finished.verdict is Verdict.STALE
        assert harvested.requeued == (0 if recorded else 1)
        assert await scene.state(attempt.id) is (S.SUCCEEDED if recorded else S.READY)
        await scene.store.cancel([attempt.id])


async def test_one_attempt_reported_to_two_dispatchers_counts_once(
    scene: Scene, rival: Scene
) -> None:
    """G3: its outcome and its outbox are recorded by one of them."""
    for _ in range(ROUNDS):
        attempt = await scene.running(a_job(kind=f"kind {scene.dispatcher}"))
        child = a_job(kind="child", delay_s=60)
        finish = done(attempt, outbox=[child])
        answers = await asyncio.gather(scene.finish(finish), rival.finish(finish))
        verdicts = sorted(answer.verdict for [answer] in answers)
        assert verdicts == [Verdict.ALREADY_RECORDED, Verdict.RECORDED]
        assert len((await scene.job(attempt.id)).history) == 3
        assert await scene.state(child.id) is S.DELAYED


async def test_cancel_and_claim_agree(scene: Scene, rival: Scene) -> None:
    """G3: a cancelled job does not run; one that runs is being cancelled."""
    slot = await scene.attend()
    for turn in range(ROUNDS):
        job = a_job(kind=f"kind {turn}")
        await scene.accepted(job)
        claimed, [(_, verdict)] = await asyncio.gather(
            scene.claim(slot, lane(kind=job.kind)), rival.store.cancel([job.id])
        )
        state = await scene.state(job.id)
        if claimed:
            assert (verdict, state) == (CancelVerdict.CANCELLING, S.CANCELLING)
        else:
            assert (verdict, state) == (CancelVerdict.CANCELLED, S.CANCELLED)


@pytest.mark.parametrize("outcome", [Succeeded, Failed, Retried])
async def test_cancel_and_end_agree(scene: Scene, rival: Scene, outcome: type[End]) -> None:
    """G3: whichever came second acted on what the other had made of the job."""
    states = []
    for turn in range(ROUNDS):
        attempt = await scene.running(a_job(kind=f"kind {turn}"))
        [finished], [(_, verdict)] = await asyncio.gather(
            scene.finish(done(attempt, outcome)), rival.store.cancel([attempt.id])
        )
        states.append(await scene.state(attempt.id))
        assert finished.verdict is Verdict.RECORDED
        if verdict is CancelVerdict.ALREADY_ENDED or outcome is Succeeded:
            ended = S.SUCCEEDED if outcome is Succeeded else S.FAILED
            assert (states[-1], outcome is Retried) == (ended, False)
        else:
            assert states[-1] is S.CANCELLED
    [queue] = await scene.store.queues()
    assert queue.counts == Counter(state.value for state in states)


async def test_retry_and_prune_agree(scene: Scene, rival: Scene) -> None:
    """Either the job has a new round, or it is gone and nothing was retried."""
    kept = Retention(seconds={S.FAILED: 0.0})
    left = 0
    for turn in range(ROUNDS):
        attempt = await scene.ended(Failed, a_job(kind=f"kind {turn}"))
        [(_, verdict)], pruned = await asyncio.gather(
            scene.store.retry([attempt.id]), rival.store.prune(kept)
        )
        found = await scene.store.job(attempt.id)
        if verdict is RetryVerdict.RETRIED:
            assert pruned.removed == {}
            assert found is not None
            assert found.state is S.READY
            left += 1
        else:
            assert (verdict, found) == (RetryVerdict.NOT_FOUND, None)
            assert pruned.removed == {S.FAILED: 1}
    queues = await scene.store.queues()
    assert sum(sum(queue.counts.values()) for queue in queues) == left


async def test_same_job_submitted_twice_at_once_is_one_job(scene: Scene, rival: Scene) -> None:
    """G3: a client that tries two dispatchers at once submits once."""
    for _ in range(ROUNDS):
        jobs = some_jobs(3)
        one, two = await asyncio.gather(scene.submit(*jobs), rival.submit(*reversed(jobs)))
        assert one == list(reversed(two))
        assert [answer.id for answer in one] == [job.id for job in jobs]


async def test_many_jobs_submitted_twice_at_once_are_all_accepted(
    scene: Scene, rival: Scene
) -> None:
    """In opposite orders, each transaction soon waits for what the other has."""
    jobs = some_jobs(500)
    one, two = await asyncio.gather(scene.submit(*jobs), rival.submit(*reversed(jobs)))
    assert one == list(reversed(two))
    assert [answer.id for answer in one] == [job.id for job in jobs]


async def test_unique_key_goes_to_one_of_two(scene: Scene, rival: Scene) -> None:
    for turn in range(ROUNDS):
        key = f"key {turn}"
        mine, theirs = a_job(unique_key=key), a_job(unique_key=key)
        [one], [two] = await asyncio.gather(scene.submit(mine), rival.submit(theirs))
        assert not isinstance(one, Refused)
        assert not isinstance(two, Refused)
        assert one.id == two.id
        assert sorted([one.existing, two.existing]) == [False, True]


async def test_unique_key_goes_to_a_retry_or_to_a_submit(scene: Scene, rival: Scene) -> None:
    for turn in range(ROUNDS):
        kind = f"kind {turn}"
        ended = await scene.ended(Failed, a_job(kind=kind, unique_key="u"))
        new = a_job(kind=kind, unique_key="u")
        [(_, verdict)], [answer] = await asyncio.gather(
            scene.store.retry([ended.id]), rival.submit(new)
        )
        assert isinstance(answer, Submitted)
        if verdict is RetryVerdict.RETRIED:
            assert (answer.id, answer.existing) == (ended.id, True)
        else:
            assert verdict is RetryVerdict.UNIQUE_KEY_TAKEN
            assert (answer.id, answer.existing) == (new.id, False)


async def test_jobs_come_due_once(scene: Scene, rival: Scene, backend: Backend) -> None:
    jobs = [a_job(delay_s=5) for _ in range(30)]
    await scene.accepted(*jobs)
    await backend.pass_time(10)
    promoted = await asyncio.gather(
        *(one.store.promote(7) for one in (scene, rival, scene, rival, scene, rival))
    )
    left = await scene.store.promote()
    assert sum(answer.count for answer in promoted) + left.count == 30
    for job in jobs:
        history = (await scene.job(job.id)).history
        assert [entry.state for entry in history] == [S.DELAYED, S.READY]


async def test_worker_is_attended_by_the_last_who_came(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        info = a_worker()
        one, two = await asyncio.gather(
            scene.store.attend(scene.dispatcher, info), rival.store.attend(rival.dispatcher, info)
        )
        assert isinstance(one, Attended)
        assert isinstance(two, Attended)
        assert sorted([one.session, two.session]) == [1, 2]
        last = scene.dispatcher if one.session == 2 else rival.dispatcher
        views = {view.info.id: view for view in await scene.store.workers()}
        assert (views[info.id].dispatcher, views[info.id].session) == (last, 2)


async def test_worker_is_lost_or_adopted_but_not_both(scene: Scene, rival: Scene) -> None:
    """G2, G8: whoever declares it lost does so for the session it knows."""
    for _ in range(ROUNDS):
        info = a_worker()
        slot = await scene.attend(info)
        harvested, attended = await asyncio.gather(
            scene.store.harvest(slot.worker, slot.session, "", crash=True, crash_limit=3),
            rival.store.attend(rival.dispatcher, info),
        )
        assert harvested.lost == isinstance(attended, Gone)


async def test_lane_that_is_new_to_two_is_stored_once(scene: Scene, rival: Scene) -> None:
    for turn in range(ROUNDS):
        kinds = [f"kind {turn} {part}" for part in range(5)]
        mine = [a_job(kind=kind) for kind in kinds]
        theirs = [a_job(kind=kind) for kind in reversed(kinds)]
        await asyncio.gather(scene.accepted(*mine), rival.accepted(*theirs))
    assert len(await scene.store.lanes()) == ROUNDS * 5
