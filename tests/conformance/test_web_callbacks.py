"""Callbacks: whatever ends a job or a group submits one for each round, in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import pytest
from msgspec import structs

from longshore.core.webhooks import callback_key
from longshore.errors import StoreUnavailable
from longshore.model.callback import (
    CALLBACK_KIND,
    CALLBACK_QUEUE,
    USUAL_TERMS,
    Callback,
    CallbackTerms,
)
from longshore.model.ends import Cancelled, Crashed, Failed, Retried, Skipped
from longshore.model.group import GroupPart
from longshore.model.ids import watched_id
from longshore.model.job import Job, JobError, JobFilter, JobState, Reason, Submission
from longshore.model.retention import Retention
from longshore.model.watcher import ActorWatcher, CallbackWatcher
from longshore.payload.callback_jobs import read_callback
from longshore.payload.values import pack
from longshore.ports import Told
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_group, a_job, done, lane
from longshore.testing.faults import Fault, FaultyStore, scripted

URL: Final = "https://example.com/hook"
LANE: Final = lane(CALLBACK_QUEUE, CALLBACK_KIND)
TO: Final = CallbackWatcher(URL, headers={"x-own": "1"})


def calling(job: Submission, *watchers: CallbackWatcher | ActorWatcher) -> Submission:
    """The job, of whose end web addresses are told."""
    return structs.replace(job, options=structs.replace(job.options, watchers=watchers or (TO,)))


def calling_group(part: GroupPart) -> GroupPart:
    return structs.replace(part, head=structs.replace(part.head, watchers=(TO,)))


async def callbacks(scene: Scene) -> list[tuple[Job, Callback]]:
    """All callbacks that were submitted, the oldest first."""
    page = await scene.store.jobs(JobFilter(kind=CALLBACK_KIND))
    jobs = [await scene.job(one.id) for one in reversed(page.jobs)]
    return [(job, read_callback(job.args)) for job in jobs]


async def only(scene: Scene) -> tuple[Job, Callback, dict[str, Any]]:
    [(job, callback)] = await callbacks(scene)
    return job, callback, msgspec.json.decode(callback.body)


# however it ends


async def succeed(scene: Scene, job: Submission) -> None:
    await scene.finish(done(await scene.running(job), result=pack({"n": 1}, "it")))


async def fail(scene: Scene, job: Submission) -> None:
    await scene.finish(done(await scene.running(job), Failed))


async def skip(scene: Scene, job: Submission) -> None:
    await scene.finish(done(await scene.running(job), Skipped))


async def stop(scene: Scene, job: Submission) -> None:
    await scene.finish(done(await scene.being_cancelled(job), Cancelled))


async def poison(scene: Scene, job: Submission) -> None:
    await scene.finish(done(await scene.running(job), Crashed, crash_limit=1))


async def force_a_timeout(scene: Scene, job: Submission) -> None:
    error = JobError(Reason.TIMED_OUT, "it took too long")
    await scene.finish(done(await scene.running(job), Failed, error=error, forced=True))


async def cancel_before_it_runs(scene: Scene, job: Submission) -> None:
    await scene.submit(structs.replace(job, delay_s=60.0))
    await scene.store.cancel([job.id])


async def expire(scene: Scene, job: Submission) -> None:
    await scene.submit(structs.replace(job, options=structs.replace(job.options, expires_s=0.001)))
    while not await scene.store.expire():
        pass


async def lose(scene: Scene, job: Submission) -> None:
    slot = await scene.attend()
    await scene.running(job, slot)
    await scene.store.harvest(slot.worker, slot.session, "gone", crash=True, crash_limit=1)


@pytest.mark.parametrize(
    ("ending", "state", "reason"),
    [
        (succeed, "succeeded", None),
        (fail, "failed", "raised"),
        (skip, "skipped", None),
        (stop, "cancelled", None),
        (poison, "failed", "poisonous"),
        (force_a_timeout, "failed", "timed_out"),
        (cancel_before_it_runs, "cancelled", None),
        (expire, "failed", "expired"),
        (lose, "failed", "poisonous"),
    ],
)
async def test_every_end_of_a_job_is_called_back(
    scene: Scene,
    ending: Callable[[Scene, Submission], Awaitable[None]],
    state: str,
    reason: str | None,
) -> None:
    job = calling(a_job())
    await ending(scene, job)
    told = await scene.store.tell_watchers()
    assert (told.ends, dict(told.ready)) == (1, {LANE: 1})
    made, callback, body = await only(scene)
    assert made.id == watched_id(job.id, 1, 0)
    assert (made.state, made.queue, made.group) == (JobState.READY, CALLBACK_QUEUE, None)
    assert made.options == USUAL_TERMS.options
    assert (callback.url, callback.method, callback.headers) == (URL, "POST", {"x-own": "1"})
    assert (callback.subject, callback.round, callback.key) == (job.id, 1, b"")
    ended = await scene.job(job.id)
    assert body["type"] == callback.event == f"job.{state}"
    assert ended.ended_at is not None
    assert body["timestamp"] == ended.ended_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    about = {"id": str(job.id), "number": ended.number, "kind": "work", "round": 1, "state": state}
    assert {name: body["data"][name] for name in about} == about
    assert body["data"]["result"] == ({"n": 1} if ending is succeed else None)
    assert (body["data"]["error"] or {}).get("reason") == reason
    assert await scene.store.tell_watchers() == Told()


async def test_attempt_that_is_tried_again_calls_nobody(scene: Scene) -> None:
    await scene.finish(done(await scene.running(calling(a_job())), Retried, delay_s=60.0))
    assert await scene.store.tell_watchers() == Told()
    assert await callbacks(scene) == []


@pytest.mark.parametrize("how", [None, Failed])
async def test_end_of_a_group_is_called_back_whatever_its_jobs_did(
    scene: Scene, how: type[Failed] | None
) -> None:
    """A failure also spreads: its dependents end without an attempt."""
    part = calling_group(a_group({"a": "", "b": "a"}))
    await scene.submit_group(part)
    slot = await scene.attend()
    while some := await scene.claim(slot, most=9):
        await scene.finish(*(done(one, how) if how else done(one) for one in some))
        await scene.settle()
    await scene.settle()
    assert (await scene.store.tell_watchers()).ends == 1
    made, callback, body = await only(scene)
    state = "failed" if how else "succeeded"
    shown = await scene.store.group(part.head.id)
    assert shown is not None
    assert callback.is_group
    assert (body["type"], made.group) == (f"group.{state}", None)
    assert body["data"] == {
        "id": str(part.head.id),
        "round": 1,
        "number": shown.number,
        "name": part.head.name,
        "state": state,
    }


async def test_cancelled_group_is_called_back(scene: Scene) -> None:
    part = calling_group(a_group({"a": ""}))
    await scene.submit_group(part)
    await scene.store.cancel_group(part.head.id)
    await scene.settle()
    await scene.store.tell_watchers()
    _, _, body = await only(scene)
    assert body["type"] == "group.cancelled"


# rounds and repeats


async def test_second_round_calls_again_and_the_first_is_told_as_it_ended(scene: Scene) -> None:
    job = calling(a_job())
    slot = await scene.attend()
    await scene.finish(done(await scene.running(job, slot), Failed))
    await scene.store.retry([job.id])
    [attempt] = await scene.claim(slot)
    await scene.finish(done(attempt))
    assert (await scene.store.tell_watchers()).ends == 2
    made = await callbacks(scene)
    assert [one.id for one, _ in made] == [watched_id(job.id, round, 0) for round in (1, 2)]
    assert [callback.event for _, callback in made] == ["job.failed", "job.succeeded"]


async def test_end_and_telling_that_are_repeated_call_once(scene: Scene) -> None:
    faults = scripted(
        ("pump", Fault.AFTER), ("tell_watchers", Fault.BEFORE), ("tell_watchers", Fault.AFTER)
    )
    faulty = Scene(FaultyStore(scene.store, faults), scene.dispatcher)
    attempt = await scene.running(calling(a_job()))
    with pytest.raises(StoreUnavailable):
        await faulty.finish(done(attempt))
    await faulty.pump([done(attempt)])
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await faulty.store.tell_watchers()
    assert await faulty.store.tell_watchers() == Told()
    assert len(await callbacks(scene)) == 1


async def test_two_dispatchers_that_tell_at_once_call_each_end_once(
    scene: Scene, backend: Backend
) -> None:
    for _ in range(6):
        await succeed(scene, calling(a_job()))
    async with backend.opened() as other:
        await asyncio.gather(*(one.tell_watchers(2) for one in (scene.store, other) * 3))
        while (await other.tell_watchers()).ends:
            pass
    assert len(await callbacks(scene)) == 6


async def test_end_of_a_job_that_is_gone_is_called_back_all_the_same(scene: Scene) -> None:
    job = calling(a_job())
    await succeed(scene, job)
    await scene.store.prune(Retention(seconds={JobState.SUCCEEDED: 0.0}))
    await scene.store.tell_watchers()
    _, callback, body = await only(scene)
    assert (callback.subject, callback.subject_number) == (job.id, None)
    assert body["data"]["result"] == {"n": 1}
    assert "number" not in body["data"]


# who is told what


async def test_each_address_gets_its_own_callback_beside_actors(scene: Scene) -> None:
    nobody = ActorWatcher("counter", "x", "done")
    job = calling(a_job(), TO, nobody, CallbackWatcher(URL + "/2", "GET"))
    await succeed(scene, job)
    assert dict((await scene.store.tell_watchers()).ready) == {LANE: 2}
    made = await callbacks(scene)
    assert [one.id for one, _ in made] == [watched_id(job.id, 1, place) for place in (0, 2)]
    assert [(one.method, bool(one.body)) for _, one in made] == [("POST", True), ("GET", False)]


async def test_result_that_is_too_large_is_left_out_and_the_body_says_so(scene: Scene) -> None:
    attempt = await scene.running(calling(a_job()))
    await scene.finish(done(attempt, result=pack("x" * 5_000, "it")))
    await scene.store.tell_watchers(callbacks=CallbackTerms(max_bytes=1_000))
    _, _, body = await only(scene)
    assert body["data"]["result"] is None
    assert body["data"]["left_out"] == "the result, of 5,003 bytes"


async def test_raw_result_is_base64(scene: Scene) -> None:
    job = calling(a_job())
    raw = structs.replace(job, options=structs.replace(job.options, raw=True))
    await scene.finish(done(await scene.running(raw), result=b"\xff\x00"))
    await scene.store.tell_watchers()
    _, _, body = await only(scene)
    assert body["data"]["result"] == "/wA="


async def test_terms_of_the_dispatcher_are_those_of_the_callback(scene: Scene) -> None:
    await succeed(scene, calling(a_job()))
    terms = CallbackTerms(attempts=3, backoff_s=0.5, max_backoff_s=2.0, timeout_s=1.0)
    await scene.store.tell_watchers(callbacks=terms)
    made, _, _ = await only(scene)
    assert (made.options.retry.attempts, made.options.timeout_s) == (3, 1.0)


# who runs it


async def test_attempt_has_the_key_that_signs_and_the_row_has_not(scene: Scene) -> None:
    await succeed(scene, calling(a_job()))
    await scene.store.tell_watchers()
    slot = await scene.attend(kinds=[CALLBACK_KIND])
    [attempt] = await scene.claim(slot, LANE)
    key = callback_key(await scene.store.callback_secret())
    assert read_callback(attempt.args).key == key
    [again] = await scene.store.placed([slot])
    assert read_callback(again.args).key == key
    made, callback, _ = await only(scene)
    assert callback.key == b""
    await scene.finish(done(attempt, result=b"\x80"))
    assert await scene.state(made.id) is JobState.SUCCEEDED
    assert await scene.store.tell_watchers() == Told()
