"""Sessions that a worker numbers itself, and attempts that never reached it."""

from __future__ import annotations

import pytest

from longshore.model.job import Ended, JobState, Reason
from longshore.model.worker import Attended, Gone, Late, SessionKey
from longshore.ports import Harvested
from longshore.testing.builders import Scene, a_worker, lane, new_id, some_jobs

S = JobState


async def test_worker_may_number_its_first_session(scene: Scene) -> None:
    info = a_worker()
    answer = await scene.store.attend(scene.dispatcher, info, session=7)
    assert answer == Attended(7)
    await scene.accepted(*some_jobs(1))
    assert len(await scene.claim(SessionKey(info.id, 7))) == 1


async def test_later_session_takes_over_what_is_placed(scene: Scene) -> None:
    info = a_worker()
    await scene.store.attend(scene.dispatcher, info, session=3)
    attempt = await scene.running(slot=SessionKey(info.id, 3))
    adopter = Scene(scene.store)
    answer = await adopter.store.attend(adopter.dispatcher, info, session=8)
    assert isinstance(answer, Attended)
    assert answer.session == 8
    assert [(one.id, one.session) for one in answer.placed] == [(attempt.id, 8)]
    assert await scene.store.placed([SessionKey(info.id, 3)]) == []
    assert [one.id for one in await scene.store.placed([SessionKey(info.id, 8)])] == [attempt.id]


@pytest.mark.parametrize("session", [1, 4, 5])
async def test_session_asked_for_long_ago_does_not_end_the_present_one(
    scene: Scene, session: int
) -> None:
    """G2, G8: a late request changes nothing, neither who attends the worker nor what it has."""
    info = a_worker()
    await scene.store.attend(scene.dispatcher, info, session=5)
    attempt = await scene.running(slot=SessionKey(info.id, 5))
    before = await scene.store.workers()
    late = await Scene(scene.store).store.attend(
        new_id(), a_worker(id=info.id, name="old"), draining=True, session=session
    )
    assert late == Late(5)
    assert await scene.store.workers() == before
    assert [one.id for one in await scene.store.placed([SessionKey(info.id, 5)])] == [attempt.id]


async def test_session_without_a_number_is_the_next_one(scene: Scene) -> None:
    info = a_worker()
    await scene.store.attend(scene.dispatcher, info, session=5)
    assert await scene.store.attend(scene.dispatcher, info) == Attended(6)


async def test_lost_worker_is_gone_whatever_session_it_asks_for(scene: Scene) -> None:
    info = a_worker()
    await scene.store.attend(scene.dispatcher, info, session=5)
    await scene.store.harvest(info.id, 5, "silent", crash=True, crash_limit=3)
    for session in (4, 5, 6, None):
        answer = await scene.store.attend(scene.dispatcher, info, session=session)
        assert isinstance(answer, Gone)


async def test_loss_costs_nothing_for_what_never_reached_the_worker(scene: Scene) -> None:
    """An attempt that was not delivered cannot have crashed anybody."""
    await scene.accepted(*some_jobs(3))
    slot = await scene.attend()
    first, second, third = await scene.claim(slot, most=3)
    answer = await scene.store.harvest(
        slot.worker,
        slot.session,
        "silent",
        crash=True,
        crash_limit=1,
        undelivered=[second.token, third.token, 10**15],
    )
    blamed, *spared = [await scene.job(one.id) for one in (first, second, third)]
    ended = Ended(first.id, S.FAILED, None, blamed.error)
    assert answer == Harvested(True, 2, frozenset({lane()}), (ended,))
    assert (blamed.state, blamed.crashes) == (S.FAILED, 1)
    assert blamed.error is not None
    assert blamed.error.reason is Reason.POISONOUS
    for job, attempt in zip(spared, (second, third), strict=True):
        assert (job.state, job.crashes, job.worker) == (S.READY, 0, None)
        assert job.token > attempt.token


async def test_undelivered_attempt_that_is_being_cancelled_is_cancelled(scene: Scene) -> None:
    attempt = await scene.being_cancelled()
    answer = await scene.store.harvest(
        attempt.worker,
        attempt.session,
        "silent",
        crash=True,
        crash_limit=3,
        undelivered=[attempt.token],
    )
    assert answer == Harvested(True, ended=(Ended(attempt.id, S.CANCELLED),))
    assert await scene.state(attempt.id) is S.CANCELLED


async def test_with_another_key_nobody_takes_a_workers_id(scene: Scene) -> None:
    owner = a_worker(key="owner")
    await scene.store.attend(scene.dispatcher, owner, session=1)
    attempt = await scene.running(slot=SessionKey(owner.id, 1))
    for key in ("thief", ""):
        thief = a_worker(id=owner.id, key=key)
        answer = await scene.store.attend(scene.dispatcher, thief, session=2**62)
        assert answer == Gone("another worker has this id")
    adopter = Scene(scene.store)
    answer = await adopter.store.attend(adopter.dispatcher, owner, session=2)
    assert isinstance(answer, Attended)
    assert [one.id for one in answer.placed] == [attempt.id]
    assert [worker.info.key for worker in await scene.store.workers()] == ["owner"]


async def test_a_worker_known_without_a_key_may_bring_one(scene: Scene) -> None:
    """As after its dispatchers were brought up to date."""
    plain = a_worker()
    await scene.store.attend(scene.dispatcher, plain, session=1)
    keyed = a_worker(id=plain.id, key="own")
    assert await scene.store.attend(scene.dispatcher, keyed, session=2) == Attended(2)
