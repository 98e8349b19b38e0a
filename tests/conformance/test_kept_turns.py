"""Turns go to the worker that had their actor last, if it has a slot; otherwise to any."""

from __future__ import annotations

import pytest

from longshore.core.turns import turn_kind
from longshore.model.attempt import Attempt
from longshore.model.worker import Claim, SessionKey
from longshore.ports import Batch
from longshore.testing.actor_builders import (
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    taken,
)
from longshore.testing.builders import Scene, a_job, lane

KEYS = [str(n) for n in range(12)]
TURNS = lane(kind=turn_kind(TYPE, 1))


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


@pytest.fixture
async def workers(actors: ActorScene) -> list[SessionKey]:
    """Two workers that serve the type; a third does not take turns."""
    kinds = ["work", turn_kind(TYPE, 1)]
    return [actors.slot, await actors.scene.attend(kinds=kinds)]


async def claim(actors: ActorScene, *slots: SessionKey, keeps: bool = True) -> list[Attempt]:
    batch = Batch(claims=[Claim((TURNS, lane()), slots, keeps=keeps)])
    return (await actors.store.pump(actors.scene.dispatcher, batch)).claimed


async def begun(actors: ActorScene, workers: list[SessionKey]) -> dict[str, SessionKey]:
    """Actors that took a turn on these workers, in turn; who had which."""
    await actors.start(*map(an_actor, KEYS))
    first = await claim(actors, *workers * (len(KEYS) // 2))
    await actors.pump(*map(taken, first))
    await actors.send(*(a_message(key=key) for key in KEYS))
    return placed(first)


def placed(attempts: list[Attempt]) -> dict[str, SessionKey]:
    return {given(one).key: SessionKey(one.worker, one.session) for one in attempts}


async def test_each_turn_goes_to_whom_had_the_actor_last(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    before = await begun(actors, workers)
    slots = [workers[1]] * 50 + [workers[0]] * 50  # another order than before, and more than needed
    again = await claim(actors, *slots)
    assert placed(again) == before
    assert set(before.values()) == set(workers)
    assert all(given(one).last_worker == one.worker for one in again)


async def test_a_turn_never_waits_for_its_worker(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    before = await begun(actors, workers)
    one, other = workers
    again = await claim(actors, *[one] * 4, *[other] * 8)
    assert len(again) == len(KEYS)
    after = placed(again)
    kept = [key for key in KEYS if after[key] == before[key]]
    assert len(kept) == 10  # four of six on the one, all six on the other
    assert sorted(after.values(), key=workers.index) == [one] * 4 + [other] * 8


async def test_a_worker_that_is_gone_keeps_nothing(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    await begun(actors, workers)
    gone, other = workers
    await actors.store.harvest(gone.worker, gone.session, "lost", crash=False, crash_limit=9)
    again = await claim(actors, *[gone] * 20, *[other] * 20)
    assert set(placed(again).values()) == {other}
    assert len(again) == len(KEYS)


async def test_jobs_in_the_same_claim_get_what_is_left(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    before = await begun(actors, workers)
    await actors.scene.accepted(*(a_job() for _ in range(4)))
    again = await claim(actors, *workers * 8)
    turns = [one for one in again if one.options.turn]
    assert (placed(turns), len(again)) == (before, 16)
    by_worker = [sum(one.worker == slot.worker for one in again) for slot in workers]
    assert by_worker == [8, 8]


async def test_a_claim_that_takes_fewer_leaves_the_rest_ready(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    before = await begun(actors, workers)
    some = placed(await claim(actors, *workers))
    rest = placed(await claim(actors, *workers * 10))
    assert len(some) == 2
    assert {**some, **rest}.keys() == before.keys()
    assert all(rest[key] == before[key] for key in rest)


async def test_a_claim_that_does_not_keep_goes_by_the_order_of_slots(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    await begun(actors, workers)
    again = await claim(actors, *[workers[1]] * 50, keeps=False)
    assert set(placed(again).values()) == {workers[1]}


async def test_the_history_of_a_turn_names_the_worker_that_got_it(
    actors: ActorScene, workers: list[SessionKey]
) -> None:
    before = await begun(actors, workers)
    again = await claim(actors, *[workers[1]] * 50, *[workers[0]] * 50)
    assert placed(again) == before
    for turn in again:
        job = await actors.store.job(turn.id)
        assert job is not None
        assert job.history[-1].by == str(turn.worker)
