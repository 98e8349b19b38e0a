"""Histories that broke stateful entities elsewhere, as far as a store decides them.

Those that are about processes are in `tests/system/test_actor_histories.py`, those about numbers in
`test_many_messages.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import msgpack

from longshore.model.actor import Sent, Timer
from longshore.model.attempt import Attempt
from longshore.model.job import Verdict
from longshore.testing.actor_builders import (
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


@pytest.fixture
async def rival(backend: Backend, actors: ActorScene) -> AsyncIterator[ActorScene]:
    """Another dispatcher with a worker, on its own connection to the same database."""
    async with backend.opened() as store:
        yield await ActorScene.begin(Scene(store))


def applied(attempt: Attempt) -> bytes:
    """The state after a turn of a lock: who has it, and how often it was taken."""
    owner, times = msgpack.decode(given(attempt).state)
    for event in given(attempt).events:
        owner = event.args.decode() if event.name == "lock" else ""
        times += event.name == "lock"
    return msgpack.encode((owner, times))


async def handle_all(actors: ActorScene) -> tuple[str, int]:
    """The lock handles what there is."""
    for attempt in await actors.claim():
        await actors.take(attempt, state=applied(attempt))
    owner, times = msgpack.decode((await actors.actor()).state)
    return owner, times


async def test_a_lock_message_delivered_twice(actors: ActorScene, rival: ActorScene) -> None:
    """At once, through another dispatcher, or after the lock was freed: it is taken once."""
    await actors.start(an_actor(state=msgpack.encode(("", 0))))
    await actors.take(await actors.turn(), state=msgpack.encode(("", 0)))
    lock = a_message("lock", args=b"ann")
    assert await actors.send(lock, lock) == [Sent(lock.id)] * 2
    await asyncio.gather(actors.send(lock), rival.send(lock))
    assert await handle_all(actors) == ("ann", 1)
    assert await rival.send(lock) == [Sent(lock.id)]
    assert await handle_all(actors) == ("ann", 1)
    await actors.send(a_message("unlock"))
    assert await handle_all(actors) == ("", 1)
    assert await rival.send(lock) == [Sent(lock.id)]
    assert await actors.claim() == []
    assert await handle_all(actors) == ("", 1), "nobody has it, and nobody waits for ever"


async def test_one_entity_active_in_two_places_while_the_cluster_disagrees(
    actors: ActorScene, rival: ActorScene
) -> None:
    """Two dispatchers each have a worker with the same turn: the newer token counts, once."""
    await actors.sleeping()
    await actors.send(a_message("one"))
    old, slot = await actors.turn(), actors.slot
    await rival.store.harvest(slot.worker, slot.session, "lost", crash=True, crash_limit=9)
    new = await rival.turn()
    assert (old.id, names(old)) == (new.id, names(new))
    out = [a_message("never", "other"), a_message("once", "other")]
    await rival.start(an_actor("other"))
    ends = await asyncio.gather(
        actors.take(old, state=b"\x66", outbox=[out[0]]),
        rival.take(new, state=b"\x07", outbox=[out[1]]),
    )
    assert [one.verdict for [one] in ends] == [Verdict.STALE, Verdict.RECORDED]
    actor = await actors.actor()
    assert (actor.state, actor.turn, actor.worker) == (b"\x07", 2, rival.slot.worker)
    assert await rival.mail_names("other") == ["once"]


async def test_messages_that_arrive_while_the_entity_moves(
    actors: ActorScene, rival: ActorScene
) -> None:
    """Senders, the harvest of its worker and the claims of another one run into each other."""
    await actors.sleeping()
    await actors.send(*(a_message(f"{n}") for n in range(3)))
    await actors.turn()
    slot = actors.slot

    async def sends() -> None:
        for n in range(3, 15):
            await actors.send(a_message(f"{n}"))

    async def moves() -> list[str]:
        await rival.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=9)
        got: list[str] = []
        while len(got) < 15:
            for attempt in await rival.claim():
                got += names(attempt)
                await rival.take(attempt)
        return got

    _, got = await asyncio.gather(sends(), moves())
    assert got == [f"{n}" for n in range(15)]
    assert await actors.mail() == []


async def test_a_timer_due_while_everything_is_down_fires_once_and_after(
    actors: ActorScene, backend: Backend
) -> None:
    """Whoever comes up next finds it, with its next time still to come."""
    await actors.start(an_actor())
    timers = [Timer("once", after_s=60), Timer("often", after_s=60, every_s=60)]
    await actors.pump(taken(await actors.turn(), timers=timers))
    await actors.store.close()
    await backend.pass_time(30 * 60.0)
    async with backend.opened() as store:
        later = await ActorScene.begin(Scene(store))
        await store.promote()
        attempt = await later.turn()
        assert sorted(names(attempt)) == ["often", "once"]
        await later.take(attempt)
        await store.promote()
        assert await later.claim() == []
        [timer] = (await later.actor()).timers
        assert (timer.name, (timer.at or 0) > given(attempt).now) == ("often", True)
