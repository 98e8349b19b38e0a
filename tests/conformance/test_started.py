"""Jobs that begin to run in the very transaction that accepts them."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.job import JobState, Submitted
from longshore.model.worker import SessionKey
from longshore.testing.builders import Scene, a_claim, a_job, done, lanes_of, new_id

READY, RUNNING, DELAYED = JobState.READY, JobState.RUNNING, JobState.DELAYED


@pytest.mark.parametrize("lane", ["new", "known"])
async def test_a_started_job_runs_at_once_as_if_it_had_been_claimed(
    scene: Scene, lane: str
) -> None:
    slot = await scene.attend()
    job = a_job(timeout_s=60)
    if lane == "known":
        await scene.accepted(a_job())
    pumped = await scene.pump(submits=[job], slots=[slot])
    [attempt] = pumped.started
    assert isinstance(pumped.submitted[0], Submitted)
    assert (attempt.id, attempt.number) == (job.id, pumped.submitted[0].number)
    assert (attempt.kind, attempt.args, attempt.options) == (job.kind, job.args, job.options)
    assert (attempt.worker, attempt.session) == (slot.worker, slot.session)
    assert (attempt.attempt, attempt.failures, attempt.crashes) == (1, 0, 0)
    assert not pumped.ready
    assert not pumped.taken
    assert await scene.store.placed([slot]) == [attempt]
    shown = await scene.job(job.id)
    assert (shown.state, shown.worker, shown.token) == (RUNNING, slot.worker, attempt.token)
    assert [(entry.state, entry.by) for entry in shown.history] == [
        (READY, ""),
        (RUNNING, str(slot.worker)),
    ]
    assert shown.started_at == shown.created_at
    await scene.finish(done(attempt))
    assert await scene.state(job.id) is JobState.SUCCEEDED


async def test_a_started_job_is_counted_listed_and_given_back_like_any_other(scene: Scene) -> None:
    slot = await scene.attend()
    [attempt] = (await scene.pump(submits=[a_job()], slots=[slot])).started
    [queue] = await scene.store.queues()
    assert {state: n for state, n in queue.counts.items() if n} == {RUNNING: 1}
    assert await scene.store.placed([slot]) == [attempt]
    harvested = await scene.store.harvest(
        slot.worker, slot.session, "gone", crash=True, crash_limit=3
    )
    assert (harvested.lost, harvested.requeued) == (True, 1)
    assert await scene.state(attempt.id) is READY


async def test_slot_that_may_not_have_a_job_leave_it_ready(scene: Scene) -> None:
    slot, draining = await scene.attend(), await scene.attend()
    lost = await scene.attend()
    stranger = await Scene(scene.store).attend()
    await scene.store.set_draining(draining.worker, True)
    await scene.store.harvest(lost.worker, lost.session, "gone", crash=False, crash_limit=3)
    late = SessionKey(slot.worker, slot.session - 1)
    slots = [draining, lost, stranger, late, SessionKey(new_id(), 1), None]
    jobs = [a_job() for _ in slots]
    pumped = await scene.pump(submits=jobs, slots=slots)
    assert pumped.started == []
    assert set(pumped.ready) == set(lanes_of(jobs))
    assert await scene.states([job.id for job in jobs]) == [READY] * len(jobs)
    assert len(await scene.claim(slot, *lanes_of(jobs), most=9)) == len(jobs)


async def test_delayed_jobs_and_jobs_of_paused_queues_take_no_slot(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.set_paused("held", True)
    jobs = [a_job(delay_s=60.0), a_job(queue="held"), a_job()]
    pumped = await scene.pump(submits=jobs, slots=[slot] * 3)
    assert [one.id for one in pumped.started] == [jobs[2].id]
    assert await scene.states([job.id for job in jobs]) == [DELAYED, READY, RUNNING]


async def test_a_job_by_itself_takes_a_slot_as_one_of_many_does(scene: Scene) -> None:
    slot, draining = await scene.attend(), await scene.attend()
    await scene.accepted(a_job(), a_job(queue="held"))
    await scene.store.set_draining(draining.worker, True)
    await scene.store.set_paused("held", True)
    late, stranger = SessionKey(slot.worker, slot.session - 1), await Scene(scene.store).attend()
    for unfit in (draining, late, stranger, SessionKey(new_id(), 1), None):
        job = a_job()
        pumped = await scene.pump(submits=[job], slots=[unfit])
        assert pumped.started == []
        assert pumped.ready == dict.fromkeys(lanes_of([job]), 1)
        assert await scene.state(job.id) is READY
    for job, state in ((a_job(delay_s=60.0), DELAYED), (a_job(queue="held"), READY)):
        assert (await scene.pump(submits=[job], slots=[slot])).claimed == []
        assert await scene.state(job.id) is state
    job, rival = a_job(unique_key="one", priority=7), a_job(unique_key="one")
    for one, begun in ((job, [job.id]), (job, []), (rival, [])):
        pumped = await scene.pump(submits=[one], slots=[slot])
        assert [attempt.id for attempt in pumped.started] == begun
        assert [answer.id for answer in pumped.submitted] == [job.id]
    assert (await scene.job(job.id)).state is RUNNING
    queues = {queue.name: queue.counts for queue in await scene.store.queues()}
    assert {s: n for s, n in queues["default"].items() if n} == {READY: 6, DELAYED: 1, RUNNING: 1}
    assert {s: n for s, n in queues["held"].items() if n} == {READY: 2}


async def test_a_job_submitted_again_does_not_begin_again(scene: Scene) -> None:
    slot = await scene.attend()
    job, keyed = a_job(), a_job(unique_key="one")
    first = await scene.pump(submits=[job, keyed], slots=[slot, slot])
    assert len(first.started) == 2
    rival = a_job(unique_key="one")
    again = await scene.pump(submits=[job, rival, keyed, job], slots=[slot] * 4)
    assert again.started == []
    assert [answer.id for answer in again.submitted] == [job.id, keyed.id, keyed.id, job.id]
    assert (await scene.job(job.id)).token == first.started[0].token


async def test_of_one_id_twice_in_a_batch_the_first_decides(scene: Scene) -> None:
    slot = await scene.attend()
    job = a_job()
    pumped = await scene.pump(submits=[job, job], slots=[None, slot])
    assert pumped.started == []
    assert await scene.state(job.id) is READY


async def test_a_slot_is_not_given_to_another_job_of_the_same_id(scene: Scene) -> None:
    """The first cannot be stored; its slot may be one that does not serve the second."""
    unfit, fit = await scene.attend(), await scene.attend()
    job = a_job()
    unsound = structs.replace(job, kind="no\0")
    pumped = await scene.pump(submits=[unsound, job], slots=[unfit, fit])
    assert [(one.id, one.worker) for one in pumped.started] == [(job.id, fit.worker)]


async def test_started_jobs_and_claims_share_a_transaction(scene: Scene) -> None:
    slot = await scene.attend(kinds=("work", "rest"))
    waiting = a_job(kind="rest")
    await scene.accepted(waiting)
    job = a_job()
    claims = [a_claim([slot] * 2, *lanes_of([waiting]))]
    pumped = await scene.pump(submits=[job], claims=claims, slots=[slot])
    [started], [claimed] = pumped.started, pumped.claimed
    assert (started.id, claimed.id) == (job.id, waiting.id)
    assert started.token < claimed.token
    assert sum(pumped.taken.values()) == 1
    assert set(pumped.taken) == set(lanes_of([waiting]))
