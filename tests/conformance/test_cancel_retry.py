"""Cancelling and retrying by hand: what a user may do to a job in each of its states."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.core.lifecycle import TERMINAL
from longshore.model.ends import Cancelled, End, Failed, Succeeded
from longshore.model.job import CancelVerdict, JobState, RetryVerdict, Verdict
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, done, lane, new_id, some_jobs

S = JobState
ENDS: dict[JobState, type[End]] = {
    S.SUCCEEDED: Succeeded,
    S.FAILED: Failed,
    S.CANCELLED: Cancelled,
}


async def in_state(scene: Scene, backend: Backend, state: JobState) -> UUID:
    """A job in this state."""
    if state in ENDS:
        return (await scene.ended(ENDS[state])).id
    if state is S.CANCELLING:
        return (await scene.being_cancelled()).id
    if state is S.RUNNING:
        return (await scene.running()).id
    job = a_job(delay_s=60 if state is S.DELAYED else None)
    await scene.accepted(job)
    if state not in (S.READY, S.DELAYED):
        await backend.force(job.id, state)
    return job.id


async def again(scene: Scene, outcome: type[End]) -> None:
    """The only ready job is run once more, and ends so."""
    [attempt] = await scene.claim(await scene.attend(), lane())
    await scene.finish(done(attempt, outcome))


async def test_cancel_of_what_does_not_run_is_immediate(scene: Scene, backend: Backend) -> None:
    for state in (S.WAITING, S.DELAYED, S.READY):
        job = await in_state(scene, backend, state)
        assert await scene.store.cancel([job], by="ann") == [(job, CancelVerdict.CANCELLED)]
        seen = await scene.job(job)
        assert seen.state is S.CANCELLED
        assert seen.ended_at is not None
        assert (seen.history[-1].state, seen.history[-1].by) == (S.CANCELLED, "ann")
    assert await scene.claim(await scene.attend(), most=9) == []


async def test_cancel_of_a_running_job_asks_its_worker(scene: Scene) -> None:
    attempt = await scene.running()
    answer = await scene.store.cancel([attempt.id], by="ann")
    assert answer == [(attempt.id, CancelVerdict.CANCELLING)]
    job = await scene.job(attempt.id)
    assert (job.state, job.token, job.worker) == (S.CANCELLING, attempt.token, attempt.worker)
    assert (job.history[-1].state, job.history[-1].by) == (S.CANCELLING, "ann")


async def test_cancel_of_a_cancelling_job_changes_nothing(scene: Scene) -> None:
    attempt = await scene.being_cancelled()
    before = await scene.job(attempt.id)
    answer = await scene.store.cancel([attempt.id], by="bob")
    assert answer == [(attempt.id, CancelVerdict.CANCELLING)]
    assert await scene.job(attempt.id) == before


async def test_cancel_of_an_ended_job_changes_nothing(scene: Scene, backend: Backend) -> None:
    """G3: the outcome stands."""
    for state in sorted(TERMINAL):
        job = await in_state(scene, backend, state)
        before = await scene.job(job)
        assert await scene.store.cancel([job]) == [(job, CancelVerdict.ALREADY_ENDED)]
        assert await scene.job(job) == before


async def test_cancel_by_number_and_by_id_in_the_order_given(scene: Scene) -> None:
    jobs = some_jobs(3)
    numbers = await scene.accepted(*jobs)
    unknown = new_id()
    refs: list[UUID | int] = [numbers[2], unknown, jobs[0].id, 10**15, 0, -1]
    assert await scene.store.cancel(refs) == [
        (jobs[2].id, CancelVerdict.CANCELLED),
        (None, CancelVerdict.NOT_FOUND),
        (jobs[0].id, CancelVerdict.CANCELLED),
        (None, CancelVerdict.NOT_FOUND),
        (None, CancelVerdict.NOT_FOUND),
        (None, CancelVerdict.NOT_FOUND),
    ]
    expected = [S.CANCELLED, S.READY, S.CANCELLED]
    assert await scene.states([job.id for job in jobs]) == expected


async def test_cancel_of_one_job_named_twice_happens_once(scene: Scene) -> None:
    job = a_job()
    [number] = await scene.accepted(job)
    answers = await scene.store.cancel([job.id, number, job.id])
    assert [id for id, _ in answers] == [job.id] * 3
    assert len((await scene.job(job.id)).history) == 2


async def test_nothing_to_cancel(scene: Scene) -> None:
    assert await scene.store.cancel([]) == []
    assert await scene.store.retry([]) == []


async def test_dispatcher_finds_the_cancels_of_its_own_workers(scene: Scene) -> None:
    mine, other = await scene.being_cancelled(), Scene(scene.store)
    theirs = await other.being_cancelled()
    await scene.running()
    [attempt] = await scene.store.cancelling(scene.dispatcher)
    assert (attempt.id, attempt.token, attempt.cancelling) == (mine.id, mine.token, True)
    [attempt] = await scene.store.cancelling(other.dispatcher)
    assert attempt.id == theirs.id
    assert await scene.store.cancelling(new_id()) == []


async def test_cancel_follows_the_worker_to_its_new_dispatcher(scene: Scene) -> None:
    attempt = await scene.being_cancelled()
    adopter = Scene(scene.store)
    views = {view.info.id: view for view in await scene.store.workers()}
    slot = await adopter.attend(views[attempt.worker].info)
    assert await scene.store.cancelling(scene.dispatcher) == []
    [found] = await scene.store.cancelling(adopter.dispatcher)
    assert (found.id, found.session) == (attempt.id, slot.session)


async def test_forced_cancel_takes_the_token(scene: Scene) -> None:
    """G2: a worker that did not answer a cancel in time has nothing more to say."""
    attempt = await scene.being_cancelled()
    [answer] = await scene.finish(done(attempt, Cancelled, forced=True))
    assert answer.state is S.CANCELLED
    [late] = await scene.finish(done(attempt, result=b"\x01"))
    assert late.verdict is Verdict.STALE
    assert await scene.store.cancelling(scene.dispatcher) == []


@pytest.mark.parametrize("state", [S.FAILED, S.DEPENDENCY_FAILED, S.SKIPPED, S.CANCELLED])
async def test_retry_opens_a_new_round(scene: Scene, backend: Backend, state: JobState) -> None:
    """G3: one outcome per round; the earlier one stays in the history."""
    job = await in_state(scene, backend, state)
    before = await scene.job(job)
    assert await scene.store.retry([job], by="ann") == [(job, RetryVerdict.RETRIED)]
    seen = await scene.job(job)
    assert (seen.state, seen.round) == (S.READY, 2)
    assert (seen.failures, seen.crashes, seen.result, seen.error) == (0, 0, None, None)
    assert (seen.started_at, seen.ended_at, seen.worker) == (None, None, None)
    assert seen.token > before.token
    assert seen.history[:-1] == before.history
    last = seen.history[-1]
    assert (last.state, last.by) == (S.READY, "ann")
    assert last.info == "round 2, retried by ann"
    [attempt] = await scene.claim(await scene.attend())
    assert (attempt.id, attempt.failures) == (job, 0)


async def test_an_attempt_says_its_round(scene: Scene) -> None:
    """The ids of the jobs that it submits follow from it."""
    slot = await scene.attend()
    first = await scene.running(slot=slot)
    await scene.finish(done(first, Failed))
    await scene.store.retry([first.id])
    [again] = await scene.claim(slot)
    [placed] = await scene.store.placed([slot])
    assert (first.round, again.round, placed.round) == (1, 2, 2)


async def test_retry_of_what_has_not_ended_changes_nothing(scene: Scene, backend: Backend) -> None:
    for state in (S.CANCELLING, S.RUNNING, S.WAITING, S.DELAYED, S.READY):
        job = await in_state(scene, backend, state)
        before = await scene.job(job)
        assert before.state is state
        assert await scene.store.retry([job]) == [(job, RetryVerdict.NOT_ENDED)]
        assert await scene.job(job) == before


async def test_retry_of_a_success_is_refused(scene: Scene) -> None:
    """G3: a success is final."""
    attempt = await scene.ended(Succeeded)
    before = await scene.job(attempt.id)
    assert await scene.store.retry([attempt.id]) == [(attempt.id, RetryVerdict.SUCCEEDED)]
    assert await scene.job(attempt.id) == before


async def test_retry_by_number_and_by_id_in_the_order_given(scene: Scene) -> None:
    first, second = await scene.ended(Failed), await scene.ended(Failed)
    ready = a_job()
    await scene.accepted(ready)
    refs: list[UUID | int] = [second.number, new_id(), first.id, ready.id, 10**15]
    assert await scene.store.retry(refs) == [
        (second.id, RetryVerdict.RETRIED),
        (None, RetryVerdict.NOT_FOUND),
        (first.id, RetryVerdict.RETRIED),
        (ready.id, RetryVerdict.NOT_ENDED),
        (None, RetryVerdict.NOT_FOUND),
    ]


async def test_retry_of_one_job_named_twice_opens_one_round(scene: Scene) -> None:
    attempt = await scene.ended(Failed)
    answers = await scene.store.retry([attempt.id, attempt.number])
    assert [id for id, _ in answers] == [attempt.id] * 2
    assert answers[0][1] is RetryVerdict.RETRIED
    job = await scene.job(attempt.id)
    assert (job.round, len(job.history)) == (2, 4)


async def test_repeat_of_a_retry_opens_no_second_round(scene: Scene) -> None:
    """G3: its answer may have got lost, and the job may have failed again since."""
    attempt, request = await scene.ended(Failed), new_id()
    retried = [(attempt.id, RetryVerdict.RETRIED)]
    assert await scene.store.retry([attempt.id], request=request) == retried
    before = await scene.job(attempt.id)
    assert await scene.store.retry([attempt.number], request=request) == retried
    assert await scene.job(attempt.id) == before
    await again(scene, Failed)
    before = await scene.job(attempt.id)
    assert (before.state, before.round) == (S.FAILED, 2)
    assert await scene.store.retry([attempt.id], request=request) == retried
    assert await scene.job(attempt.id) == before


async def test_each_request_opens_a_round_of_its_own(scene: Scene) -> None:
    attempt, first, second = await scene.ended(Failed), new_id(), new_id()
    for request in (first, second):
        await scene.store.retry([attempt.id], request=request)
        await again(scene, Failed)
    assert (await scene.job(attempt.id)).round == 3
    assert await scene.store.retry([attempt.id], request=first) == [
        (attempt.id, RetryVerdict.RETRIED)
    ]
    assert (await scene.job(attempt.id)).round == 3


async def test_repeat_of_a_retry_of_several_opens_rounds_where_there_was_none(
    scene: Scene,
) -> None:
    early, late = await scene.ended(Failed), await scene.running()
    refs, request = [early.id, late.id], new_id()
    assert await scene.store.retry(refs, request=request) == [
        (early.id, RetryVerdict.RETRIED),
        (late.id, RetryVerdict.NOT_ENDED),
    ]
    await scene.finish(done(late, Failed))
    answers = await scene.store.retry(refs, request=request)
    assert answers == [(id, RetryVerdict.RETRIED) for id in refs]
    assert [(await scene.job(id)).round for id in refs] == [2, 2]


async def test_request_of_a_retry_is_not_shown_in_the_history(scene: Scene) -> None:
    attempt = await scene.ended(Failed)
    await scene.store.retry([attempt.id], by="ann", request=new_id())
    entry = (await scene.job(attempt.id)).history[-1]
    assert (entry.state, entry.by, entry.info) == (S.READY, "ann", "round 2, retried by ann")


async def test_late_report_of_an_earlier_round_changes_nothing(scene: Scene) -> None:
    """G2: a new round has a new token before anybody claims it."""
    attempt = await scene.ended(Failed)
    await scene.store.retry([attempt.id])
    [late] = await scene.finish(done(attempt))
    assert late.verdict is Verdict.STALE
    assert await scene.state(attempt.id) is S.READY


async def test_retry_waits_for_its_unique_key(scene: Scene) -> None:
    ended = await scene.ended(Failed, a_job(unique_key="u"))
    holder = await scene.running(a_job(unique_key="u"))
    before = await scene.job(ended.id)
    assert await scene.store.retry([ended.id]) == [(ended.id, RetryVerdict.UNIQUE_KEY_TAKEN)]
    assert await scene.job(ended.id) == before
    await scene.finish(done(holder))
    assert await scene.store.retry([ended.id]) == [(ended.id, RetryVerdict.RETRIED)]
    assert (await scene.submit(a_job(unique_key="u")))[0].id == ended.id


async def test_two_jobs_of_one_unique_key_retried_at_once(scene: Scene) -> None:
    first = await scene.ended(Failed, a_job(unique_key="u"))
    second = await scene.ended(Failed, a_job(unique_key="u"))
    other = await scene.ended(Failed)
    answers = dict(await scene.store.retry([first.id, second.id, other.id]))
    assert answers[first.id] is RetryVerdict.RETRIED
    assert answers[second.id] is RetryVerdict.UNIQUE_KEY_TAKEN
    assert answers[other.id] is RetryVerdict.RETRIED


async def test_odd_words_never_fail_a_cancel_or_retry(scene: Scene) -> None:
    job = a_job()
    await scene.accepted(job)
    await scene.store.cancel([job.id], by="a\0b\ud800c")
    await scene.store.retry([job.id], by="a\0b\ud800c")
    cancelled, retried = (await scene.job(job.id)).history[-2:]
    for text in (cancelled.by, retried.by, retried.info):
        assert "\0" not in text
        assert text.endswith("c")


async def test_retried_job_is_in_its_lane_again(scene: Scene) -> None:
    attempt = await scene.ended(Failed, a_job(kind="a"))
    await scene.store.retry([attempt.id])
    [again] = await scene.claim(await scene.attend(), lane(kind="a"))
    assert (again.id, again.attempt) == (attempt.id, 2)
    assert again.token > attempt.token
