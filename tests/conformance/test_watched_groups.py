"""Watched groups: their watchers hear of each end once; and groups that turns submit."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from longshore.errors import StoreUnavailable
from longshore.model.actor import Concluded
from longshore.model.attempt import Attempt
from longshore.model.ends import Failed, TurnTaken
from longshore.model.group import GroupHead, GroupPart, GroupState, GroupSubmitted, GroupVerdict
from longshore.model.job import JobState, Refused
from longshore.model.reports import OutboxGroup
from longshore.model.watcher import ActorWatcher
from longshore.ports import Told
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    concluded,
    given,
    taken,
    undelivered,
)
from longshore.testing.builders import Scene, a_group, a_job, done, new_id
from longshore.testing.faults import Fault, FaultyStore, scripted


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    """An actor that sleeps, and a worker for its turns and for jobs."""
    actors = await ActorScene.begin(scene)
    await actors.sleeping()
    return actors


def watched(part: GroupPart, about: bytes = b"") -> GroupPart:
    """The group, watched by the actor."""
    watchers = (ActorWatcher(TYPE, KEY, "done", about),)
    return structs.replace(part, head=structs.replace(part.head, watchers=watchers))


def an_empty_group() -> GroupPart:
    return watched(GroupPart(GroupHead(new_id(), "none", 0), 0, ()))


async def outcomes(actors: ActorScene) -> list[Concluded]:
    """What the next turn of the actor hears, which is all outcomes; the turn is taken."""
    attempt = await actors.turn()
    assert {event.name for event in given(attempt).events} == {"outcome:done"}
    await actors.take(attempt)
    return [concluded(event) for event in given(attempt).events]


async def run(actors: ActorScene, how: type[Failed] | None = None) -> None:
    """All jobs that are ready run, and what becomes ready by them."""
    while some := await actors.scene.claim(actors.slot, most=9):
        await actors.pump(*(done(one, how) if how else done(one) for one in some))
        await actors.scene.settle()


async def test_actor_hears_of_the_end_of_a_group(actors: ActorScene) -> None:
    part = watched(a_group({"a": "", "b": "a"}), b"\x07")
    assert isinstance(await actors.store.submit_group(part), GroupSubmitted)
    await run(actors)
    assert (await actors.store.tell_watchers()).ends == 1
    heard = Concluded(part.head.id, 1, JobState.SUCCEEDED, about=b"\x07", is_group=True)
    assert await outcomes(actors) == [heard]
    assert await actors.store.tell_watchers() == Told()


async def test_settle_says_that_a_watched_group_has_ended(actors: ActorScene) -> None:
    await actors.store.submit_group(watched(a_group({"a": ""})))
    await actors.store.submit_group(a_group({"a": ""}))
    for is_watched in (True, False):
        [attempt] = await actors.scene.claim(actors.slot)
        await actors.pump(done(attempt))
        assert (await actors.store.settle()).watched is is_watched


async def test_cancelled_and_failed_groups_are_told(actors: ActorScene) -> None:
    failing, cancelled = watched(a_group({"a": ""})), watched(a_group({"a": ""}))
    await actors.store.submit_group(failing)
    await run(actors, Failed)
    await actors.store.submit_group(cancelled)
    assert await actors.store.cancel_group(cancelled.head.id) is GroupVerdict.CANCELLING
    await actors.scene.settle()
    await actors.store.tell_watchers()
    heard = [(end.subject, end.state) for end in await outcomes(actors)]
    states = [(failing.head.id, JobState.FAILED), (cancelled.head.id, JobState.CANCELLED)]
    assert heard == states


async def test_group_without_jobs_is_told_at_once(actors: ActorScene) -> None:
    part = an_empty_group()
    answer = await actors.store.submit_group(part)
    assert isinstance(answer, GroupSubmitted)
    assert answer.state is GroupState.SUCCEEDED
    await actors.store.tell_watchers()
    assert [end.subject for end in await outcomes(actors)] == [part.head.id]
    await actors.store.submit_group(part)
    assert await actors.store.tell_watchers() == Told()


async def test_retry_of_a_group_is_told_again(actors: ActorScene) -> None:
    part = watched(a_group({"a": ""}))
    await actors.store.submit_group(part)
    await run(actors, Failed)
    await actors.store.retry_group(part.head.id)
    await actors.scene.settle()
    await run(actors)
    assert (await actors.store.tell_watchers()).ends == 2
    heard = [(end.round, end.state) for end in await outcomes(actors)]
    assert heard == [(1, JobState.FAILED), (2, JobState.SUCCEEDED)]


async def test_other_watchers_under_one_id_are_a_conflict(actors: ActorScene) -> None:
    part = a_group({"a": ""})
    await actors.store.submit_group(part)
    assert isinstance(await actors.store.submit_group(watched(part)), Refused)


async def test_lost_answer_of_the_settle_that_ends_it_is_told_once(actors: ActorScene) -> None:
    faulty = FaultyStore(actors.store, scripted(("settle", Fault.AFTER)))
    await actors.store.submit_group(watched(a_group({"a": ""})))
    [attempt] = await actors.scene.claim(actors.slot)
    await actors.pump(done(attempt))
    with pytest.raises(StoreUnavailable):
        await faulty.settle()
    await Scene(faulty).settle()
    assert (await actors.store.tell_watchers()).ends == 1
    assert len(await outcomes(actors)) == 1


# of turns


async def test_turn_submits_a_group_with_its_commit(actors: ActorScene) -> None:
    part = watched(a_group({"a": "", "b": "a"}))
    await actors.send(a_message("go"))
    turn = await actors.turn()
    assert await actors.store.group(part.head.id) is None
    result = await actors.pump(taken_with(turn, part))
    assert sum(result.ready_by_ends.values()) == 1
    assert part.head.id in result.groups
    await run(actors)
    group = await actors.store.group(part.head.id)
    assert group is not None
    assert group.state is GroupState.SUCCEEDED
    await actors.store.tell_watchers()
    assert [end.subject for end in await outcomes(actors)] == [part.head.id]


async def test_turn_that_is_late_submits_no_group(actors: ActorScene) -> None:
    part = watched(a_group({"a": ""}))
    await actors.send(a_message("go"))
    turn = await actors.turn()
    await actors.take(turn)
    await actors.pump(taken_with(turn, part))
    assert await actors.store.group(part.head.id) is None


async def test_turn_that_submits_an_empty_group_says_that_it_is_watched(
    actors: ActorScene,
) -> None:
    await actors.send(a_message("go"))
    result = await actors.pump(taken_with(await actors.turn(), an_empty_group()))
    assert result.watched
    await actors.store.tell_watchers()
    assert len(await outcomes(actors)) == 1


@pytest.mark.parametrize("is_watched", [True, False])
async def test_turn_hears_of_a_group_that_is_refused(actors: ActorScene, is_watched: bool) -> None:
    """Nothing of the group is stored, and the rest of the turn counts."""
    await actors.scene.accepted(a_job(unique_key="k", delay_s=60.0))
    part = a_group({"a": "", "b": ""}, jobs={"b": a_job(unique_key="k")})
    part = watched(part) if is_watched else part
    await actors.send(a_message("go"))
    await actors.pump(taken_with(await actors.turn(), part))
    assert (await actors.actor()).turn == 2
    assert await actors.store.group(part.head.id) is None
    [event] = given(await actors.turn()).events
    if is_watched:
        end = concluded(event)
        assert end.error is not None
        assert (end.subject, end.state, end.is_group) == (part.head.id, JobState.FAILED, True)
        why = end.error.message
    else:
        lost = undelivered(event)
        assert (lost.type, lost.name) == ("", "g")
        why = lost.why
    assert "unique key" in why


async def test_groups_of_several_turns_are_each_told_once(actors: ActorScene) -> None:
    parts = [watched(a_group({"a": "", "b": "a"})) for _ in range(4)]
    for part in parts:
        await actors.send(a_message("go"))
        await actors.pump(taken_with(await actors.turn(), part))
    await run(actors)
    await asyncio.gather(*(actors.store.tell_watchers() for _ in parts))
    heard = [end.subject for end in await outcomes(actors)]
    assert sorted(heard) == sorted(part.head.id for part in parts)


def taken_with(turn: Attempt, part: GroupPart) -> TurnTaken:
    return taken(turn, outbox=[OutboxGroup(part)])
