"""Rules for kinds and queues under races: two dispatchers, and rules that change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from longshore.model.attempt import Attempt
from longshore.model.limits import LimitRule
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_claim, a_job, done, lane

ROUNDS = 8
QUEUE = "queue=default"
HERE, THERE = lane(kind="here"), lane(kind="there")


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def test_two_dispatchers_never_both_get_the_last_slot_of_a_queue(
    scene: Scene, rival: Scene
) -> None:
    """Each has a lane of its own: they meet at the queue's key alone."""
    slot, other = await scene.attend(kinds=["here"]), await rival.attend(kinds=["there"])
    await scene.store.set_limit(LimitRule(QUEUE, 1))
    for _ in range(ROUNDS):
        await scene.accepted(*(a_job(kind=kind) for kind in ("here", "there")))
        here, there = await asyncio.gather(scene.claim(slot, HERE), rival.claim(other, THERE))
        assert len(here) + len(there) <= 1
        here = here or ([] if there else await scene.claim(slot, HERE))
        assert len(here) + len(there) == 1
        assert (await rival.store.limit_key(QUEUE)).held == 1
        await scene.pump(list(map(done, here)))
        await rival.pump(list(map(done, there)))
        last = await (rival.claim(other, THERE) if here else scene.claim(slot, HERE))
        assert len(last) == 1
        await (rival if here else scene).finish(*map(done, last))


async def test_an_end_says_that_other_lanes_of_its_queue_have_room(
    scene: Scene, rival: Scene
) -> None:
    """Its own dispatcher hears it: it tells the others, which perhaps serve that lane alone."""
    slot, other = await scene.attend(kinds=["here"]), await rival.attend(kinds=["there"])
    await scene.store.set_limit(LimitRule(QUEUE, 1))
    await scene.accepted(a_job(kind="here"), a_job(kind="there"))
    [one] = await scene.claim(slot, HERE)
    assert await rival.claim(other, THERE) == []
    assert (await scene.pump([done(one)])).ready_by_ends.keys() == {THERE}
    assert len(await rival.claim(other, THERE)) == 1


async def test_a_rule_that_is_set_while_jobs_start_holds_for_all_that_start_after_it(
    scene: Scene, rival: Scene
) -> None:
    """Jobs start in the statement that stores them until the rule is there, and by claims after."""
    slot, other = await scene.attend(), await rival.attend()
    for n in range(1, ROUNDS):
        running: list[Attempt] = []

        async def start(one: Scene, at: object, running: list[Attempt] = running) -> None:
            for _ in range(3):
                pumped = await one.pump(submits=[a_job(), a_job()], slots=[at, at])  # type: ignore[list-item]
                running += [*pumped.started, *(await one.claim(at, most=2))]  # type: ignore[arg-type]

        starting = asyncio.gather(start(scene, slot), start(rival, other))
        await scene.store.set_limit(LimitRule(QUEUE, n))
        before = (await scene.store.limit_key(QUEUE)).held
        await starting
        after = (await scene.store.limit_key(QUEUE)).held
        assert after <= max(before, n), "nothing began above the rule once it was set"
        assert len(running) == after
        assert await scene.store.remove_limit(QUEUE)
        left = [*running, *(await scene.claim(slot, most=50))]
        await scene.finish(*map(done, left))


async def test_never_above_whoever_claims_ends_dies_and_whatever_the_rule_becomes(
    scene: Scene, rival: Scene
) -> None:
    chance = Random(11)
    most, total = 3, 24
    await scene.store.set_limit(LimitRule("queue=def*", most))
    await scene.accepted(*(a_job() for _ in range(total)))
    running: dict[Scene, list[Attempt]] = {scene: [], rival: []}
    slots = {scene: await scene.attend(), rival: await rival.attend()}
    ended = 0

    async def step(one: Scene) -> None:
        nonlocal ended
        ends = [attempt for attempt in running[one] if chance.random() < 0.6]
        for attempt in ends:
            running[one].remove(attempt)
        pumped = await one.pump(list(map(done, ends)), claims=[a_claim([slots[one]] * 4)])
        running[one] += pumped.claimed
        ended += len(ends)

    for n in range(60):
        await asyncio.gather(step(scene), step(rival))
        held = sum(map(len, running.values()))
        assert held <= most
        assert (await scene.store.limit_key(QUEUE)).held == held
        if n % 7 == 6:
            dies = scene if n % 2 else rival
            lost = slots[dies]
            # At the same moment the other one claims.
            await asyncio.gather(
                dies.store.harvest(lost.worker, lost.session, "gone", crash=False, crash_limit=3),
                step(rival if dies is scene else scene),
            )
            running[dies], slots[dies] = [], await dies.attend()
            assert sum(map(len, running.values())) <= most
        if ended == total:
            break
    assert ended == total


async def test_a_rule_that_is_lowered_and_raised_while_jobs_run(scene: Scene, rival: Scene) -> None:
    slot, other = await scene.attend(), await rival.attend()
    await scene.store.set_limit(LimitRule(QUEUE, 4))
    await scene.accepted(*(a_job() for _ in range(12)))
    running = await scene.claim(slot, most=12)
    assert len(running) == 4
    for most in (2, 5, 1, 6):
        await scene.store.set_limit(LimitRule(QUEUE, most))
        there, here = await asyncio.gather(rival.claim(other, most=12), scene.claim(slot, most=12))
        again = await rival.claim(other, most=12)
        before = len(running)
        running += [*there, *here, *again]
        assert len(running) == max(most, before)
