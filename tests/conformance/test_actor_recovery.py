"""Turns that recover from an event that has failed for good, as stores see them."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.actor import ActorTerms, MailAction
from longshore.model.attempt import Attempt
from longshore.model.ends import Released, Retried
from longshore.model.job import JobState, Options, Reason, RetryPolicy
from longshore.model.worker import KindInfo
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
)
from longshore.testing.builders import RAISED, Scene, a_worker, done


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    """An actor whose turns are tried twice, and that sleeps."""
    actors = await ActorScene.begin(scene)
    retry = RetryPolicy(attempts=2)
    await actors.sleeping(an_actor(terms=ActorTerms(options=Options(retry=retry))))
    return actors


async def recovering(actors: ActorScene, failures: int = 3) -> None:
    """The turn of the actor fails, and counts as so many failures."""
    attempt = await actors.turn()
    end = Retried(attempt.id, attempt.token, RAISED, 0.0, failures=failures)
    await actors.pump(end)
    await actors.store.promote()


async def test_turn_with_more_failures_than_attempts_gets_the_event_and_the_error(
    actors: ActorScene,
) -> None:
    await actors.send(a_message("a"), a_message("b"))
    await recovering(actors)
    turn = await actors.turn()
    assert (turn.failures, names(turn), given(turn).failure) == (3, ["a"], RAISED)


async def test_turn_with_fewer_failures_is_an_ordinary_one(actors: ActorScene) -> None:
    await actors.send(a_message("a"), a_message("b"))
    await recovering(actors, failures=2)
    turn = await actors.turn()
    assert (names(turn), given(turn).failure) == (["a"], None)


async def test_recovery_that_is_handed_back_or_lost_is_one_again(actors: ActorScene) -> None:
    await actors.send(a_message("a"))
    await recovering(actors)
    await actors.pump(done(await actors.turn(), Released))
    slot = await actors.scene.attend(kinds=[f"{TYPE}@1"])
    [lost] = (await ActorScene(actors.scene, slot).claim())[:1]
    await actors.store.harvest(slot.worker, slot.session, "gone", crash=True, crash_limit=3)
    turn = await actors.turn()
    assert turn.id == lost.id
    assert given(turn).failure == RAISED


async def lose(actors: ActorScene, *, recovers: bool) -> Attempt:
    """A worker gets the turn of the actor, and is lost with it."""
    kinds = {f"{TYPE}@1": KindInfo(recovers=recovers)}
    slot = await actors.scene.attend(structs.replace(a_worker(), kinds=kinds))
    [turn] = await ActorScene(actors.scene, slot).claim()
    await actors.store.harvest(slot.worker, slot.session, "gone", crash=True, crash_limit=2)
    return turn


async def test_turn_whose_workers_are_lost_with_it_gets_the_chance_to_recover(
    actors: ActorScene,
) -> None:
    """Its handler kills its worker for good, say. If its recovery does too, the actor failed."""
    await actors.send(a_message("a"), a_message("b"))
    await lose(actors, recovers=True)
    alone = await lose(actors, recovers=True)
    assert (names(alone), given(alone).failure) == (["a"], None)
    recovery = await lose(actors, recovers=True)
    failure = given(recovery).failure
    assert failure is not None
    assert (names(recovery), failure.reason) == (["a"], Reason.POISONOUS)
    assert "crashed 2 times" in failure.message
    assert await actors.status() == "failed"


async def test_turn_of_a_class_that_cannot_recover_fails_with_its_workers(
    actors: ActorScene,
) -> None:
    await actors.send(a_message("a"))
    await lose(actors, recovers=False)
    await lose(actors, recovers=False)
    assert await actors.status() == "failed"


async def test_recovery_without_an_event_is_an_ordinary_turn(actors: ActorScene) -> None:
    await actors.send(a_message("a"))
    await recovering(actors)
    await actors.store.sort_mail(TYPE, KEY, 1, MailAction.DROP)
    await actors.send(a_message("b"))
    turn = await actors.turn()
    assert names(turn) == ["b"]


@pytest.mark.parametrize("delay_s", [None, 0.001])
async def test_turn_puts_a_message_aside(actors: ActorScene, delay_s: float | None) -> None:
    """Also a delayed one. It comes again when it is put back."""
    await actors.send(a_message("a", delay_s=delay_s), a_message("b"))
    while "a" not in names(turn := await next_turn(actors)):
        await actors.pump(done(turn, Released))
    [number] = [event.number for event in given(turn).events if event.name == "a"]
    end = taken(turn)
    left = structs.replace(
        end.turn,
        parks=(number,),
        read_delayed=tuple(one for one in end.turn.read_delayed if one != number),
    )
    await actors.pump(structs.replace(end, turn=left))
    assert [(mail.name, mail.parked) for mail in await actors.mail()] == [("a", True)]
    assert await actors.status() == "sleeping"
    await actors.store.sort_mail(TYPE, KEY, number, MailAction.PUT_BACK)
    assert names(await actors.turn()) == ["a"]


async def next_turn(actors: ActorScene) -> Attempt:
    while not (claimed := await actors.claim(most=1)):
        await actors.store.promote()
    return claimed[0]


async def test_turn_that_parks_what_is_not_there_changes_nothing(actors: ActorScene) -> None:
    await actors.send(a_message("a"))
    turn = await actors.turn()
    end = taken(turn)
    left = structs.replace(end.turn, parks=(7, 2**70))
    [answer] = (await actors.pump(structs.replace(end, turn=left))).finished
    assert answer.state is JobState.SUCCEEDED
    assert await actors.mail() == []
