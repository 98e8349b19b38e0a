"""New turns of actors that start in the very batch which makes them."""

from __future__ import annotations

import pytest

from longshore.core.turns import turn_kind
from longshore.model.actor import ActorStatus
from longshore.model.worker import FreeWorker, OpenSlots, SessionKey
from longshore.ports import Batch, BatchResult
from longshore.testing.actor_builders import (
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
)
from longshore.testing.builders import Scene, a_group, done, lane, new_id

TURNS = lane(kind=turn_kind(TYPE, 1))


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


def offered(slot: SessionKey, many: int, *lanes: int) -> list[OpenSlots]:
    return [OpenSlots({*(lanes or (TURNS,))}, [FreeWorker(slot, many, 0)])]


async def pump(actors: ActorScene, batch: Batch) -> BatchResult:
    return await actors.store.pump(actors.scene.dispatcher, batch)


async def test_a_message_starts_the_turn_of_a_sleeping_actor(actors: ActorScene) -> None:
    await actors.sleeping()
    slots = offered(actors.slot, 5)
    result = await pump(actors, Batch(sends=[a_message("add")], for_dependents=slots))
    [turn] = result.turns
    assert (names(turn), turn.worker, turn.attempt) == (["add"], actors.slot.worker, 1)
    assert not result.ready
    assert await actors.status() is ActorStatus.RUNNING
    assert await actors.claim() == []
    await actors.take(turn)
    assert await actors.mail() == []


async def test_the_next_turn_starts_with_the_end_of_the_last(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("first"))
    attempt = await actors.turn()
    await actors.send(a_message("second"))
    slots = offered(actors.slot, 5)
    result = await pump(actors, Batch([taken(attempt)], for_dependents=slots))
    [turn] = result.turns
    assert (names(turn), given(turn).turn) == (["second"], given(attempt).turn + 1)
    assert not sum(result.ready_by_ends.values())


async def test_without_a_slot_or_with_one_of_a_worker_that_left_turns_are_ready(
    actors: ActorScene,
) -> None:
    await actors.sleeping(an_actor("a"), an_actor("b"), an_actor("c"))
    sends = [a_message("add", key=key) for key in "abc"]
    result = await pump(actors, Batch(sends=sends[:2], for_dependents=offered(actors.slot, 1)))
    assert (len(result.turns), sum(result.ready.values())) == (1, 1)
    gone = SessionKey(new_id(), 1)
    result = await pump(actors, Batch(sends=sends[2:], for_dependents=offered(gone, 1)))
    assert (result.turns, sum(result.ready.values())) == ([], 1)
    assert len(await actors.claim()) == 2


async def test_no_turn_starts_from_a_paused_queue_or_ahead_of_its_time(actors: ActorScene) -> None:
    await actors.sleeping()
    slots = offered(actors.slot, 5)
    later = a_message("later", delay_s=60.0)
    result = await pump(actors, Batch(sends=[later], for_dependents=slots))
    assert (result.turns, result.ready) == ([], {})
    await actors.sleeping(an_actor("b"))
    await actors.store.set_paused("default", True)
    result = await pump(actors, Batch(sends=[a_message("add", key="b")], for_dependents=slots))
    assert (result.turns, sum(result.ready.values())) == ([], 1)


async def test_turns_and_dependents_share_the_slots_that_are_offered(actors: ActorScene) -> None:
    scene = actors.scene
    await actors.sleeping()
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    slot = await scene.attend(kinds=[turn_kind(TYPE, 1), "work"])
    ends = [done(group.running.pop("a"))]
    slots = offered(slot, 1, TURNS, lane())
    result = await pump(actors, Batch(ends, sends=[a_message("add")], for_dependents=slots))
    assert (len(result.turns), len(result.dependents)) == (1, 0)
    assert sum(result.ready.values()) == 1


async def test_a_turn_starts_on_the_worker_that_had_the_last_one(actors: ActorScene) -> None:
    other = await actors.scene.attend(kinds=[turn_kind(TYPE, 1)])
    await actors.sleeping()
    slots = [OpenSlots({TURNS}, [FreeWorker(other, 9, 0), FreeWorker(actors.slot, 1, 5)])]
    result = await pump(actors, Batch(sends=[a_message("add")], for_dependents=slots))
    [turn] = result.turns
    assert turn.worker == actors.slot.worker
