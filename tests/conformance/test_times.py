"""Times: what is delayed comes due, what runs too long is found."""

from __future__ import annotations

from msgspec import structs

from longshore.model.ends import Failed, Released
from longshore.model.job import JobState
from longshore.ports import Promoted
from longshore.testing.backends import Backend
from longshore.testing.builders import ENDS, Scene, a_job, done, lane

S = JobState


async def test_job_comes_due_when_its_time_has_passed(scene: Scene, backend: Backend) -> None:
    job = a_job(delay_s=30)
    await scene.accepted(job)
    assert (await scene.store.promote()).count == 0
    await backend.pass_time(31)
    assert await scene.store.promote() == Promoted(1, frozenset({lane()}), None)
    seen = await scene.job(job.id)
    assert [entry.state for entry in seen.history] == [S.DELAYED, S.READY]
    assert len(await scene.claim(await scene.attend())) == 1


async def test_promotion_says_how_long_until_the_next(scene: Scene) -> None:
    await scene.accepted(a_job(delay_s=500), a_job(delay_s=50), a_job(delay_s=5000))
    answer = await scene.store.promote()
    assert (answer.count, answer.lanes) == (0, frozenset())
    assert answer.next_s is not None
    assert 0 < answer.next_s <= 50


async def test_nothing_delayed_means_no_next_time(scene: Scene) -> None:
    await scene.accepted(a_job())
    assert await scene.store.promote() == Promoted(0, frozenset(), None)


async def test_promotion_is_bounded_and_takes_the_longest_due_first(
    scene: Scene, backend: Backend
) -> None:
    jobs = [a_job(kind=f"k{delay}", delay_s=delay) for delay in (3, 1, 2, 4, 60)]
    await scene.accepted(*jobs)
    await backend.pass_time(10)
    first = await scene.store.promote(2)
    assert first == Promoted(2, frozenset({lane(kind="k1"), lane(kind="k2")}), 0.0)
    second = await scene.store.promote(2)
    assert (second.count, second.lanes) == (2, frozenset({lane(kind="k3"), lane(kind="k4")}))
    assert second.next_s is not None
    assert 0 < second.next_s <= 50
    assert (await scene.store.promote(2)).count == 0


async def test_promotion_leaves_what_was_cancelled(scene: Scene, backend: Backend) -> None:
    job = a_job(delay_s=5)
    await scene.accepted(job)
    await scene.store.cancel([job.id])
    await backend.pass_time(10)
    assert await scene.store.promote() == Promoted(0, frozenset(), None)
    assert await scene.state(job.id) is S.CANCELLED


async def test_promoted_job_keeps_its_place_by_number(scene: Scene, backend: Backend) -> None:
    early, late = a_job(delay_s=5), a_job()
    await scene.accepted(early, late)
    await backend.pass_time(10)
    await scene.store.promote()
    claimed = await scene.claim(await scene.attend(), most=2)
    assert [attempt.id for attempt in claimed] == [early.id, late.id]


async def test_time_that_was_asked_for_stays_with_the_job(scene: Scene, backend: Backend) -> None:
    job = a_job(delay_s=5)
    await scene.accepted(job)
    await backend.pass_time(10)
    await scene.store.promote()
    asked_for = (await scene.job(job.id)).run_at
    assert asked_for is not None
    slot = await scene.attend()
    [attempt] = await scene.claim(slot)
    await scene.finish(done(attempt, Released))
    [attempt] = await scene.claim(slot)
    await scene.store.cancel([job.id])
    await scene.finish(done(attempt, Failed))
    assert (await scene.job(job.id)).run_at == asked_for


async def test_attempt_past_its_timeout_and_the_margin_is_overdue(
    scene: Scene, backend: Backend
) -> None:
    attempt = await scene.running(a_job(timeout_s=60))
    await scene.running()
    assert await scene.store.overdue() == []
    await backend.pass_time(65)
    assert await scene.store.overdue() == []
    await backend.pass_time(6)
    assert await scene.store.overdue() == [structs.replace(attempt, waited_s=None)]


async def test_overdue_is_bounded(scene: Scene, backend: Backend) -> None:
    attempts = [await scene.running(a_job(timeout_s=1)) for _ in range(3)]
    await backend.pass_time(100)
    some = await scene.store.overdue(2)
    assert len(some) == 2
    assert {one.id for one in some} < {attempt.id for attempt in attempts}


async def test_ended_attempt_is_not_overdue(scene: Scene, backend: Backend) -> None:
    for outcome in ENDS:
        await scene.ended(outcome, a_job(kind=f"kind {outcome}", timeout_s=1))
    await backend.pass_time(100)
    assert await scene.store.overdue() == []


async def test_attempt_being_cancelled_is_not_overdue(scene: Scene, backend: Backend) -> None:
    """It has its own deadline: the cancel grace."""
    await scene.being_cancelled(a_job(timeout_s=1))
    await backend.pass_time(100)
    assert await scene.store.overdue() == []


async def test_each_attempt_has_a_timeout_of_its_own(scene: Scene, backend: Backend) -> None:
    slot = await scene.attend()
    attempt = await scene.running(a_job(timeout_s=60), slot)
    await backend.pass_time(50)
    await scene.finish(done(attempt, Released))
    await scene.claim(slot)
    await backend.pass_time(50)
    assert await scene.store.overdue() == []


async def test_timed_out_attempt_is_ended_for_its_worker(scene: Scene, backend: Backend) -> None:
    """G2: the backstop takes the job from a worker that did not stop it in time."""
    await scene.running(a_job(timeout_s=1))
    await backend.pass_time(100)
    [attempt] = await scene.store.overdue()
    await scene.finish(done(attempt, Failed, forced=True))
    assert await scene.store.overdue() == []
    assert (await scene.job(attempt.id)).token != attempt.token
