"""Limits under races: two dispatchers claim, end and lose jobs of one key at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from longshore.model.attempt import Attempt
from longshore.model.limits import JobLimit, LimitRule
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_claim, a_job, done, lane

ROUNDS = 10


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def test_two_dispatchers_never_both_get_the_last_slot(scene: Scene, rival: Scene) -> None:
    """Each has a lane of its own: they meet at the key alone."""
    slot, other = await scene.attend(kinds=["here"]), await rival.attend(kinds=["there"])
    mine, theirs = lane(kind="here"), lane(kind="there")
    key = JobLimit("t=a", 1)
    for _ in range(ROUNDS):
        await scene.accepted(*(a_job(limits=(key,), kind=kind) for kind in ("here", "there")))
        here, there = await asyncio.gather(scene.claim(slot, mine), rival.claim(other, theirs))
        assert len(here) + len(there) <= 1
        here = here or ([] if there else await scene.claim(slot, mine))
        assert len(here) + len(there) == 1
        assert (await rival.store.limit_key(key.key)).held == 1
        await scene.pump(list(map(done, here)))
        await rival.pump(list(map(done, there)))
        last = await (rival.claim(other, theirs) if here else scene.claim(slot, mine))
        assert len(last) == 1
        await (rival if here else scene).finish(*map(done, last))


async def test_an_end_wakes_what_another_dispatcher_puts_behind_the_key(
    scene: Scene, rival: Scene
) -> None:
    slot, other = await scene.attend(), await rival.attend()
    for n in range(ROUNDS):
        key = JobLimit(f"t={n}", 1)
        await scene.accepted(*(a_job(limits=(key,)) for _ in range(2)))
        [one] = await scene.claim(slot)
        _, claimed = await asyncio.gather(scene.pump([done(one)]), rival.claim(other, most=2))
        # Nothing else looks for room here: whoever lost a wake-up would find nothing.
        found = claimed or await rival.claim(other, most=2)
        assert len(found) == 1, f"round {n}"
        await rival.finish(done(found[0]))


async def test_a_new_job_that_goes_behind_a_key_is_woken_like_the_others(
    scene: Scene, rival: Scene
) -> None:
    slot, other = await scene.attend(), await rival.attend()
    for n in range(ROUNDS):
        key = JobLimit(f"t={n}", 1)
        await scene.accepted(*(a_job(limits=(key,)) for _ in range(2)))
        [one] = await scene.claim(slot, most=2)
        [freed, _] = await asyncio.gather(
            scene.pump([done(one)], claims=[a_claim([slot] * 3)]),
            rival.accepted(a_job(limits=(key,))),
        )
        running = freed.claimed or await scene.claim(slot, most=3)
        assert len(running) == 1
        await scene.finish(done(running[0]))
        last = await rival.claim(other, most=3)
        assert len(last) == 1, f"round {n}"
        await rival.finish(done(last[0]))


async def test_never_above_whoever_claims_ends_and_dies(scene: Scene, rival: Scene) -> None:
    chance = Random(7)
    most, total = 3, 24
    key = JobLimit("t=a", most)
    await scene.accepted(*(a_job(limits=(key,)) for _ in range(total)))
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
        assert (await scene.store.limit_key("t=a")).held == held
        if n % 7 == 6:
            dies = scene if n % 2 else rival
            lost = slots[dies]
            # At the same moment the other one claims.
            await asyncio.gather(
                dies.store.harvest(lost.worker, lost.session, "gone", crash=False, crash_limit=3),
                step(rival if dies is scene else scene),
            )
            running[dies], slots[dies] = [], await dies.attend()
            await scene.store.open_limits()
            assert sum(map(len, running.values())) <= most
        if ended == total:
            break
    assert ended == total


async def test_a_limit_that_is_lowered_and_raised_while_jobs_run(
    scene: Scene, rival: Scene
) -> None:
    slot, other = await scene.attend(), await rival.attend()
    await scene.accepted(*(a_job(limits=(JobLimit("t=a", 4),)) for _ in range(12)))
    running = await scene.claim(slot, most=12)
    assert len(running) == 4
    for most in (2, 5, 1, 6):
        await scene.store.set_limit(LimitRule("t=a", most))
        await scene.store.open_limits()
        there, here = await asyncio.gather(rival.claim(other, most=12), scene.claim(slot, most=12))
        again = await rival.claim(other, most=12)
        before = len(running)
        running += [*there, *here, *again]
        assert len(running) == max(most, before)
