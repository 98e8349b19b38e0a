"""Reading: jobs, queues, lanes, what an attempt said, and what keeps a job where it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import msgpack, structs

from longshore.core.lanes import lane_of
from longshore.core.why import HeldBack
from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled, Failed, Released, Retried, Succeeded
from longshore.model.job import Ended, JobFilter, JobState, LogEntry, LogKind, Progress
from longshore.model.worker import QueueView, SessionKey
from longshore.testing.backends import Backend
from longshore.testing.builders import RAISED, Scene, a_job, done, lanes_of, new_id, some_jobs

S = JobState


def said(attempt: Attempt, seq: int, what: str | Progress, token: int | None = None) -> LogEntry:
    """A step or a progress of an attempt."""
    token = attempt.token if token is None else token
    if isinstance(what, str):
        return LogEntry(attempt.id, token, seq, LogKind.STEP, what.encode())
    return LogEntry(attempt.id, token, seq, LogKind.PROGRESS, msgpack.encode(what))


async def test_job_by_number_and_by_id_is_the_same(scene: Scene) -> None:
    job = a_job()
    [number] = await scene.accepted(job)
    assert await scene.store.job(number) == await scene.store.job(job.id)
    assert await scene.store.job(new_id()) is None
    for unknown in (number + 1, 0, -1, 2**63 - 1, 2**63, 2**100):
        assert await scene.store.job(unknown) is None


async def test_jobs_are_listed_newest_first_and_light(scene: Scene) -> None:
    jobs = some_jobs(3)
    await scene.accepted(*jobs)
    [attempt] = await scene.claim(await scene.attend())
    await scene.finish(done(attempt, result=b"\x01"))
    listed = (await scene.store.jobs(JobFilter())).jobs
    assert [job.id for job in listed] == [job.id for job in reversed(jobs)]
    for seen in listed:
        assert (seen.args, seen.result, seen.history) == (b"", None, ())
        assert (seen.progress, seen.step) == (None, None)
    whole = await scene.job(attempt.id)
    assert listed[-1].state is whole.state is S.SUCCEEDED
    assert listed[-1].ended_at == whole.ended_at
    assert listed[-1].worker == attempt.worker


async def listed(scene: Scene, wanted: JobFilter) -> list[str]:
    """The first labels of the jobs that a filter finds, in its order."""
    return [job.options.labels[0] for job in (await scene.store.jobs(wanted)).jobs]


async def test_jobs_are_filtered_by_every_given_part(scene: Scene) -> None:
    worker = await scene.attend()
    await scene.running(a_job(kind="a", queue="q", labels=("0",)), worker)
    await scene.running(a_job(kind="a", queue="r", labels=("1",)))
    await scene.ended(Failed, a_job(kind="b", queue="q", labels=("2",)))
    await scene.accepted(a_job(kind="a", queue="q", labels=("3",)))
    await scene.accepted(a_job(kind="a", queue="q", delay_s=60, labels=("4",)))
    expected = {
        JobFilter(): "43210",
        JobFilter(states=(S.RUNNING,)): "10",
        JobFilter(states=(S.READY, S.FAILED)): "32",
        JobFilter(states=(S.DELAYED, S.RUNNING), queue="q"): "40",
        JobFilter(states=(S.SUCCEEDED,)): "",
        JobFilter(kind="a"): "4310",
        JobFilter(kind="a", queue="q"): "430",
        JobFilter(queue="r"): "1",
        JobFilter(worker=worker.worker): "0",
        JobFilter(worker=worker.worker, kind="b"): "",
        JobFilter(kind="none"): "",
        JobFilter(worker=new_id()): "",
    }
    for wanted, labels in expected.items():
        assert "".join(await listed(scene, wanted)) == labels, wanted


@pytest.mark.parametrize("wanted", [JobFilter(limit=3), JobFilter(states=(S.READY,), limit=3)])
async def test_jobs_are_paged_by_number(scene: Scene, wanted: JobFilter) -> None:
    jobs = some_jobs(7)
    await scene.accepted(*jobs)
    pages, before = [], None
    while page := (await scene.store.jobs(structs.replace(wanted, before=before))).jobs:
        pages.append([job.id for job in page])
        before = page[-1].number
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [id for page in pages for id in page] == [job.id for job in reversed(jobs)]


async def test_outcomes_are_those_of_ended_jobs_only(scene: Scene) -> None:
    succeeded = await scene.running()
    await scene.finish(done(succeeded, result=b"\x01"))
    failed = await scene.ended(Failed)
    cancelled = await scene.ended(Cancelled)
    running = await scene.running()
    ids = [running.id, succeeded.id, new_id(), failed.id, cancelled.id]
    outcomes = {ended.id: ended for ended in await scene.store.ended(ids)}
    assert outcomes == {
        succeeded.id: Ended(succeeded.id, S.SUCCEEDED, result=b"\x01"),
        failed.id: Ended(failed.id, S.FAILED, error=RAISED),
        cancelled.id: Ended(cancelled.id, S.CANCELLED),
    }
    assert await scene.store.ended([]) == []


async def test_a_number_and_an_id_lead_to_the_same_job(scene: Scene) -> None:
    jobs = some_jobs(2)
    numbers = await scene.accepted(*jobs)
    for number, job in zip(numbers, jobs, strict=True):
        assert await scene.job(number) == await scene.job(job.id)
    for nobodys in (new_id(), 10**15, 2**70):
        assert await scene.store.job(nobodys) is None


async def test_lanes_are_remembered(scene: Scene, backend: Backend) -> None:
    jobs = [a_job(), a_job(), a_job(kind="a"), a_job(queue="q", target="t", delay_s=60)]
    await scene.accepted(*jobs)
    expected = {
        lane_of("default", "work", ""),
        lane_of("default", "a", ""),
        lane_of("q", "work", "t"),
    }
    async with backend.opened() as other:
        found = await other.lanes()
    assert len(found) == 3
    assert set(found) == expected


async def test_lane_of_an_outbox_is_remembered(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.finish(done(attempt, outbox=[a_job(kind="child")]))
    assert lane_of("default", "child", "") in await scene.store.lanes()


async def test_lane_first_seen_by_another_store_is_known_to_both(
    scene: Scene, backend: Backend
) -> None:
    async with backend.opened() as second:
        other = Scene(second)
        await scene.accepted(a_job(kind="new"))
        await other.accepted(a_job(kind="new"), a_job(kind="newer"))
        await scene.accepted(a_job(kind="newer"))
        assert {lane.kind for lane in await second.lanes()} == {"new", "newer"}
    assert {lane.kind for lane in await scene.store.lanes()} == {"new", "newer"}


async def test_queues_count_jobs_by_state(scene: Scene) -> None:
    await scene.ended(Succeeded, a_job(queue="q"))
    await scene.ended(Failed, a_job(queue="q", kind="b"))
    await scene.ended(Cancelled, a_job(queue="q", kind="c"))
    await scene.accepted(a_job(queue="q"), a_job(queue="q", kind="d"), a_job(queue="r", delay_s=60))
    await scene.being_cancelled(a_job(queue="s"))
    await scene.store.set_paused("r", True)
    await scene.store.set_paused("empty", True)
    await scene.store.set_paused("t", True)
    await scene.store.set_paused("t", False)
    found = await scene.store.queues()
    assert [one.name for one in found if one.paused_at is not None] == ["empty", "r"]
    assert [structs.replace(one, paused_at=None) for one in found] == [
        QueueView("empty", True, {}),
        QueueView("q", False, {"succeeded": 1, "failed": 1, "cancelled": 1, "ready": 2}),
        QueueView("r", True, {"delayed": 1}),
        QueueView("s", False, {"cancelling": 1}),
        QueueView("t", False, {}),
    ]


async def test_counts_follow_every_kind_of_change(scene: Scene, backend: Backend) -> None:
    """The kept counts are those of the jobs themselves after each verb that moves one."""
    slot = await scene.attend()
    await scene.accepted(*some_jobs(6), a_job(delay_s=5), a_job(delay_s=5))
    a, b, c, d, e = await scene.claim(slot, most=5)
    await scene.finish(done(a), done(b, Retried), done(c, Released))
    await _assert_counts_are_true(scene)
    await scene.store.cancel([d.id, c.id])
    await scene.store.retry([c.id])
    await _assert_counts_are_true(scene)
    await backend.pass_time(60)
    await scene.store.promote(2)
    await _assert_counts_are_true(scene)
    await scene.store.harvest(slot.worker, slot.session, "", crash=True, crash_limit=1)
    await _assert_counts_are_true(scene)
    assert await scene.states([d.id, e.id]) == [S.CANCELLED, S.FAILED]
    await scene.store.renew(scene.dispatcher, "d")
    lost = await scene.running(a_job(priority=9))
    await backend.half_harvest(lost.worker)
    await scene.store.sweep(3)
    await _assert_counts_are_true(scene)


async def _assert_counts_are_true(scene: Scene) -> None:
    jobs = (await scene.store.jobs(JobFilter(limit=1000))).jobs
    true: dict[str, int] = {}
    for job in jobs:
        true[job.state.value] = true.get(job.state.value, 0) + 1
    [queue] = await scene.store.queues()
    assert queue.counts == true


async def test_newest_step_and_progress_are_shown(scene: Scene) -> None:
    attempt = await scene.running()
    half = Progress(5, 10, "half")
    await scene.store.log([said(attempt, 1, "pulling"), said(attempt, 2, Progress(1, 10))])
    await scene.store.log([said(attempt, 3, half), said(attempt, 4, "running ü")])
    await scene.store.log([LogEntry(attempt.id, attempt.token, 5, LogKind.TEXT, b"\x00\xff")])
    job = await scene.job(attempt.id)
    assert (job.step, job.progress) == ("running ü", half)


async def test_lists_show_how_far_those_are_that_run(scene: Scene) -> None:
    """What runs has its newest words, also while it is being cancelled; nothing else has any."""
    ended = await scene.running()
    await scene.store.log([said(ended, 1, "over"), said(ended, 2, Progress(1, 1))])
    await scene.finish(done(ended))
    stopping = await scene.being_cancelled()
    await scene.store.log([said(stopping, 1, "stopping")])
    running = await scene.running()
    await scene.store.log([said(running, 1, "first"), said(running, 2, Progress(1, 4))])
    await scene.store.log([said(running, 3, Progress(2, 4, "files")), said(running, 4, "second")])
    silent = await scene.running()
    page = await scene.store.jobs(JobFilter())
    listed = {job.id: (job.progress, job.step) for job in page.jobs}
    assert listed == {
        ended.id: (None, None),
        stopping.id: (None, "stopping"),
        running.id: (Progress(2, 4, "files"), "second"),
        silent.id: (None, None),
    }


async def test_log_out_of_order_shows_the_newest_by_number(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.store.log([said(attempt, 9, "nine"), said(attempt, 8, "eight")])
    await scene.store.log([said(attempt, 7, "seven")])
    assert (await scene.job(attempt.id)).step == "nine"


async def test_log_repeated_is_dropped(scene: Scene) -> None:
    attempt = await scene.running()
    entries = [said(attempt, 1, "one"), said(attempt, 2, "two")]
    await scene.store.log(entries)
    await scene.store.log([*entries, *entries, said(attempt, 2, "not two")])
    assert (await scene.job(attempt.id)).step == "two"


async def test_log_of_an_old_token_is_dropped(scene: Scene, backend: Backend) -> None:
    """G2: nothing said with an old token is kept, not a log, not a step."""
    slot = await scene.attend()
    old = await scene.running(slot=slot)
    await scene.finish(done(old, Released))
    await scene.store.log([said(old, 1, "before the new claim")])
    [new] = await scene.claim(slot)
    await scene.store.log([said(old, 2, "late"), said(new, 1, "mine"), said(old, 3, "later")])
    assert (await scene.job(new.id)).step == "mine"
    assert await backend.logged() == 1


async def test_log_of_nobody_is_dropped_alone(scene: Scene) -> None:
    attempt = await scene.running()
    stray = LogEntry(new_id(), 1, 1, LogKind.STEP, b"who?")
    await scene.store.log([stray, said(attempt, 1, "me"), said(attempt, 2, "no", token=2**62)])
    assert (await scene.job(attempt.id)).step == "me"
    await scene.store.log([])


async def test_last_words_of_an_ended_attempt_count(scene: Scene) -> None:
    """The token is still the job's last until somebody takes it."""
    attempt = await scene.ended(Succeeded)
    await scene.store.log([said(attempt, 1, "done")])
    assert (await scene.job(attempt.id)).step == "done"


