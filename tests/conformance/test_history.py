"""History: every change of state, once, with who and why; the outbox: caused exactly once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from msgspec import structs

from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST
from longshore.model.ends import Cancelled, End, Failed, Released, Retried, Succeeded
from longshore.model.ids import derive_id
from longshore.model.job import JobState, Submitted, Verdict
from longshore.testing.builders import RAISED, Scene, a_job, done, lane, some_jobs

S = JobState


async def test_history_tells_the_whole_life(scene: Scene) -> None:
    slot = await scene.attend()
    job = a_job()
    attempt = await scene.running(job, slot)
    await scene.finish(done(attempt, Retried, info="ValueError: no"))
    await scene.store.promote()
    [attempt] = await scene.claim(slot)
    await scene.finish(done(attempt, by="a dispatcher", info="handed back", how=Released))
    [attempt] = await scene.claim(slot)
    await scene.store.cancel([job.id], by="ann")
    await scene.finish(done(attempt, Cancelled, info="aborted"))
    worker = str(slot.worker)
    told = [(entry.state, entry.by, entry.info) for entry in (await scene.job(job.id)).history]
    assert told == [
        (S.READY, "", ""),
        (S.RUNNING, worker, ""),
        (S.DELAYED, worker, "ValueError: no"),
        (S.READY, "", ""),
        (S.RUNNING, worker, ""),
        (S.READY, "a dispatcher", "handed back"),
        (S.RUNNING, worker, ""),
        (S.CANCELLING, "ann", ""),
        (S.CANCELLED, worker, "aborted"),
    ]


async def test_times_are_utc_and_grow(scene: Scene) -> None:
    attempt = await scene.ended(Succeeded)
    job = await scene.job(attempt.id)
    times = [entry.at for entry in job.history]
    assert all(a <= b for a, b in pairwise(times))
    assert all(at.utcoffset() == timedelta(0) for at in times)
    assert job.created_at == times[0]
    assert job.started_at == times[1]
    assert job.ended_at == times[2]
    assert abs(datetime.now(UTC) - times[2]) < timedelta(minutes=5)


async def test_history_keeps_the_first_five_and_the_last_forty_five(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    expected = ["", ""]
    for turn in range(29):
        info = f"turn {turn}"
        await scene.finish(done(attempt, Released, info=info))
        [attempt] = await scene.claim(slot)
        expected += [info, ""]
    assert len(expected) == 60
    history = (await scene.job(attempt.id)).history
    assert len(history) == HISTORY_FIRST + HISTORY_LAST == 50
    assert [entry.info for entry in history] == expected[:5] + expected[-45:]
    assert history[-1].state is S.RUNNING


@pytest.mark.parametrize("text", ["nul \0 here", "lone \ud800 surrogate", "quote ' \" \\ \n ü"])
async def test_odd_words_never_fail_a_finish(scene: Scene, text: str) -> None:
    attempt = await scene.running()
    [answer] = await scene.finish(done(attempt, by=text, info=text))
    assert answer.verdict is Verdict.RECORDED
    last = (await scene.job(attempt.id)).history[-1]
    for kept in (last.by, last.info):
        assert kept.split(" ")[0] == text.split(" ")[0]
        assert kept.split(" ")[-1] == text.split(" ")[-1]
        assert "\0" not in kept


async def test_outbox_is_committed_with_the_success(scene: Scene) -> None:
    attempt = await scene.running()
    children = [a_job(id=derive_id(attempt.id, index)) for index in range(3)]
    children.append(a_job(kind="late", delay_s=60))
    await scene.finish(done(attempt, outbox=children))
    assert await scene.states([child.id for child in children]) == [S.READY] * 3 + [S.DELAYED]


@pytest.mark.parametrize("outcome", [Failed, Retried, Released, Cancelled])
async def test_outbox_of_an_attempt_without_success_is_dropped(
    scene: Scene, outcome: type[End]
) -> None:
    attempt = await scene.running()
    child = a_job()
    await scene.finish(done(attempt, outcome, outbox=[child]))
    assert await scene.store.job(child.id) is None


async def test_outbox_of_a_success_while_cancelling_counts(scene: Scene) -> None:
    attempt = await scene.being_cancelled()
    child = a_job()
    [answer] = await scene.finish(done(attempt, outbox=[child]))
    assert answer.state is S.SUCCEEDED
    assert await scene.state(child.id) is S.READY


async def test_outbox_is_sent_once_when_the_finish_is_repeated(scene: Scene) -> None:
    """G3: a repeated finish causes nothing twice."""
    attempt = await scene.running()
    child = a_job(id=derive_id(attempt.id, 0), kind="child")
    finish = done(attempt, outbox=[child])
    await scene.finish(finish, finish)
    [running] = await scene.claim(await scene.attend(), lane(kind="child"))
    await scene.finish(finish)
    assert (await scene.job(child.id)).token == running.token
    [counts] = [queue.counts for queue in await scene.store.queues()]
    assert counts == {"succeeded": 1, "running": 1}


async def test_stale_finish_sends_nothing(scene: Scene) -> None:
    """G2: an old token causes nothing."""
    old = await scene.running()
    await scene.finish(done(old, Released))
    child = a_job()
    await scene.finish(done(old, outbox=[child]))
    assert await scene.store.job(child.id) is None


async def test_outbox_is_sent_once_when_the_attempt_is_run_again(scene: Scene) -> None:
    """G3: ids that follow from the job make a re-run cause the same jobs, not more."""
    slot = await scene.attend()
    first = await scene.running(slot=slot)
    child = a_job(id=derive_id(first.id, 0), kind="child")
    await scene.finish(done(first, Released, outbox=[child]))
    [second] = await scene.claim(slot)
    await scene.finish(done(first, outbox=[child]), done(second, outbox=[child]))
    assert await scene.state(child.id) is S.READY
    [counts] = [queue.counts for queue in await scene.store.queues()]
    assert counts == {"succeeded": 1, "ready": 1}


async def test_outbox_item_that_exists_is_left_as_it_is(scene: Scene) -> None:
    child, holder = a_job(kind="child"), a_job(kind="child", unique_key="u")
    await scene.accepted(child, holder)
    attempt = await scene.running()
    other = a_job(kind="child", unique_key="u")
    altered = structs.replace(child, args=b"other")
    [answer] = await scene.finish(done(attempt, outbox=[child, altered, other]))
    assert answer.verdict is Verdict.RECORDED
    assert (await scene.job(child.id)).args == child.args
    assert await scene.store.job(other.id) is None
    info = (await scene.job(attempt.id)).history[-1].info
    assert info == (
        f"outbox item 1 refused: job {child.id} exists with another body; give a new job a new id"
    )


@pytest.mark.parametrize("bad", [a_job(kind="\0"), a_job(priority=10**9), a_job(queue="\ud800")])
async def test_bad_outbox_item_is_noted_and_the_rest_is_sent(scene: Scene, bad: object) -> None:
    attempt, other = await scene.running(), await scene.running()
    good = some_jobs(2)
    assert isinstance(bad, type(good[0]))
    first, second = await scene.finish(
        done(attempt, info="well", outbox=[good[0], bad, good[1]]), done(other)
    )
    assert (first.verdict, first.state) == (Verdict.RECORDED, S.SUCCEEDED)
    assert second.verdict is Verdict.RECORDED
    assert await scene.states([job.id for job in good]) == [S.READY] * 2
    info = (await scene.job(attempt.id)).history[-1].info
    assert "well" in info
    assert "refused" in info


async def test_submit_of_what_an_outbox_of_the_same_batch_sent(scene: Scene) -> None:
    attempt = await scene.running()
    child = a_job(unique_key="u")
    pumped = await scene.pump(
        finishes=[done(attempt, outbox=[child])], submits=[child, a_job(unique_key="u")]
    )
    same, held = pumped.submitted
    number = (await scene.job(child.id)).number
    assert same == Submitted(child.id, number)
    assert held == Submitted(child.id, number, existing=True)


async def test_same_outbox_item_of_two_finishes_is_sent_once(scene: Scene) -> None:
    one, two = await scene.running(), await scene.running()
    child = a_job(kind="child")
    answers = await scene.finish(done(one, outbox=[child]), done(two, outbox=[child]))
    assert [answer.verdict for answer in answers] == [Verdict.RECORDED] * 2
    assert await scene.state(child.id) is S.READY


async def test_failed_attempt_says_why_in_its_history(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.finish(done(attempt, Failed, info="ValueError: it did not work"))
    job = await scene.job(attempt.id)
    assert job.error == RAISED
    assert job.history[-1].info == "ValueError: it did not work"
