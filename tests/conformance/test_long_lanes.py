"""Lanes that are never empty: what comes back to their front is found there.

A store may remember how far its claims came, so as not to walk over what is long gone. These tests
keep a lane busy for as long as that takes to matter, by working, not by waiting.
"""

from __future__ import annotations

import asyncio

import pytest

from longshore.model.attempt import Attempt
from longshore.model.ends import Failed, Released, Retried
from longshore.model.worker import SessionKey
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_claim, a_job, done, some_jobs

BUSY_S = 0.7
PATIENCE_S = 30


class BusyLane:
    """A lane with jobs ahead, and one slot that takes them one by one."""

    def __init__(self, scene: Scene, slot: SessionKey) -> None:
        self._scene = scene
        self._slot = slot
        self._running: list[Attempt] = []

    async def turn(self) -> Attempt:
        """Ends the job that runs, adds one at the back, and takes the one in front."""
        finishes = [done(attempt) for attempt in self._running]
        pumped = await self._scene.pump(finishes, some_jobs(1), [a_claim([self._slot])])
        self._running = pumped.claimed
        [attempt] = pumped.claimed
        return attempt

    async def run_for(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            await self.turn()

    async def until_taken(self, attempt: Attempt) -> Attempt:
        """The next attempt of this job, however many others come first."""
        async with asyncio.timeout(PATIENCE_S):
            while (taken := await self.turn()).id != attempt.id:
                pass
        return taken


@pytest.fixture
async def early(scene: Scene) -> list[Attempt]:
    """Attempts of the first jobs of a lane, each on a worker of its own; many others follow."""
    await scene.accepted(*some_jobs(30))
    slots = [await scene.attend() for _ in range(4)]
    return (await scene.pump(claims=[a_claim(slots)])).claimed


@pytest.fixture
async def lane(scene: Scene, early: list[Attempt]) -> BusyLane:
    lane = BusyLane(scene, await scene.attend())
    await lane.run_for(BUSY_S)
    return lane


async def test_what_comes_back_to_the_front_is_next(
    scene: Scene, early: list[Attempt], lane: BusyLane
) -> None:
    """The last of the early jobs first: each comes back before all that was seen since."""
    failed, retried, lost, released = early
    await scene.finish(done(released, Released))
    assert (await lane.turn()).id == released.id
    await scene.store.harvest(lost.worker, lost.session, "lost", crash=True, crash_limit=3)
    assert (await lane.turn()).id == lost.id
    await scene.finish(done(retried, Retried))
    assert (await scene.store.promote()).count == 1
    assert (await lane.turn()).id == retried.id
    await scene.finish(done(failed, Failed))
    await scene.store.retry([failed.id])
    assert (await lane.turn()).id == failed.id
    urgent = a_job(priority=1)
    await scene.accepted(urgent)
    assert (await lane.turn()).id == urgent.id


async def test_what_somebody_else_freed_is_soon_next(
    early: list[Attempt], lane: BusyLane, backend: Backend
) -> None:
    """G4: no job waits for ever behind those that came after it."""
    async with backend.opened() as other:
        await Scene(other).finish(done(early[0], Released))
    assert (await lane.until_taken(early[0])).attempt == 2