async def test_steps_of_an_earlier_attempt_are_not_shown(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    await scene.store.log([said(attempt, 1, "old"), said(attempt, 2, Progress(1))])
    await scene.finish(done(attempt, Released))
    assert (await scene.job(attempt.id)).step is None
    await scene.claim(slot)
    job = await scene.job(attempt.id)
    assert (job.step, job.progress) == (None, None)


async def test_explain_counts_the_jobs_ahead_in_the_lane(scene: Scene) -> None:
    """G4: a job that waits for its turn can say how far off it is."""
    jobs = [a_job(priority=priority) for priority in (0, 5, 0, -5, 0)]
    others = [a_job(kind="other"), a_job(delay_s=60)]
    await scene.accepted(*jobs, *others)
    ahead = [(await scene.store.explain(await scene.job(job.id))).ahead for job in jobs]
    assert ahead == [1, 0, 2, 4, 3]
    await scene.claim(await scene.attend(), *lanes_of(jobs))
    last = await scene.store.explain(await scene.job(jobs[4].id))
    assert last.ahead == 2


async def test_explain_knows_the_queue_and_the_live_workers(scene: Scene) -> None:
    """G4: a paused queue, and who could run the job."""
    job = a_job(queue="q")
    await scene.accepted(job)
    gone, drained = await scene.attend(), await scene.attend(kinds=["x"])
    await scene.store.harvest(gone.worker, gone.session, "", crash=False, crash_limit=3)
    await scene.store.set_draining(drained.worker, True)
    attempt = await scene.running()
    facts = await scene.store.explain(await scene.job(job.id))
    assert facts.held_back is None
    assert {view.info.id: (view.draining, view.running) for view in facts.workers} == {
        drained.worker: (True, {}),
        attempt.worker: (False, {"work": 1}),
    }
    assert abs(facts.now - datetime.now(UTC)) < timedelta(minutes=5)
    await scene.store.set_paused("q", True)
    facts = await scene.store.explain(await scene.job(job.id))
    assert facts.held_back is HeldBack.PAUSED_QUEUE


async def test_explain_counts_at_most_a_thousand_ahead(scene: Scene) -> None:
    await scene.accepted(*some_jobs(1005))
    last = a_job()
    await scene.accepted(last)
    assert (await scene.store.explain(await scene.job(last.id))).ahead == 1000


async def test_pausing_twice_is_pausing_once(scene: Scene) -> None:
    for paused in (True, True, False, False):
        await scene.store.set_paused("q", paused)
        assert [queue.paused for queue in await scene.store.queues()] == [paused]


async def test_ended_worker_is_still_named_by_its_job(scene: Scene) -> None:
    attempt = await scene.ended(Succeeded)
    slot = SessionKey(attempt.worker, attempt.session)
    await scene.store.harvest(slot.worker, slot.session, "", crash=False, crash_limit=3)
    assert (await scene.job(attempt.id)).worker == attempt.worker
