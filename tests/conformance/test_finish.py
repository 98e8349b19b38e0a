"""Finishing: only the owner's word counts, only once, and each outcome has its one effect."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from math import inf, nan

import pytest
from msgspec import structs

from longshore.core import effects
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.attempt import Attempt
from longshore.model.ends import (
    Cancelled,
    Crashed,
    End,
    Failed,
    NotBegun,
    Released,
    Retried,
    Snoozed,
    Succeeded,
)
from longshore.model.job import Ended, Finished, Job, JobError, JobState, Reason, Verdict
from longshore.ports import Batch
from longshore.testing.builders import (
    ENDS,
    RAISED,
    Scene,
    a_claim,
    a_job,
    done,
    lane,
    new_id,
    some_jobs,
)

S = JobState


async def owned(scene: Scene, state: JobState) -> Attempt:
    """An attempt of a job in this state."""
    return await (scene.running() if state is S.RUNNING else scene.being_cancelled())


def outcome_of(job: Job) -> tuple[object, ...]:
    """All of a job that a finish may change."""
    return (job.state, job.result, job.error, job.failures, job.crashes, job.ended_at, job.history)


@pytest.mark.parametrize(("state", "outcome"), list(product(sorted(OWNED), ENDS)))
async def test_a_worker_ends_its_own_attempts_and_no_others(
    scene: Scene, state: JobState, outcome: type[End]
) -> None:
    """A token can be guessed: it says nothing of who speaks."""
    attempt = await owned(scene, state)
    before = await scene.job(attempt.id)
    anothers = structs.replace(done(attempt, outcome), worker=new_id())
    assert await scene.finish(anothers) == [Finished(attempt.id, attempt.token, Verdict.STALE)]
    assert await scene.job(attempt.id) == before
    own = structs.replace(done(attempt, outcome), worker=attempt.worker)
    [answer] = await scene.finish(own)
    assert answer.verdict is Verdict.RECORDED
    [again] = await scene.finish(own)
    revoked = outcome in (Released, NotBegun, Crashed)
    assert again.verdict is (Verdict.STALE if revoked else Verdict.ALREADY_RECORDED)


@pytest.mark.parametrize(("state", "outcome"), list(product(sorted(OWNED), ENDS)))
async def test_every_outcome_leads_where_the_lifecycle_says_and_only_once(
    scene: Scene, state: JobState, outcome: type[End]
) -> None:
    """G3: the store's moves are those of the one table, and a repeat makes no second one."""
    attempt = await owned(scene, state)
    finish = done(attempt, outcome, result=b"\x01", error=RAISED)
    expected = effects.of_end(finish)[state].state
    [answer] = await scene.finish(finish)
    assert answer == Finished(attempt.id, attempt.token, Verdict.RECORDED, expected)
    job = await scene.job(attempt.id)
    assert job.state is expected
    assert job.result == (b"\x01" if expected is S.SUCCEEDED else None)
    failed = outcome in (Failed, Retried)
    assert job.error == (RAISED if failed and expected is not S.CANCELLED else None)
    assert job.failures == failed
    assert (job.ended_at is not None) == (expected in TERMINAL)
    assert job.worker == (attempt.worker if expected in TERMINAL else None)
    assert job.attempt == (0 if (outcome, state) == (NotBegun, S.RUNNING) else 1)
    [again] = await scene.finish(finish)
    revoked = outcome in (Released, NotBegun, Crashed)
    assert again.verdict is (Verdict.STALE if revoked else Verdict.ALREADY_RECORDED)
    assert await scene.job(attempt.id) == job


async def test_first_outcome_stands(scene: Scene) -> None:
    """G3: a second, different outcome of the same attempt changes nothing."""
    attempt = await scene.running()
    await scene.finish(done(attempt, result=b"\x01"))
    before = await scene.job(attempt.id)
    for second in ENDS:
        late = done(attempt, second, result=b"\x02", forced=True)
        [answer] = await scene.finish(late)
        assert answer.verdict is Verdict.ALREADY_RECORDED
        assert await scene.job(attempt.id) == before


async def test_old_token_changes_nothing(scene: Scene) -> None:
    """G2: the report of an attempt that lost its job is stale."""
    old = await scene.running()
    await scene.finish(done(old, Released))
    [new] = await scene.claim(await scene.attend())
    before = await scene.job(old.id)
    for outcome in ENDS:
        late = done(old, outcome, result=b"\x02", outbox=[a_job(kind="x")])
        [answer] = await scene.finish(late)
        assert answer.verdict is Verdict.STALE
        assert await scene.job(old.id) == before
    [recorded] = await scene.finish(done(new))
    assert recorded.verdict is Verdict.RECORDED


