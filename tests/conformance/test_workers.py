"""Workers: who attends them, what is placed on them, and what becomes of it when they are lost."""

from __future__ import annotations

import asyncio
from math import inf, nan

import pytest
from msgspec import structs

from longshore.model.ends import Released, Retried
from longshore.model.job import Ended, JobState, Reason, Verdict
from longshore.model.worker import Attended, Gone, KindInfo, Parameter, Pool, SessionKey, WorkerInfo
from longshore.ports import Harvested, Store
from longshore.testing.backends import Backend
from longshore.testing.builders import RAISED, Scene, a_job, a_worker, done, lane, new_id, some_jobs
from longshore.wire.messages import Stats

S = JobState
NOTHING = Harvested(False)


async def crash(
    store: Store, slot: SessionKey, *, limit: int = 3, why: str = "silent"
) -> Harvested:
    """The worker is lost for an unknown reason."""
    return await store.harvest(slot.worker, slot.session, why, crash=True, crash_limit=limit)


async def goodbye(store: Store, slot: SessionKey) -> Harvested:
    """The worker leaves in good order."""
    return await store.harvest(slot.worker, slot.session, "goodbye", crash=False, crash_limit=3)


async def test_new_worker_is_in_its_first_session(scene: Scene) -> None:
    info = WorkerInfo(
        id=new_id(),
        name="näme",
        host="h",
        pid=42,
        kinds={"a": KindInfo(Pool.PROCESS, (Parameter("x", False, "int"),)), "b": KindInfo()},
        queues=("q",),
        target="linux",
        pools={Pool.COROUTINE: 7, Pool.PROCESS: 3, "gpu": 2},
    )
    answer = await scene.store.attend(scene.dispatcher, info, draining=True)
    assert answer == Attended(1)
    [view] = await scene.store.workers()
    assert view.info == info
    assert (view.session, view.dispatcher) == (1, scene.dispatcher)
    assert (view.alive, view.draining, view.running) == (True, True, {})
    assert (view.ended_at, view.ended_why) == (None, "")


async def test_a_worker_shows_what_its_jobs_take(scene: Scene) -> None:
    slot = await scene.attend(structs.replace(a_worker(), resources={"cpu": 4.0}))
    wanted = ("cpu=1", "cpu=1", "cpu=2", "")
    running = [await scene.running(a_job(target="big", resources=one), slot) for one in wanted]
    assert tuple(one.options.resources for one in running) == wanted
    [view] = await scene.store.workers()
    assert view.shapes == {"big;cpu=1": 2, "big;cpu=2": 1}
    await scene.pump(finishes=[done(running[2])])
    [view] = await scene.store.workers()
    assert view.shapes == {"big;cpu=1": 2}


async def test_adoption_raises_the_session_and_says_what_is_placed(scene: Scene) -> None:
    """G8: the jobs of a worker that moves to another dispatcher stay its own."""
    slot = await scene.attend()
    await scene.accepted(*some_jobs(3))
    attempts = await scene.claim(slot, most=3)
    await scene.store.cancel([attempts[1].id])
    await scene.finish(done(attempts[2]))
    adopter = Scene(scene.store)
    answer = await adopter.store.attend(adopter.dispatcher, a_worker(id=slot.worker, name="new"))
    assert isinstance(answer, Attended)
    assert answer.session == slot.session + 1
    placed = {attempt.id: attempt for attempt in answer.placed}
    assert set(placed) == {attempts[0].id, attempts[1].id}
    assert [placed[attempt.id].cancelling for attempt in attempts[:2]] == [False, True]
    for before in attempts[:2]:
        after = placed[before.id]
        assert (after.token, after.args, after.attempt) == (before.token, before.args, 1)
        assert (after.worker, after.session) == (slot.worker, answer.session)
    [view] = await scene.store.workers()
    assert (view.dispatcher, view.info.name, view.running) == (
        adopter.dispatcher,
        "new",
        {"work": 2},
    )


async def test_placed_follows_the_session(scene: Scene) -> None:
    info = a_worker()
    first = await scene.attend(info)
    attempt = await scene.running(slot=first)
    other = await scene.running()
    assert [one.id for one in await scene.store.placed([first])] == [attempt.id]
    second = await Scene(scene.store).attend(info)
    assert await scene.store.placed([first]) == []
    [placed] = await scene.store.placed([second])
    assert (placed.id, placed.token, placed.session) == (attempt.id, attempt.token, second.session)
    both = await scene.store.placed([second, SessionKey(other.worker, other.session), second])
    assert {one.id for one in both} == {attempt.id, other.id}
    assert len(both) == 2


