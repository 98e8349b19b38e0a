"""Limits of actors' turns: no turn starts where it is made, and a claim never goes above."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.actor import ActorStatus, ActorTerms, NewActor
from longshore.model.job import Options
from longshore.model.limits import JobLimit
from longshore.ports import Batch
from longshore.testing.actor_builders import ActorScene, a_message, an_actor, names, taken
from longshore.testing.builders import Scene

from .test_actor_starts import offered, pump

KEY = "api=maps"


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


def limited(key: str, most: int = 1) -> NewActor:
    terms = ActorTerms(options=Options(limits=(JobLimit(KEY, most),)))
    return structs.replace(an_actor(key), terms=terms)


async def all_asleep(actors: ActorScene, *keys: str, most: int = 1) -> None:
    """Starts actors whose first turns end, as many at once as the limit lets."""
    await actors.start(*(limited(key, most) for key in keys))
    ended = 0
    while ended < len(keys):
        turns = await actors.claim()
        assert 1 <= len(turns) <= most
        await actors.pump(*map(taken, turns))
        ended += len(turns)


async def test_a_message_starts_no_turn_that_has_limits(actors: ActorScene) -> None:
    await all_asleep(actors, "a", "b")
    for key in "ab":
        batch = Batch(sends=[a_message("add", key=key)], for_dependents=offered(actors.slot, 5))
        result = await pump(actors, batch)
        assert result.turns == []
    [first] = await actors.claim()
    view = await actors.store.limit_key(KEY)
    assert (view.holders, view.is_waited_for) == ((first.number,), True)
    assert await actors.claim() == []
    await actors.take(first)
    [second] = await actors.claim()
    assert names(second) == ["add"]
    await actors.take(second)
    assert (await actors.store.limit_key(KEY)).held == 0


async def test_the_end_of_a_turn_gives_its_slot_to_another_actor(actors: ActorScene) -> None:
    """Its own next turn is made by that end, and waits behind the others."""
    await all_asleep(actors, "a", "b")
    await actors.send(a_message("first", key="a"), a_message("first", key="b"))
    [turn] = await actors.claim()
    await actors.send(a_message("second", key="a"))
    result = await pump(actors, Batch([taken(turn)], for_dependents=offered(actors.slot, 5)))
    assert result.turns == []
    [other] = await actors.claim()
    assert names(other) == ["first"]
    await actors.take(other)
    [last] = await actors.claim()
    assert names(last) == ["second"]


async def test_turns_without_limits_start_beside_those_that_have_some(actors: ActorScene) -> None:
    await all_asleep(actors, "a")
    await actors.sleeping(an_actor("free"))
    send = Batch(sends=[a_message("add", key="free")], for_dependents=offered(actors.slot, 5))
    assert len((await pump(actors, send)).turns) == 1
    assert await actors.status("a") is ActorStatus.SLEEPING


async def test_as_many_turns_run_at_once_as_the_key_lets(actors: ActorScene) -> None:
    keys = [f"k{n}" for n in range(5)]
    await all_asleep(actors, *keys, most=2)
    await actors.send(*(a_message("add", key=key) for key in keys))
    assert len(await actors.claim()) == 2
    assert await actors.claim() == []
