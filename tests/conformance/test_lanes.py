"""Lanes that hold no job any more are forgotten, and no job is lost by that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from longshore.core.lifecycle import TERMINAL
from longshore.model.ends import Failed, Succeeded
from longshore.model.job import Submission
from longshore.model.retention import Retention
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, done, lane

AT_ONCE = Retention(most=dict.fromkeys(TERMINAL, 0))
ROUNDS = 12


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def known(scene: Scene) -> set[int]:
    return {one.hash for one in await scene.store.lanes()}


async def emptied(scene: Scene, kind: str) -> None:
    """A lane had a job, which ended and was pruned."""
    await scene.ended(Succeeded, a_job(kind=kind))
    await scene.store.prune(AT_ONCE)


async def is_run(scene: Scene, job: Submission) -> bool:
    """Whether a dispatcher that looks at all lanes there are finds this job; it is over then."""
    while not (lanes := await known(scene)):
        pass
    claimed = await scene.claim(await scene.attend(), *lanes)
    await scene.finish(*map(done, claimed))
    return [one.id for one in claimed] == [job.id]


async def test_lane_is_forgotten_with_its_last_job(scene: Scene) -> None:
    await emptied(scene, "gone")
    await scene.accepted(a_job(kind="ready"), a_job(kind="delayed", delay_s=60))
    await scene.ended(Failed, a_job(kind="failed"))
    assert await scene.store.forget_lanes() == 1
    assert await known(scene) == {lane(kind=kind) for kind in ("ready", "delayed", "failed")}
    assert await scene.store.forget_lanes() == 0
    assert [queue.counts for queue in await scene.store.queues()] == [
        {"ready": 1, "delayed": 1, "failed": 1}
    ]


async def test_no_more_are_forgotten_at_once_than_asked_for(scene: Scene) -> None:
    for kind in "abc":
        await emptied(scene, kind)
    assert await scene.store.forget_lanes(most=2) == 2
    assert await scene.store.forget_lanes(most=2) == 1


async def test_lane_that_was_forgotten_comes_back_with_a_job(scene: Scene) -> None:
    await emptied(scene, "work")
    await scene.store.forget_lanes()
    job = a_job()
    await scene.accepted(job)
    assert await known(scene) == {lane()}
    assert await is_run(scene, job)


async def test_lane_that_somebody_else_forgot_comes_back_with_a_job(
    scene: Scene, rival: Scene
) -> None:
    """The dispatcher that accepts the job still remembers the lane as one that is stored."""
    await emptied(scene, "work")
    await rival.store.forget_lanes()
    job = a_job()
    await scene.accepted(job)
    assert await is_run(rival, job)


async def test_job_that_comes_as_its_lane_is_forgotten_is_found(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        await emptied(scene, "work")
        job = a_job()
        await asyncio.gather(scene.accepted(job), rival.store.forget_lanes())
        assert await is_run(rival, job)


async def test_queue_shows_a_job_that_runs_though_somebody_else_forgot_its_lane(
    scene: Scene, rival: Scene
) -> None:
    await emptied(scene, "work")
    slot = await scene.attend()
    await rival.store.forget_lanes()
    await scene.pump(submits=[a_job()], slots=[slot])
    await rival.store.lanes()
    [queue] = await rival.store.queues()
    assert (queue.name, queue.counts["running"]) == ("default", 1)


async def test_job_of_a_paused_queue_waits_though_somebody_else_forgot_its_lane(
    scene: Scene, rival: Scene
) -> None:
    await emptied(scene, "work")
    await rival.store.forget_lanes()
    await rival.store.set_paused("default", True)
    await scene.accepted(a_job())
    assert await scene.claim(await scene.attend(), lane()) == []