async def test_tokens_nobody_was_given_are_stale(scene: Scene) -> None:
    """G2: writes require the very token."""
    attempt = await scene.running()
    near = (0, -1, attempt.token - 1, attempt.token + 1)
    for token in (*near, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**63) - 1):
        for by in ("", str(attempt.worker)):
            [answer] = await scene.finish(Succeeded(attempt.id, token, by=by))
            assert answer == Finished(attempt.id, token, Verdict.STALE)
    assert await scene.state(attempt.id) is S.RUNNING


async def test_finish_of_a_job_that_was_never_claimed_is_not_recorded(scene: Scene) -> None:
    job = a_job()
    await scene.accepted(job)
    [answer] = await scene.finish(Succeeded(job.id, 0))
    assert answer.verdict is not Verdict.RECORDED
    assert await scene.state(job.id) is S.READY


async def test_unknown_job_is_stale(scene: Scene) -> None:
    job = new_id()
    assert await scene.finish(Failed(job, 1, RAISED)) == [Finished(job, 1, Verdict.STALE)]


@pytest.mark.parametrize("outcome", list(ENDS))
async def test_twice_in_one_batch_counts_once(scene: Scene, outcome: type[End]) -> None:
    """G3: the first of two reports in one batch is recorded, the second is not."""
    attempt = await scene.running()
    other = Failed if outcome is Succeeded else Succeeded
    first, second = await scene.finish(
        first_end := done(attempt, outcome), done(attempt, other, result=b"\x02")
    )
    assert first.verdict is Verdict.RECORDED
    assert second.verdict is not Verdict.RECORDED
    job = await scene.job(attempt.id)
    change = effects.of_end(first_end)[S.RUNNING]
    assert (job.state, job.failures, job.crashes) == (
        change.state,
        change.failures,
        change.crashes,
    )
    assert len(job.history) == (1 if outcome is NotBegun else 3)


async def test_an_attempt_that_was_not_begun_leaves_no_trace_but_its_token(scene: Scene) -> None:
    """A job that a worker held ahead is as it was before the claim, and first in line again."""
    first, second = some_jobs(2)
    await scene.accepted(first, second)
    before = await scene.job(first.id)
    [attempt] = await scene.claim(slot := await scene.attend())
    result = await scene.store.pump(scene.dispatcher, Batch([done(attempt, NotBegun)]))
    assert result.ready == result.ready_by_ends == {lane(): 1}
    after = await scene.job(first.id)
    assert after == structs.replace(before, token=after.token)
    assert after.token > attempt.token
    [again] = await scene.claim(slot)
    assert (again.id, again.attempt, again.crashes, again.failures) == (first.id, 1, 0, 0)


async def test_an_attempt_that_was_not_begun_leaves_earlier_attempts_as_they_were(
    scene: Scene,
) -> None:
    attempt = await scene.running()
    await scene.finish(done(attempt, Retried, delay_s=0.0))
    await scene.store.promote()
    before = await scene.job(attempt.id)
    [second] = await scene.claim(await scene.attend())
    await scene.finish(done(second, NotBegun))
    after = await scene.job(attempt.id)
    assert (after.history, after.attempt, after.failures) == (before.history, 1, 1)
    assert (after.error, after.state, after.worker) == (RAISED, S.READY, None)


async def test_a_full_history_loses_only_the_claim_that_came_to_nothing(scene: Scene) -> None:
    job = a_job()
    await scene.accepted(job)
    slot = await scene.attend()
    for _ in range(30):
        [attempt] = await scene.claim(slot)
        await scene.finish(done(attempt, Released))
    before = (await scene.job(job.id)).history
    [attempt] = await scene.claim(slot)
    await scene.finish(done(attempt, NotBegun))
    assert (await scene.job(job.id)).history == (*before[:5], *before[6:])


