"""Watched jobs: however one ends, its watchers hear of each round once, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

import pytest
from msgspec import structs

from longshore.errors import StoreUnavailable
from longshore.model.actor import ActorVerdict, Concluded, MailAction
from longshore.model.batch import BATCH_BYTES
from longshore.model.ends import Cancelled, Crashed, End, Failed, Retried, Skipped, Succeeded
from longshore.model.ids import watched_id
from longshore.model.job import JobState, Reason, RetryVerdict, Submission
from longshore.model.reports import OutboxJob
from longshore.model.retention import Retention
from longshore.ports import Told
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    concluded,
    given,
    names,
    taken,
    watched,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import RAISED, Scene, a_group, a_job, done, lane
from longshore.testing.faults import Fault, FaultyStore, scripted

ROUNDS: Final = 8


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    """An actor that sleeps, and a worker for its turns and for jobs."""
    actors = await ActorScene.begin(scene)
    await actors.sleeping()
    return actors


@pytest.fixture
async def rival(backend: Backend, actors: ActorScene) -> AsyncIterator[ActorScene]:
    """Another dispatcher with a worker, on its own connection to the same database."""
    async with backend.opened() as store:
        yield await ActorScene.begin(Scene(store))


async def outcomes(actors: ActorScene) -> list[Concluded]:
    """What the next turn of the actor hears, which is all outcomes; the turn is taken."""
    while not (claimed := await actors.claim(most=1)):
        pass
    [attempt] = claimed
    assert {event.name for event in given(attempt).events} == {"outcome:done"}
    await actors.take(attempt)
    return [concluded(event) for event in given(attempt).events]


# however it ends


async def test_actor_hears_of_the_success_of_a_job(actors: ActorScene) -> None:
    job = watched(a_job(), about=b"\x07")
    attempt = await actors.scene.running(job, actors.slot)
    result = await actors.pump(done(attempt, result=b"\x2a"))
    assert result.watched
    assert await actors.claim() == []
    told = await actors.store.tell_watchers()
    assert (told.ends, dict(told.ready), told.more) == (1, {lane(kind=f"{TYPE}@1"): 1}, False)
    turn = await actors.turn()
    [event] = given(turn).events
    assert (event.name, event.id) == ("outcome:done", watched_id(job.id, 1, 0))
    succeeded = JobState.SUCCEEDED
    assert concluded(event) == Concluded(job.id, 1, succeeded, b"\x2a", None, b"\x07")
    assert await actors.store.tell_watchers() == Told()


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        (Succeeded, JobState.SUCCEEDED, None),
        (Failed, JobState.FAILED, Reason.RAISED),
        (Skipped, JobState.SKIPPED, None),
        (Cancelled, JobState.CANCELLED, None),
    ],
)
async def test_every_end_of_an_attempt_is_told(
    actors: ActorScene, how: type[End], state: JobState, reason: Reason | None
) -> None:
    """Beside ends of jobs that nobody watches, in one batch and alone."""
    first, second = watched(a_job()), watched(a_job())
    [one, two] = [await actors.scene.running(job, actors.slot) for job in (first, second)]
    other = await actors.scene.running(slot=actors.slot)
    if how is Cancelled:
        await actors.store.cancel([one.id, two.id])
    await actors.pump(done(one, how), done(other))
    await actors.pump(done(two, how))
    await actors.store.tell_watchers()
    heard = await outcomes(actors)
    assert [end.subject for end in heard] == [first.id, second.id]
    assert {end.state for end in heard} == {state}
    assert {end.error.reason if end.error else None for end in heard} == {reason}


async def test_attempt_that_does_not_end_its_job_tells_nobody(actors: ActorScene) -> None:
    attempt = await actors.scene.running(watched(a_job()), actors.slot)
    result = await actors.pump(done(attempt, Retried, delay_s=60.0))
    assert not result.watched
    assert await actors.store.tell_watchers() == Told()


async def test_poisonous_job_is_told_with_its_reason(actors: ActorScene) -> None:
    attempt = await actors.scene.running(watched(a_job()), actors.slot)
    await actors.pump(done(attempt, Crashed, crash_limit=1))
    await actors.store.tell_watchers()
    [end] = await outcomes(actors)
    assert end.error is not None
    assert (end.state, end.error.reason) == (JobState.FAILED, Reason.POISONOUS)


async def test_cancel_of_a_job_that_does_not_run_is_told(actors: ActorScene) -> None:
    job = watched(a_job(delay_s=60.0))
    await actors.scene.submit(job)
    await actors.store.cancel([job.id])
    await actors.store.tell_watchers()
    [end] = await outcomes(actors)
    assert (end.subject, end.state) == (job.id, JobState.CANCELLED)


async def test_expiry_is_told(actors: ActorScene) -> None:
    job = watched(a_job(expires_s=0.001))
    await actors.scene.submit(job)
    while not await actors.store.expire():
        pass
    await actors.store.tell_watchers()
    [end] = await outcomes(actors)
    assert end.error is not None
    assert (end.state, end.error.reason) == (JobState.FAILED, Reason.EXPIRED)


async def test_loss_that_ends_a_job_is_told(actors: ActorScene) -> None:
    slot = await actors.scene.attend()
    job = watched(a_job())
    await actors.scene.running(job, slot)
    lost = await actors.store.harvest(
        slot.worker, slot.session, "it is gone", crash=True, crash_limit=1
    )
    assert [one.id for one in lost.ended] == [job.id]
    await actors.store.tell_watchers()
    [end] = await outcomes(actors)
    assert (end.subject, end.state) == (job.id, JobState.FAILED)


async def test_job_that_starts_at_its_submit_is_watched_too(actors: ActorScene) -> None:
    """Alone in its batch, and with one that nobody watches."""
    jobs = [watched(a_job()), watched(a_job()), a_job()]
    await actors.scene.accepted(a_job())
    started = (await actors.scene.pump(submits=jobs[:1], slots=[actors.slot])).started
    started += (await actors.scene.pump(submits=jobs[1:], slots=[actors.slot] * 2)).started
    assert [one.id for one in started] == [job.id for job in jobs]
    await actors.pump(*map(done, started))
    await actors.store.tell_watchers()
    assert {end.subject for end in await outcomes(actors)} == {job.id for job in jobs[:2]}


async def test_watched_job_is_told_beside_ends_of_a_group(actors: ActorScene) -> None:
    group = await actors.scene.submit_group(a_group({"a": "", "b": "a", "c": "b"}))
    for _ in "ab":
        [node] = await actors.scene.claim(actors.slot)
        job = watched(a_job(priority=1))
        attempt = await actors.scene.running(job, actors.slot)
        await actors.pump(done(node), done(attempt))
        await group.settle()
        await actors.store.tell_watchers()
        assert [end.subject for end in await outcomes(actors)] == [job.id]


# who hears of it


async def test_two_watchers_each_hear_of_it(actors: ActorScene) -> None:
    await actors.sleeping(an_actor("b"))
    job = watched(watched(a_job(), about=b"\x01"), "b", name="other", about=b"\x02")
    await actors.pump(done(await actors.scene.running(job, actors.slot)))
    assert (await actors.store.tell_watchers()).ends == 1
    assert await actors.mail_names() == ["outcome:done"]
    assert await actors.mail_names("b") == ["outcome:other"]


async def test_turn_that_submits_a_job_hears_of_it(actors: ActorScene) -> None:
    await actors.send(a_message("go"))
    job = watched(a_job())
    await actors.take(await actors.turn(), outbox=[OutboxJob(job)])
    [attempt] = await actors.scene.claim(actors.slot)
    await actors.pump(done(attempt))
    await actors.store.tell_watchers()
    assert [end.subject for end in await outcomes(actors)] == [job.id]


async def test_turn_hears_of_a_watched_job_that_cannot_be_stored(actors: ActorScene) -> None:
    await actors.send(a_message("go"))
    job = watched(structs.replace(a_job(), queue="a\0b"), about=b"\x07")
    await actors.take(await actors.turn(), outbox=[OutboxJob(job)])
    [end] = await outcomes(actors)
    assert end.error is not None
    assert (end.subject, end.state, end.about) == (job.id, JobState.FAILED, b"\x07")
    assert "NUL" in end.error.message


async def test_actor_that_is_gone_is_noted_in_the_history(actors: ActorScene) -> None:
    kept, lost = watched(a_job(), "b"), watched(watched(a_job(), "b"), "c")
    await actors.sleeping(an_actor("b"))
    ends = [await actors.scene.running(job, actors.slot) for job in (kept, lost)]
    await actors.pump(done(ends[0]))
    await actors.store.tell_watchers()
    assert await actors.store.stop_actor(TYPE, "b") is ActorVerdict.DONE
    await actors.pump(done(ends[1], info="well done"))
    assert (await actors.store.tell_watchers()).ends == 1
    gone = "actor counter '{}', which watched it, is gone"
    [*_, last] = (await actors.scene.job(lost.id)).history
    assert last.info == f"well done; {gone.format('b')}; {gone.format('c')}"
    [*_, last] = (await actors.scene.job(kept.id)).history
    assert last.info == ""


async def test_paused_actor_hears_of_it_when_it_goes_on(actors: ActorScene) -> None:
    attempt = await actors.scene.running(watched(a_job()), actors.slot)
    await actors.store.pause_actor(TYPE, KEY, True)
    await actors.pump(done(attempt))
    told = await actors.store.tell_watchers()
    assert (told.ends, dict(told.ready)) == (1, {})
    assert await actors.claim() == []
    await actors.store.pause_actor(TYPE, KEY, False)
    assert [end.subject for end in await outcomes(actors)] == [attempt.id]


async def test_outcome_can_be_parked_like_any_message(actors: ActorScene) -> None:
    await actors.pump(done(await actors.scene.running(watched(a_job()), actors.slot)))
    await actors.store.tell_watchers()
    assert await actors.store.sort_mail(TYPE, KEY, 1, MailAction.PARK) is ActorVerdict.DONE
    assert await actors.claim() == []


# rounds


async def test_retry_by_hand_is_told_again(actors: ActorScene) -> None:
    job = watched(a_job())
    await actors.pump(done(await actors.scene.running(job, actors.slot), Failed))
    await actors.store.tell_watchers()
    [first] = await outcomes(actors)
    assert await actors.store.retry([job.id]) == [(job.id, RetryVerdict.RETRIED)]
    assert await actors.store.tell_watchers() == Told()
    [attempt] = await actors.scene.claim(actors.slot)
    await actors.pump(done(attempt, result=b"\x2a"))
    await actors.store.tell_watchers()
    [second] = await outcomes(actors)
    assert (first.round, first.state) == (1, JobState.FAILED)
    assert (second.round, second.state, second.result) == (2, JobState.SUCCEEDED, b"\x2a")


async def test_round_that_a_retry_follows_at_once_is_told_as_it_ended(actors: ActorScene) -> None:
    job = watched(a_job())
    await actors.pump(done(await actors.scene.running(job, actors.slot), Failed))
    await actors.store.retry([job.id])
    [attempt] = await actors.scene.claim(actors.slot)
    await actors.pump(done(attempt))
    assert (await actors.store.tell_watchers()).ends == 2
    first, second = await outcomes(actors)
    assert (first.round, first.state, first.error) == (1, JobState.FAILED, RAISED)
    assert (second.round, second.state, second.error) == (2, JobState.SUCCEEDED, None)


async def test_end_of_a_job_that_is_removed_at_once_is_told(actors: ActorScene) -> None:
    job = watched(a_job())
    await actors.pump(done(await actors.scene.running(job, actors.slot)))
    await actors.store.prune(Retention(seconds={JobState.SUCCEEDED: 0.0}))
    assert await actors.store.job(job.id) is None
    await actors.store.tell_watchers()
    assert [end.subject for end in await outcomes(actors)] == [job.id]


async def test_many_ends_are_told_in_steps_and_in_their_order(actors: ActorScene) -> None:
    jobs = [watched(a_job()) for _ in range(5)]
    for job in jobs:
        await actors.pump(done(await actors.scene.running(job, actors.slot)))
    steps = [await actors.store.tell_watchers(2) for _ in range(3)]
    assert [(told.ends, told.more) for told in steps] == [(2, True), (2, True), (1, False)]
    assert [end.subject for end in await outcomes(actors)] == [job.id for job in jobs]


async def test_ends_with_large_results_are_told_a_few_at_a_time(actors: ActorScene) -> None:
    large = bytes(BATCH_BYTES // 2)
    for _ in range(3):
        attempt = await actors.scene.running(watched(a_job()), actors.slot)
        await actors.pump(done(attempt, result=large))
    steps = [await actors.store.tell_watchers() for _ in range(2)]
    assert [(told.ends, told.more) for told in steps] == [(2, True), (1, False)]


# what dies


async def test_end_that_is_repeated_after_a_lost_answer_is_told_once(actors: ActorScene) -> None:
    faulty = FaultyStore(actors.store, scripted(("pump", Fault.AFTER)))
    scene = Scene(faulty, actors.scene.dispatcher)
    attempt = await actors.scene.running(watched(a_job()), actors.slot)
    with pytest.raises(StoreUnavailable):
        await scene.finish(done(attempt))
    again = await scene.pump([done(attempt)])
    assert not again.watched
    assert (await actors.store.tell_watchers()).ends == 1
    assert len(await outcomes(actors)) == 1


async def test_outcome_is_told_once_if_the_answer_to_the_telling_is_lost(
    actors: ActorScene,
) -> None:
    faulty = FaultyStore(
        actors.store, scripted(("tell_watchers", Fault.BEFORE), ("tell_watchers", Fault.AFTER))
    )
    await actors.pump(done(await actors.scene.running(watched(a_job()), actors.slot)))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await faulty.tell_watchers()
    assert await faulty.tell_watchers() == Told()
    assert len(await outcomes(actors)) == 1


async def test_another_dispatcher_tells_what_a_dead_one_left(
    actors: ActorScene, rival: ActorScene
) -> None:
    await actors.pump(done(await actors.scene.running(watched(a_job()), actors.slot)))
    assert (await rival.store.tell_watchers()).ends == 1
    assert await actors.store.tell_watchers() == Told()
    assert len(await outcomes(rival)) == 1


# at the same moment


async def test_two_that_end_and_tell_at_once_tell_each_end_once(
    actors: ActorScene, rival: ActorScene
) -> None:
    for _ in range(ROUNDS):
        jobs: list[tuple[ActorScene, Submission]] = [
            (one, watched(a_job())) for one in (actors, rival) for _ in range(3)
        ]
        ends = [(one, done(await one.scene.running(job, one.slot))) for one, job in jobs]
        steps = [_end_and_tell(one, end) for one, end in ends]
        await asyncio.gather(*steps)
        while (await actors.store.tell_watchers()).ends:
            pass
        heard: list[UUID] = []
        while len(heard) < len(jobs):
            heard += [end.subject for end in await outcomes(actors)]
        assert sorted(heard) == sorted(job.id for _, job in jobs)
        assert (await actors.actor()).unread == 0


async def _end_and_tell(actors: ActorScene, end: End) -> None:
    await actors.pump(end)
    await actors.store.tell_watchers()


async def test_job_that_ends_while_the_actor_stops_is_told_or_noted(
    actors: ActorScene, rival: ActorScene
) -> None:
    """Both ways: the message goes with the actor, or the history says that it is gone."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        job = watched(a_job(), key)
        attempt = await actors.scene.running(job, actors.slot)
        await asyncio.gather(
            _end_and_tell(actors, done(attempt)), rival.store.stop_actor(TYPE, key)
        )
        await actors.store.tell_watchers()
        assert await actors.store.actor(TYPE, key) is None
        [*_, last] = (await actors.scene.job(job.id)).history
        assert last.info in ("", f"actor counter '{key}', which watched it, is gone")
        assert await actors.store.tell_watchers() == Told()


async def test_outcome_at_the_commit_of_a_turn_wakes_the_next_one(
    actors: ActorScene, rival: ActorScene
) -> None:
    for _ in range(ROUNDS):
        job = watched(a_job())
        attempt = await actors.scene.running(job, actors.slot)
        await actors.send(a_message("go"))
        while not (claimed := await actors.claim(most=1)):
            pass
        assert names(claimed[0]) == ["go"]
        await rival.scene.finish(done(attempt))
        await asyncio.gather(actors.pump(taken(claimed[0])), rival.store.tell_watchers())
        assert [end.subject for end in await outcomes(actors)] == [job.id]
        assert await actors.status() == "sleeping"
