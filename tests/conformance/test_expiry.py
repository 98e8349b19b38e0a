"""Expiry: a job that does not begin in time fails, and never begins after that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from longshore.core.why import why
from longshore.model.ends import Crashed, End, NotBegun, Released, Retried, Snoozed, Succeeded
from longshore.model.job import Ended, JobError, JobState, Reason, RetryVerdict
from longshore.ports import Promoted
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_claim, a_job, done, lane

S = JobState
EXPIRED = JobError(Reason.EXPIRED, "expired: no worker began it within 30 s")


async def test_job_that_nobody_takes_in_time_fails_once(scene: Scene, backend: Backend) -> None:
    """G3."""
    job = a_job(expires_s=30)
    await scene.accepted(job, a_job())
    assert await scene.store.expire() == []
    await backend.pass_time(31)
    assert await scene.store.expire() == [Ended(job.id, S.FAILED, error=EXPIRED)]
    assert await scene.store.expire() == []
    seen = await scene.job(job.id)
    assert (seen.state, seen.error, seen.attempt) == (S.FAILED, EXPIRED, 0)
    assert seen.ended_at is not None
    assert (seen.history[-1].state, seen.history[-1].info) == (S.FAILED, EXPIRED.message)
    assert await scene.store.ended([job.id]) == [Ended(job.id, S.FAILED, error=EXPIRED)]
    [queue] = await scene.store.queues()
    assert queue.counts == {"ready": 1, "failed": 1}


async def test_claim_passes_over_what_expired_before_any_duty_ends_it(
    scene: Scene, backend: Backend
) -> None:
    late = [a_job(expires_s=30, priority=5) for _ in range(20)]
    good = a_job(expires_s=60)
    await scene.accepted(*late, good, a_job(kind="other"))
    await backend.pass_time(31)
    slot = await scene.attend()
    assert [one.id for one in await scene.claim(slot, most=3)] == [good.id]
    assert await scene.claim(slot, most=3) == []
    assert len(await scene.store.expire()) == 20


async def test_attempt_says_how_long_it_has_to_begin(scene: Scene, backend: Backend) -> None:
    slot = await scene.attend()
    [started] = (await scene.pump(submits=[a_job(expires_s=30)], slots=[slot])).started
    assert started.begin_within_s == 30
    await scene.accepted(a_job(expires_s=30), a_job())
    await backend.pass_time(10)
    claimed, unbound = await scene.claim(slot, most=2)
    assert claimed.begin_within_s == pytest.approx(20, abs=5)
    assert unbound.begin_within_s is None
    placed = {one.id: one.begin_within_s for one in await scene.store.placed([slot])}
    assert placed[started.id] == pytest.approx(20, abs=5)
    assert placed[unbound.id] is None


async def test_job_that_runs_does_not_expire(scene: Scene, backend: Backend) -> None:
    attempt = await scene.running(a_job(expires_s=30))
    await backend.pass_time(31)
    assert await scene.store.expire() == []
    await scene.finish(done(attempt, Succeeded))
    seen = await scene.job(attempt.id)
    assert (seen.state, seen.deadline_at) == (S.SUCCEEDED, None)


@pytest.mark.parametrize("how", [Released, Retried, Snoozed, Crashed])
async def test_job_that_has_begun_has_met_its_deadline(
    scene: Scene, backend: Backend, how: type[End]
) -> None:
    slot = await scene.attend()
    attempt = await scene.running(a_job(expires_s=30), slot)
    await scene.finish(done(attempt, how))
    await backend.pass_time(31)
    await scene.store.promote()
    assert await scene.store.expire() == []
    [again] = await scene.claim(slot)
    assert (again.id, again.begin_within_s) == (attempt.id, None)
    # Nor does it have one if this attempt goes back before it began.
    await scene.finish(done(again, NotBegun))
    assert await scene.store.expire() == []
    assert len(await scene.claim(slot)) == 1


async def test_job_of_a_lost_worker_has_met_its_deadline(scene: Scene, backend: Backend) -> None:
    """Whether its body began there, nobody can know."""
    slot = await scene.attend()
    attempt = await scene.running(a_job(expires_s=30), slot)
    await scene.store.harvest(slot.worker, slot.session, "gone", crash=True, crash_limit=3)
    await backend.pass_time(31)
    assert await scene.store.expire() == []
    [again] = await scene.claim(await scene.attend())
    assert again.id == attempt.id


async def test_attempt_that_goes_back_before_it_began_keeps_the_deadline(
    scene: Scene, backend: Backend
) -> None:
    slot = await scene.attend()
    [first] = (await scene.pump(submits=[a_job(expires_s=30)], slots=[slot])).started
    second = await scene.running(a_job(expires_s=60), slot)
    await backend.pass_time(31)
    pumped = await scene.pump(
        [done(first, NotBegun), done(second, NotBegun)], claims=[a_claim([slot] * 2)]
    )
    assert [one.id for one in pumped.claimed] == [second.id]
    assert [one.id for one in await scene.store.expire()] == [first.id]
    seen = await scene.job(first.id)
    assert [entry.state for entry in seen.history] == [S.READY, S.FAILED]


async def test_deadline_of_a_delayed_job_counts_from_when_it_is_due(
    scene: Scene, backend: Backend
) -> None:
    job = a_job(delay_s=100, expires_s=30)
    at = a_job(run_at=datetime.now(UTC) + timedelta(seconds=100), expires_s=30)
    await scene.accepted(job, at)
    await backend.pass_time(90)
    assert await scene.store.expire() == []
    await backend.pass_time(20)
    assert await scene.store.promote() == Promoted(2, frozenset({lane()}), None)
    assert await scene.store.expire() == []
    await backend.pass_time(25)
    assert {one.id for one in await scene.store.expire()} == {job.id, at.id}


async def test_deadline_of_a_job_that_was_due_before_its_submit_counts_from_the_submit(
    scene: Scene,
) -> None:
    job = a_job(run_at=datetime.now(UTC) - timedelta(days=1), expires_s=30)
    await scene.accepted(job)
    assert await scene.store.expire() == []
    assert len(await scene.claim(await scene.attend())) == 1


async def test_retry_opens_a_round_with_a_new_deadline(scene: Scene, backend: Backend) -> None:
    job = a_job(expires_s=30)
    await scene.accepted(job)
    for _ in range(2):
        await backend.pass_time(31)
        assert [one.id for one in await scene.store.expire()] == [job.id]
        assert await scene.store.retry([job.id]) == [(job.id, RetryVerdict.RETRIED)]
        await backend.pass_time(20)
        assert await scene.store.expire() == []
    [attempt] = await scene.claim(await scene.attend())
    assert (attempt.id, attempt.attempt) == (job.id, 1)
    assert attempt.begin_within_s == pytest.approx(10, abs=5)


async def test_expiry_is_bounded_and_leaves_what_was_cancelled(
    scene: Scene, backend: Backend
) -> None:
    jobs = [a_job(expires_s=seconds) for seconds in (3, 1, 2, 4)]
    await scene.accepted(*jobs)
    await scene.store.cancel([jobs[3].id])
    await backend.pass_time(31)
    assert {one.id for one in await scene.store.expire(2)} == {jobs[1].id, jobs[2].id}
    assert [one.id for one in await scene.store.expire(2)] == [jobs[0].id]


async def test_unique_key_is_free_once_its_job_expired(scene: Scene, backend: Backend) -> None:
    await scene.accepted(a_job(unique_key="k", expires_s=30))
    await backend.pass_time(31)
    await scene.store.expire()
    await scene.accepted(a_job(unique_key="k"))


async def test_what_a_job_sends_expires_too(scene: Scene, backend: Backend) -> None:
    attempt = await scene.running()
    sent = a_job(expires_s=30)
    await scene.finish(done(attempt, outbox=[sent]))
    await backend.pass_time(31)
    assert [one.id for one in await scene.store.expire()] == [sent.id]


async def test_job_says_when_it_expires(scene: Scene, backend: Backend) -> None:
    """G4."""
    job = a_job(expires_s=30)
    await scene.accepted(job)
    await backend.pass_time(15)
    seen = await scene.job(job.id)
    words = why(seen, await scene.store.explain(seen))
    assert "; expires in 1" in words
    assert words.endswith(" s if no worker takes it")