async def test_answers_are_in_the_order_given(scene: Scene) -> None:
    await scene.accepted(*some_jobs(4))
    attempts = await scene.claim(await scene.attend(), most=4)
    stale = Succeeded(new_id(), 5)
    finishes = [done(attempts[2]), stale, done(attempts[0]), done(attempts[2]), done(attempts[3])]
    answers = await scene.finish(*finishes)
    assert [(answer.job, answer.token) for answer in answers] == [
        (finish.job, finish.token) for finish in finishes
    ]
    verdicts = [answer.verdict for answer in answers]
    recorded = Verdict.RECORDED
    assert verdicts == [
        recorded,
        Verdict.STALE,
        recorded,
        Verdict.ALREADY_RECORDED,
        recorded,
    ]
    assert await scene.state(attempts[1].id) is S.RUNNING


async def test_one_that_does_not_count_among_many_that_do(scene: Scene) -> None:
    await scene.accepted(*some_jobs(30))
    attempts = await scene.claim(await scene.attend(), most=30)
    await scene.finish(done(attempts[3], result=b"\x01"))
    await scene.store.cancel([attempts[7].id])
    odd = [done(attempts[5], Failed), done(attempts[9], by="")]
    plain = [
        done(attempt, result=b"\x02") for attempt in attempts if attempt not in attempts[5:10:4]
    ]
    finishes = [*plain[:10], *odd, *plain[10:]]
    answers = {answer.job: answer for answer in await scene.finish(*finishes)}
    assert list(answers) == [finish.job for finish in finishes]
    verdicts = [answers[attempt.id].verdict for attempt in attempts]
    assert verdicts[3] is Verdict.ALREADY_RECORDED
    assert set(verdicts[:3] + verdicts[4:]) == {Verdict.RECORDED}
    jobs = [await scene.job(attempt.id) for attempt in attempts]
    assert {place for place, job in enumerate(jobs) if job.result != b"\x02"} == {3, 5, 9}
    assert [jobs[place].result for place in (3, 5, 9)] == [b"\x01", None, None]
    assert {job.history[-1].by for job in jobs} == {str(attempts[0].worker)}
    [queue] = await scene.store.queues()
    assert queue.counts == {S.SUCCEEDED: 29, S.FAILED: 1}


async def test_late_result_of_a_lost_worker_changes_nothing(scene: Scene) -> None:
    """G2: after the harvest the worker owns nothing."""
    attempt = await scene.running()
    await scene.store.harvest(attempt.worker, attempt.session, "silent", crash=True, crash_limit=3)
    before = await scene.job(attempt.id)
    [answer] = await scene.finish(done(attempt, result=b"\x01"))
    assert answer.verdict is Verdict.STALE
    assert await scene.job(attempt.id) == before


async def test_result_counts_after_the_worker_moved_to_another_dispatcher(scene: Scene) -> None:
    """G2: ownership is the token; a session only says who attends."""
    attempt = await scene.running()
    adopter = Scene(scene.store)
    info = (await scene.store.workers())[0].info
    await adopter.attend(info)
    [answer] = await adopter.finish(done(attempt))
    assert answer.verdict is Verdict.RECORDED


@pytest.mark.parametrize("outcome", [Failed, Cancelled, Retried])
async def test_revoked_attempt_has_nothing_more_to_say(scene: Scene, outcome: type[End]) -> None:
    """G2: an attempt that was ended for its worker loses its token."""
    attempt = await scene.running()
    [answer] = await scene.finish(done(attempt, outcome, forced=True))
    assert answer.verdict is Verdict.RECORDED
    before = await scene.job(attempt.id)
    assert before.token > attempt.token
    [late] = await scene.finish(done(attempt, result=b"\x01"))
    assert late.verdict is Verdict.STALE
    assert await scene.job(attempt.id) == before


async def test_attempt_that_ended_itself_keeps_its_token(scene: Scene) -> None:
    for outcome in (Succeeded, Failed, Cancelled, Retried):
        attempt = await scene.ended(outcome)
        assert (await scene.job(attempt.id)).token == attempt.token


