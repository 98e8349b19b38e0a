"""The job that hears of every commit of an actor: in the same transaction, exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import msgpack

from longshore.model.actor import ActorTerms, ActorVerdict, NewActor
from longshore.model.history import HistoryJob
from longshore.model.job import JobState, Options
from longshore.testing.actor_builders import TYPE, ActorScene, a_message, an_actor, taken
from longshore.testing.builders import Scene, lane

AUDIT = HistoryJob("audit", "slow", priority=3, options=Options(timeout_s=5.0))
LANE = lane("slow", "audit")


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


def heard_of(key: str = "a", state: bytes = b"\x00") -> NewActor:
    return an_actor(key, terms=ActorTerms(history=AUDIT), state=state)


async def heard(actors: ActorScene) -> list[tuple[Any, ...]]:
    """What the jobs say that are there by now, in their order; they are taken."""
    slot = await actors.scene.attend(kinds=["audit"])
    claimed = await actors.scene.claim(slot, LANE, most=100)
    said = [msgpack.decode(one.args) for one in sorted(claimed, key=lambda one: one.number)]
    assert all(one.options == AUDIT.options and one.priority == 3 for one in claimed)
    return [(one["type"], one["key"], one["turn"], one["what"], one["state"]) for one in said]


async def test_every_commit_is_heard_of(actors: ActorScene) -> None:
    new = heard_of()
    await actors.start(new)
    assert await heard(actors) == [(TYPE, "a", 0, "created", 0)]
    result = await actors.pump(taken(await actors.turn(), state=b"\x05"))
    assert result.ready_by_ends == {LANE: 1}
    edit = await actors.store.edit_actor(TYPE, "a", b"\x06", 1)
    assert edit is ActorVerdict.DONE
    await actors.store.pause_actor(TYPE, "a", True)
    await actors.store.stop_actor(TYPE, "a")
    assert await heard(actors) == [
        (TYPE, "a", 1, "updated", 5),
        (TYPE, "a", 2, "updated", 6),
        (TYPE, "a", 2, "removed", 6),
    ]


async def test_a_turn_that_stops_its_actor_is_heard_of_once(actors: ActorScene) -> None:
    await actors.start(heard_of())
    await actors.pump(taken(await actors.turn(), state=b"\x07", stops=True))
    assert [one[2:] for one in await heard(actors)] == [(0, "created", 0), (1, "removed", 7)]


async def test_an_actor_that_is_stopped_while_a_turn_runs_is_heard_of_when_it_is_gone(
    actors: ActorScene,
) -> None:
    await actors.start(heard_of())
    attempt = await actors.turn()
    await actors.store.stop_actor(TYPE, "a")
    assert [one[3] for one in await heard(actors)] == ["created"]
    await actors.pump(taken(attempt, state=b"\x09"))
    await actors.store.tend_actors()
    assert [one[2:] for one in await heard(actors)] == [(1, "updated", 9), (1, "removed", 9)]


async def test_a_repeat_is_not_heard_of_again(actors: ActorScene) -> None:
    new = heard_of()
    await actors.start(new)
    assert len(await actors.store.start_actors([new])) == 1
    await actors.store.start_actors([heard_of()], reuse=True)
    attempt = await actors.turn()
    await actors.pump(taken(attempt))
    await actors.pump(taken(attempt, state=b"\x02"))
    for _ in range(2):
        await actors.store.edit_actor(TYPE, "a", b"\x06", 1, turn=1)
    for _ in range(2):
        await actors.store.stop_actor(TYPE, "a")
    assert [one[3] for one in await heard(actors)] == ["created", "updated", "updated", "removed"]


async def test_others_are_not_heard_of(actors: ActorScene) -> None:
    await actors.sleeping(an_actor("b"))
    await actors.start(heard_of("a"))
    await actors.send(a_message(key="b"))
    await actors.pump(*map(taken, await actors.claim()))
    assert [(key, what) for _, key, _, what, _ in await heard(actors)] == [
        ("a", "created"),
        ("a", "updated"),
    ]


async def test_a_new_actor_under_an_old_key_is_heard_of_anew(actors: ActorScene) -> None:
    for _ in range(2):
        await actors.start(heard_of())
        await actors.store.stop_actor(TYPE, "a")
    assert [one[3] for one in await heard(actors)] == ["created", "removed"] * 2
    jobs = await actors.store.queues()
    assert sum(one.counts.get(JobState.RUNNING, 0) for one in jobs if one.name == "slow") == 4