async def test_placed_shows_only_what_is_owned_now(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.accepted(*some_jobs(4))
    ended, released, cancelling, running = await scene.claim(slot, most=4)
    await scene.finish(done(ended), done(released, Released))
    await scene.store.cancel([cancelling.id])
    placed = {one.id: one.cancelling for one in await scene.store.placed([slot])}
    assert placed == {cancelling.id: True, running.id: False}
    assert await scene.store.placed([]) == []


async def test_lost_worker_is_told_that_it_is_gone(scene: Scene) -> None:
    """G2: a worker that was declared lost comes back only as a new one."""
    info = a_worker()
    slot = await scene.attend(info)
    await crash(scene.store, slot, why="nothing heard for 15 s")
    answer = await Scene(scene.store).store.attend(new_id(), info)
    assert isinstance(answer, Gone)
    assert "nothing heard for 15 s" in answer.reason
    [view] = await scene.store.workers()
    assert not view.alive
    assert view.ended_why == "nothing heard for 15 s"
    assert view.ended_at is not None


async def test_draining_needs_a_live_worker(scene: Scene) -> None:
    slot = await scene.attend()
    assert await scene.store.set_draining(slot.worker, True)
    assert [view.draining for view in await scene.store.workers()] == [True]
    await goodbye(scene.store, slot)
    assert not await scene.store.set_draining(slot.worker, True)
    assert not await scene.store.set_draining(new_id(), True)


async def test_crash_frees_the_jobs_and_counts(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(a_job(kind="a"), slot)
    other = await scene.running(a_job(kind="b"), slot)
    untouched = await scene.running()
    answer = await crash(scene.store, slot)
    assert answer == Harvested(True, 2, frozenset({lane(kind="a"), lane(kind="b")}))
    for lost in (attempt, other):
        job = await scene.job(lost.id)
        assert (job.state, job.crashes, job.failures) == (S.READY, 1, 0)
        assert job.worker is None
        assert job.token > lost.token
        assert (job.history[-1].state, job.history[-1].info) == (S.READY, "silent")
    assert await scene.state(untouched.id) is S.RUNNING


async def test_goodbye_costs_nothing(scene: Scene) -> None:
    attempt = await scene.running()
    answer = await goodbye(scene.store, SessionKey(attempt.worker, attempt.session))
    assert answer == Harvested(True, 1, frozenset({lane()}))
    job = await scene.job(attempt.id)
    assert (job.state, job.crashes, job.failures) == (S.READY, 0, 0)
    assert job.token > attempt.token


async def test_job_that_crashes_too_often_is_poisonous(scene: Scene) -> None:
    """G3: it ends, with one outcome, instead of taking down every worker."""
    job = a_job()
    await scene.accepted(job)
    slots = [await scene.attend() for _ in range(3)]
    answers = []
    for slot in slots:
        await scene.claim(slot)
        answers.append(await crash(scene.store, slot, why="segfault"))
    freed = Harvested(True, 1, frozenset({lane()}))
    seen = await scene.job(job.id)
    poisoned = Ended(job.id, S.FAILED, None, seen.error)
    assert answers == [freed, freed, Harvested(True, ended=(poisoned,))]
    assert (seen.state, seen.crashes) == (S.FAILED, 3)
    assert seen.error is not None
    assert seen.error.reason is Reason.POISONOUS
    assert seen.error.message == "crashed 3 times and was given up; last: segfault"
    assert seen.ended_at is not None
    assert seen.worker == slots[-1].worker
    assert await scene.claim(await scene.attend()) == []


async def test_what_a_lost_worker_held_ahead_is_not_blamed(scene: Scene) -> None:
    """Three losses never poison a job that had not begun: the first ones sent fill the slots."""
    kinds = {"a": KindInfo(Pool.PROCESS), "b": KindInfo()}
    jobs = [a_job(kind="a") for _ in range(4)] + [a_job(kind="b")]
    await scene.accepted(*jobs)
    pools = {Pool.PROCESS.value: 2, Pool.COROUTINE.value: 1}
    slot = await scene.attend(structs.replace(a_worker(), kinds=kinds, pools=pools))
    lanes = (lane(kind="a"), lane(kind="b"))
    attempts = sorted(await scene.claim(slot, *lanes, most=5), key=lambda one: one.token)
    await crash(scene.store, slot)
    found = [await scene.job(one.id) for one in attempts]
    assert all(job.state is S.READY for job in found)
    blamed = [(job.kind, job.crashes) for job in found]
    assert blamed == [("a", 1), ("a", 1), ("a", 0), ("a", 0), ("b", 1)]


async def test_goodbyes_never_poison(scene: Scene) -> None:
    job = a_job()
    await scene.accepted(job)
    for _ in range(4):
        slot = await scene.attend()
        assert len(await scene.claim(slot)) == 1
        await goodbye(scene.store, slot)
    assert await scene.state(job.id) is S.READY


@pytest.mark.parametrize("is_crash", [True, False])
async def test_cancelling_job_of_a_lost_worker_is_cancelled(scene: Scene, is_crash: bool) -> None:
    """G3: a job that was being cancelled does not run again."""
    attempt = await scene.being_cancelled()
    answer = await scene.store.harvest(
        attempt.worker, attempt.session, "lost", crash=is_crash, crash_limit=1
    )
    assert answer == Harvested(True, ended=(Ended(attempt.id, S.CANCELLED),))
    job = await scene.job(attempt.id)
    assert (job.state, job.result, job.error) == (S.CANCELLED, None, None)
    assert job.ended_at is not None
    assert job.token > attempt.token
    [late] = await scene.finish(done(attempt))
    assert late.verdict is Verdict.STALE


async def test_second_harvest_is_harmless(scene: Scene) -> None:
    """G3: what was freed and claimed again is not taken a second time."""
    attempt = await scene.running()
    slot = SessionKey(attempt.worker, attempt.session)
    await crash(scene.store, slot)
    [again] = await scene.claim(await scene.attend())
    before = await scene.job(attempt.id)
    assert await crash(scene.store, slot) == NOTHING
    assert await goodbye(scene.store, slot) == NOTHING
    assert await scene.job(attempt.id) == before
    assert before.token == again.token


async def test_harvest_of_another_session_does_nothing(scene: Scene) -> None:
    """G8: a worker that moved on is not lost because its old dispatcher thinks so."""
    info = a_worker()
    old = await scene.attend(info)
    attempt = await scene.running(slot=old)
    new = await Scene(scene.store).attend(info)
    assert await crash(scene.store, old) == NOTHING
    assert await crash(scene.store, SessionKey(info.id, new.session + 1)) == NOTHING
    assert await crash(scene.store, SessionKey(new_id(), 1)) == NOTHING
    assert await scene.state(attempt.id) is S.RUNNING
    assert (await crash(scene.store, new)).requeued == 1


async def test_two_harvests_at_once_free_a_job_once(scene: Scene, backend: Backend) -> None:
    attempt = await scene.running()
    slot = SessionKey(attempt.worker, attempt.session)
    async with backend.opened() as other:
        answers = await asyncio.gather(
            *(crash(store, slot) for store in (scene.store, other, scene.store, other))
        )
    assert sorted(answer.lost for answer in answers) == [False, False, False, True]
    job = await scene.job(attempt.id)
    assert (job.state, job.crashes, len(job.history)) == (S.READY, 1, 3)


async def test_harvest_of_an_idle_worker(scene: Scene) -> None:
    slot = await scene.attend()
    assert await crash(scene.store, slot) == Harvested(True)


async def test_odd_words_never_fail_a_harvest(scene: Scene) -> None:
    attempt = await scene.running()
    slot = SessionKey(attempt.worker, attempt.session)
    answer = await crash(scene.store, slot, limit=1, why="nul \0 and \ud800 end")
    error = (await scene.job(attempt.id)).error
    assert answer == Harvested(True, ended=(Ended(attempt.id, S.FAILED, None, error),))
    assert error is not None
    assert error.message.endswith("end")


async def test_loss_leaves_the_error_of_an_earlier_attempt(scene: Scene) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    await scene.finish(done(attempt, Retried))
    await scene.store.promote()
    await scene.claim(slot)
    await crash(scene.store, slot)
    assert (await scene.job(attempt.id)).error == RAISED


async def test_sweep_finishes_a_harvest_that_died_half_way(scene: Scene, backend: Backend) -> None:
    """G3: jobs of a worker that nobody will harvest any more come back all the same."""
    lost, kept = await scene.running(), await scene.running()
    cancelling = await scene.being_cancelled(a_job(kind="c"))
    await backend.half_harvest(lost.worker)
    await backend.half_harvest(cancelling.worker)
    answer = await scene.store.sweep(3)
    ended = Ended(cancelling.id, S.CANCELLED)
    assert answer == Harvested(False, 1, frozenset({lane()}), (ended,))
    jobs = [await scene.job(one.id) for one in (lost, kept, cancelling)]
    assert [job.state for job in jobs] == [S.READY, S.RUNNING, S.CANCELLED]
    assert [job.crashes for job in jobs] == [1, 0, 0]
    assert jobs[0].token > lost.token
    assert jobs[0].history[-1].info
    assert await scene.store.sweep(3) == NOTHING
    [late] = await scene.finish(done(lost))
    assert late.verdict is Verdict.STALE


async def test_sweep_blames_as_many_as_the_worker_has_slots(scene: Scene, backend: Backend) -> None:
    """A harvest blames no others either."""
    kinds = {"a": KindInfo(Pool.PROCESS)}
    slots = [
        await scene.attend(structs.replace(a_worker(), kinds=kinds, pools={"process": 2}))
        for _ in range(2)
    ]
    attempts = []
    for slot in slots:
        await scene.accepted(*(a_job(kind="a") for _ in range(4)))
        attempts += await scene.claim(slot, lane(kind="a"), most=4)
        await backend.half_harvest(slot.worker)
    answer = await scene.store.sweep(3)
    assert (answer.requeued, answer.lanes) == (8, frozenset({lane(kind="a")}))
    jobs = [await scene.job(one.id) for one in attempts]
    assert [job.crashes for job in jobs] == [1, 1, 0, 0] * 2


async def test_sweep_poisons_at_the_limit(scene: Scene, backend: Backend) -> None:
    attempt = await scene.running()
    await backend.half_harvest(attempt.worker)
    answer = await scene.store.sweep(1)
    job = await scene.job(attempt.id)
    assert answer == Harvested(False, ended=(Ended(attempt.id, S.FAILED, None, job.error),))
    assert job.error is not None
    assert job.error.reason is Reason.POISONOUS


async def test_sweep_of_a_sound_store_does_nothing(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.being_cancelled()
    gone = await scene.attend()
    await crash(scene.store, gone)
    assert await scene.store.sweep(1) == NOTHING
    assert await scene.state(attempt.id) is S.RUNNING


async def test_workers_that_ended_are_shown_for_a_while(scene: Scene) -> None:
    kept = [await scene.attend() for _ in range(2)]
    gone = [await scene.attend() for _ in range(23)]
    for slot in gone:
        await goodbye(scene.store, slot)
    views = await scene.store.workers()
    alive = {view.info.id for view in views if view.alive}
    ended = {view.info.id for view in views if not view.alive}
    assert alive == {slot.worker for slot in kept}
    assert ended == {slot.worker for slot in gone[-20:]}


async def test_running_counts_what_is_owned(scene: Scene) -> None:
    slot, idle = await scene.attend(), await scene.attend()
    await scene.accepted(*some_jobs(3))
    attempts = await scene.claim(slot, most=3)
    await scene.store.cancel([attempts[0].id])
    await scene.finish(done(attempts[1]))
    counts = {view.info.id: view.running for view in await scene.store.workers()}
    assert counts == {slot.worker: {"work": 2}, idle.worker: {}}


async def test_renewals_change_a_number(store: Store) -> None:
    mine, other = new_id(), new_id()
    await store.renew(mine, "one")
    await store.renew(other, "two")
    first = {view.id: view for view in await store.dispatchers()}
    assert {view.name for view in first.values()} == {"one", "two"}
    await store.renew(mine, "one")
    second = {view.id: view for view in await store.dispatchers()}
    assert second[mine].renewed_no > first[mine].renewed_no
    assert second[mine].started_at == first[mine].started_at
    assert second[other] == first[other]


async def test_retired_dispatcher_is_shown_no_more(store: Store) -> None:
    mine = new_id()
    await store.renew(mine, "one")
    await store.retire(mine)
    await store.retire(mine)
    assert await store.dispatchers() == []
    await store.renew(mine, "one")
    assert [view.id for view in await store.dispatchers()] == [mine]


async def test_dispatcher_is_forgotten_when_it_attends_nobody(scene: Scene) -> None:
    slot = await scene.attend()
    await scene.store.renew(scene.dispatcher, "gone")
    await scene.store.forget_dispatcher(scene.dispatcher)
    assert [view.id for view in await scene.store.dispatchers()] == [scene.dispatcher]
    await crash(scene.store, slot)
    await scene.store.forget_dispatcher(scene.dispatcher)
    await scene.store.forget_dispatcher(scene.dispatcher)
    assert await scene.store.dispatchers() == []


async def test_adoption_does_not_end_a_drain_that_was_asked_for(scene: Scene) -> None:
    info = a_worker()
    await scene.attend(info)
    assert await scene.store.set_draining(info.id, True)
    moved = Scene(scene.store)
    slot = await moved.attend(info)
    assert [view.draining for view in await scene.store.workers()] == [True]
    await moved.accepted(a_job())
    assert await moved.claim(slot) == []


async def test_adopted_worker_that_drains_says_so(scene: Scene) -> None:
    info = a_worker()
    await scene.attend(info)
    await scene.store.attend(scene.dispatcher, info, draining=True)
    assert [view.draining for view in await scene.store.workers()] == [True]


async def test_dispatcher_finds_the_drains_of_its_own_live_workers(scene: Scene) -> None:
    drained, gone, _open = [await scene.attend() for _ in range(3)]
    elsewhere = await Scene(scene.store).attend()
    for slot in (drained, gone, elsewhere):
        await scene.store.set_draining(slot.worker, True)
    await crash(scene.store, gone)
    assert await scene.store.draining(scene.dispatcher) == [drained.worker]
    await scene.store.set_draining(drained.worker, False)
    assert await scene.store.draining(scene.dispatcher) == []


async def test_heartbeat_is_shown_with_its_worker(scene: Scene) -> None:
    slot, silent = await scene.attend(), await scene.attend()
    await scene.store.beat(scene.dispatcher, {slot.worker: Stats(12.5, 75.0)})
    await scene.store.beat(scene.dispatcher, {slot.worker: Stats(25.0, 50.0)})
    await scene.store.beat(scene.dispatcher, {})
    views = {view.info.id: view for view in await scene.store.workers()}
    heard, unheard = views[slot.worker], views[silent.worker]
    assert (heard.cpu_percent, heard.memory_percent) == (25.0, 50.0)
    assert heard.seen_at is not None
    assert heard.seen_at >= heard.attended_at
    assert (unheard.cpu_percent, unheard.memory_percent) == (None, None)
    assert unheard.seen_at == unheard.attended_at


async def test_heartbeat_of_no_number_does_not_keep_others_from_theirs(scene: Scene) -> None:
    slots = [await scene.attend() for _ in range(3)]
    odd = [Stats(nan, inf), Stats(-inf, 1e308), Stats(25.0, 50.0)]
    await scene.store.beat(
        scene.dispatcher, {slot.worker: stats for slot, stats in zip(slots, odd, strict=True)}
    )
    views = {view.info.id: view for view in await scene.store.workers()}
    sound = views[slots[-1].worker]
    assert (sound.cpu_percent, sound.memory_percent) == (25.0, 50.0)


async def test_heartbeat_of_a_lost_or_moved_worker_is_dropped(scene: Scene) -> None:
    """G2: what a dispatcher says of a worker that is not its own any more counts for nothing."""
    lost, info = await scene.attend(), a_worker()
    await scene.attend(info)
    await Scene(scene.store).attend(info)
    await crash(scene.store, lost)
    stats = dict.fromkeys((lost.worker, info.id, new_id()), Stats(1.0, 1.0))
    await scene.store.beat(scene.dispatcher, stats)
    assert [view.cpu_percent for view in await scene.store.workers()] == [None, None]


async def test_the_loss_of_a_worker_is_no_crash_of_a_kind_that_is_declared_so(scene: Scene) -> None:
    kinds = {"echo": KindInfo(lost_free=True), "other": KindInfo()}
    slot = await scene.attend(structs.replace(a_worker(), kinds=kinds))
    free, other = [await scene.running(a_job(kind=kind), slot) for kind in ("echo", "other")]
    await crash(scene.store, slot, limit=1)
    freed, crashed = [await scene.store.job(one.id) for one in (free, other)]
    assert freed is not None
    assert crashed is not None
    assert (freed.state, freed.crashes) == (S.READY, 0)
    assert (crashed.state, crashed.crashes) == (S.FAILED, 1)