async def test_crash_counts_apart_from_failures(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    await scene.finish(done(attempt, Crashed))
    [attempt] = await scene.claim(slot)
    assert (attempt.failures, attempt.crashes) == (0, 1)
    await scene.finish(done(attempt, Retried))
    await scene.store.promote()
    [attempt] = await scene.claim(slot)
    assert (attempt.failures, attempt.crashes) == (1, 1)
    await scene.finish(done(attempt, Released))
    [attempt] = await scene.claim(slot)
    assert (attempt.failures, attempt.crashes, attempt.attempt) == (1, 1, 4)
    await scene.finish(done(attempt, Crashed, crash_limit=2))
    job = await scene.job(attempt.id)
    message = f"crashed 2 times and was given up; last: {RAISED.message}"
    poisonous = structs.replace(RAISED, reason=Reason.POISONOUS, message=message)
    assert (job.state, job.failures, job.crashes, job.error) == (S.FAILED, 1, 2, poisonous)


async def test_retried_job_comes_back_after_its_delay(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.finish(done(attempt, Retried, delay_s=90))
    job = await scene.job(attempt.id)
    assert job.run_at is not None
    assert job.run_at - job.history[-1].at == timedelta(seconds=90)
    assert job.error == RAISED
    assert (await scene.store.promote()).count == 0


async def test_snoozed_job_comes_back_after_its_delay_at_no_cost(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    await scene.finish(done(attempt, Retried))
    await scene.store.promote()
    [attempt] = await scene.claim(slot)
    snooze = done(attempt, Snoozed, delay_s=90, info="snoozed for 1 min 30 s: not yet")
    assert (await scene.pump(finishes=[snooze])).ready == {}
    job = await scene.job(attempt.id)
    assert (job.state, job.failures, job.crashes, job.error) == (S.DELAYED, 1, 0, RAISED)
    assert job.run_at is not None
    assert job.run_at - job.history[-1].at == timedelta(seconds=90)
    assert job.history[-1].info == "snoozed for 1 min 30 s: not yet"
    assert job.token == attempt.token
    assert job.worker is None
    assert (await scene.store.promote()).count == 0


@pytest.mark.parametrize("delay_s", [0.0, -5.0])
async def test_retry_without_delay_waits_for_the_next_promotion(
    scene: Scene, delay_s: float
) -> None:
    attempt = await scene.running()
    await scene.finish(done(attempt, Retried, delay_s=delay_s))
    assert await scene.state(attempt.id) is S.DELAYED
    assert (await scene.store.promote()).count == 1
    assert await scene.state(attempt.id) is S.READY


@pytest.mark.parametrize("delay_s", [inf, nan, 1e300])
async def test_impossible_delay_does_not_fail_the_batch(scene: Scene, delay_s: float) -> None:
    attempt, other = await scene.running(), await scene.running()
    first, second = await scene.finish(done(attempt, Retried, delay_s=delay_s), done(other))
    assert (first.verdict, second.verdict) == (Verdict.RECORDED, Verdict.RECORDED)
    assert await scene.states([attempt.id, other.id]) == [S.DELAYED, S.SUCCEEDED]


async def test_success_clears_the_error_of_an_earlier_attempt(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    await scene.finish(done(attempt, Retried))
    await scene.store.promote()
    [attempt] = await scene.claim(slot)
    await scene.finish(done(attempt, result=b"\x01"))
    job = await scene.job(attempt.id)
    assert (job.result, job.error, job.failures) == (b"\x01", None, 1)


async def test_error_is_kept_whole(scene: Scene) -> None:
    attempt = await scene.running()
    error = JobError(Reason.TIMED_OUT, "späť \0 \n", type="T", traceback="line 1\nline 2")
    await scene.finish(done(attempt, Failed, error=error))
    assert (await scene.job(attempt.id)).error == error


@pytest.mark.parametrize("result", [None, b"", b"\x00" * 70_000])
async def test_result_is_kept_whole(scene: Scene, result: bytes | None) -> None:
    attempt = await scene.running()
    await scene.finish(done(attempt, result=result))
    assert (await scene.job(attempt.id)).result == result


async def test_freed_names_the_lanes_of_what_went_back(scene: Scene) -> None:
    released = await scene.running(a_job(kind="a"))
    retried = await scene.running(a_job(kind="b"))
    succeeded = await scene.running(a_job(kind="c"))
    cancelled = await scene.being_cancelled(a_job(kind="d"))
    child, later = a_job(kind="e"), a_job(kind="f", delay_s=60)
    pumped = await scene.pump(
        finishes=[
            done(released, Released),
            done(retried, Retried),
            done(succeeded, outbox=[child, later]),
            done(cancelled, Released),
        ]
    )
    assert pumped.ready == {lane(kind="a"): 1, lane(kind="e"): 1}


async def test_released_job_keeps_its_place_in_the_order(scene: Scene) -> None:
    jobs = some_jobs(3)
    await scene.accepted(*jobs)
    slot = await scene.attend()
    first, _ = await scene.claim(slot, most=2)
    await scene.finish(done(first, Released))
    again = await scene.claim(slot, most=9)
    assert [attempt.id for attempt in again] == [jobs[0].id, jobs[2].id]


async def test_finish_and_new_claim_of_one_slot_in_one_batch(scene: Scene) -> None:
    """The steady state of the pump: a slot's job ends and its next one starts in one commit."""
    await scene.accepted(*some_jobs(20))
    slot = await scene.attend()
    running = await scene.claim(slot, most=4)
    ended = 0
    while running:
        pumped = await scene.pump(
            finishes=[done(attempt) for attempt in running], claims=[a_claim([slot] * len(running))]
        )
        assert {answer.verdict for answer in pumped.finished} == {Verdict.RECORDED}
        ended += len(pumped.finished)
        running = pumped.claimed
    assert ended == 20


async def test_a_batch_tells_which_jobs_ended_and_how(scene: Scene) -> None:
    """Who waits for a job goes by that, whoever ended it."""
    hows: list[type[End]] = [Succeeded, Failed, Retried, Released, Released]
    kinds = dict(zip("abcde", hows, strict=True))
    attempts = {kind: await scene.running(a_job(kind=kind)) for kind in kinds}
    await scene.store.cancel([attempts["e"].id])
    ends = [done(attempts[kind], how, result=b"1") for kind, how in kinds.items()]
    pumped = await scene.pump(finishes=[*ends, ends[0]])
    ended = {one.id: one for one in pumped.ended}
    assert ended == {
        attempts["a"].id: Ended(attempts["a"].id, S.SUCCEEDED, b"1"),
        attempts["b"].id: Ended(attempts["b"].id, S.FAILED, error=RAISED),
        attempts["e"].id: Ended(attempts["e"].id, S.CANCELLED),
    }
    assert len(pumped.ended) == len(ended)
    told = await scene.store.ended([attempt.id for attempt in attempts.values()])
    assert {one.id: one for one in told} == ended


async def test_a_batch_tells_how_many_jobs_became_ready_where_and_by_what(scene: Scene) -> None:
    sender, released = await scene.running(a_job(kind="a")), await scene.running(a_job(kind="b"))
    sent = [a_job(kind="b"), a_job(kind="c"), a_job(kind="c", delay_s=60), a_job(kind="c")]
    pumped = await scene.pump(
        finishes=[done(sender, outbox=sent), done(released, Released)],
        submits=[a_job(kind="c"), a_job(kind="d"), a_job(kind="d", delay_s=60), sent[1]],
        slots=[None, await scene.attend(), None, None],
    )
    assert pumped.ready_by_ends == {lane(kind="b"): 2, lane(kind="c"): 2}
    assert pumped.ready == {lane(kind="b"): 2, lane(kind="c"): 3}
    assert [one.kind for one in pumped.started] == ["d"]


RAN: tuple[type[End], ...] = tuple(how for how in ENDS if how is not NotBegun)


@pytest.mark.parametrize("how", RAN)
async def test_an_attempt_started_as_long_before_its_end_as_it_ran(
    scene: Scene, how: type[End]
) -> None:
    """It was claimed earlier, if its worker held it ahead of its slots."""
    attempt = await scene.running()
    claimed_at = (await scene.job(attempt.id)).started_at
    await scene.finish(structs.replace(done(attempt, how), ran_s=0.0))
    job = await scene.job(attempt.id)
    assert claimed_at is not None
    assert job.started_at is not None
    assert claimed_at < job.started_at == job.history[-1].at


@pytest.mark.parametrize("ran_s", [None, 3600.0])
async def test_no_attempt_started_before_it_was_claimed(scene: Scene, ran_s: float | None) -> None:
    attempts = [await scene.running() for _ in range(2)]
    claimed_at = [(await scene.job(one.id)).started_at for one in attempts]
    ends = done(attempts[0], Succeeded), done(attempts[1], Failed)
    await scene.finish(*(structs.replace(end, ran_s=ran_s) for end in ends))
    assert [(await scene.job(one.id)).started_at for one in attempts] == claimed_at


async def test_ends_that_differ_in_their_times_alone_are_recorded_together(scene: Scene) -> None:
    attempts = [await scene.running() for _ in range(3)]
    ends = [structs.replace(done(one, Retried), ran_s=n / 7) for n, one in enumerate(attempts)]
    finished = await scene.finish(*ends)
    assert [one.verdict for one in finished] == [Verdict.RECORDED] * 3
