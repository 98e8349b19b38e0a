"""What metrics read of a store: how many jobs each lane holds, and how long jobs wait."""

from __future__ import annotations

from datetime import timedelta

from longshore.core.lanes import lane_of
from longshore.model.depth import OLDEST_OF, LaneDepth
from longshore.model.ends import Released
from longshore.model.job import JobState
from longshore.testing.builders import Scene, a_job, done, lane


async def depth(scene: Scene, kind: str = "work", queue: str = "default") -> LaneDepth:
    wanted = lane_of(queue, kind, "")
    [found] = [one for one in await scene.store.depths() if one.lane == wanted]
    return found


async def test_depths_count_the_jobs_of_each_lane_by_state(scene: Scene) -> None:
    await scene.accepted(*(a_job(kind="a") for _ in range(3)), a_job(kind="a", queue="other"))
    await scene.accepted(a_job(kind="b", delay_s=60))
    [first] = await scene.claim(await scene.attend(), lane(kind="a"))
    await scene.finish(done(first))
    found = await scene.store.depths()
    assert {(one.lane.queue, one.lane.kind): dict(one.counts) for one in found} == {
        ("default", "a"): {JobState.READY: 2, JobState.SUCCEEDED: 1},
        ("other", "a"): {JobState.READY: 1},
        ("default", "b"): {JobState.DELAYED: 1},
    }


async def test_depths_tell_which_queues_are_paused(scene: Scene) -> None:
    await scene.accepted(a_job(kind="a", queue="held"), a_job(kind="a"))
    await scene.store.set_paused("held", True)
    assert {one.lane.queue: one.paused for one in await scene.store.depths()} == {
        "held": True,
        "default": False,
    }


async def test_oldest_is_found_behind_many_jobs_of_a_higher_priority(scene: Scene) -> None:
    [number] = await scene.accepted(a_job(kind="a", priority=-5))
    job = await scene.job(number)
    await scene.accepted(*(a_job(kind="a", priority=5) for _ in range(OLDEST_OF + 5)))
    assert (await depth(scene, "a")).oldest_at == job.created_at


async def test_lane_without_ready_jobs_has_no_oldest(scene: Scene) -> None:
    await scene.accepted(a_job(kind="a", delay_s=60))
    assert (await depth(scene, "a")).oldest_at is None


async def test_claim_tells_how_long_a_job_was_ready(scene: Scene) -> None:
    await scene.accepted(a_job(kind="a"))
    [attempt] = await scene.claim(await scene.attend(), lane(kind="a"))
    job = await scene.job(attempt.id)
    assert job.started_at is not None
    assert attempt.waited_s is not None
    waited = job.started_at - job.created_at
    assert abs(waited - timedelta(seconds=attempt.waited_s)) <= timedelta(microseconds=1)


async def test_claim_does_not_guess_how_long_a_later_attempt_waited(scene: Scene) -> None:
    await scene.accepted(a_job(kind="a"))
    worker = await scene.attend()
    [first] = await scene.claim(worker, lane(kind="a"))
    await scene.finish(Released(first.id, first.token))
    [second] = await scene.claim(worker, lane(kind="a"))
    assert (second.attempt, second.waited_s) == (2, None)
