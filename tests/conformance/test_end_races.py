"""Two parents of one job end at the same moment, in every way in which a job can end.

Two dispatchers with their own connections, again and again. Which of them wins is left to chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import pytest

from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled, Crashed, Failed, Skipped
from longshore.model.group import GATE, Condition, GroupState
from longshore.model.job import JobState, Submission, Verdict
from longshore.model.worker import SessionKey
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, done

from .test_examined_groups import troubles
from .test_growth_races import claim, settled

S = JobState
G = GroupState
ON = Condition

ROUNDS = 8
EXPIRES_S = 50.0

Ending = Callable[[Scene, GroupScene], Awaitable[object]]
"""A dispatcher ends the job `a` of a group."""


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def harvested(rival: Scene, group: GroupScene) -> None:
    attempt = group.running["a"]
    await rival.store.harvest(attempt.worker, attempt.session, "gone", crash=True, crash_limit=1)


async def poisoned(rival: Scene, group: GroupScene) -> None:
    await rival.pump(finishes=[done(group.running["a"], Crashed, crash_limit=1)])


async def cancelled(rival: Scene, group: GroupScene) -> None:
    await rival.store.cancel([group.jobs["a"]], "me")


async def stopped(rival: Scene, group: GroupScene) -> None:
    await rival.store.cancel([group.jobs["a"]], "me")
    await rival.pump(finishes=[done(group.running["a"], Cancelled)])


async def expired(rival: Scene, group: GroupScene) -> None:
    await rival.store.expire()


RUNS, WAITS = True, False
PATHS: dict[str, tuple[Submission, bool, Ending, JobState]] = {
    "harvest": (a_job(), RUNS, harvested, S.FAILED),
    "poison": (a_job(), RUNS, poisoned, S.FAILED),
    "cancel": (a_job(), WAITS, cancelled, S.CANCELLED),
    "cancel of a job that runs": (a_job(), RUNS, stopped, S.CANCELLED),
    "expiry": (a_job(expires_s=EXPIRES_S), WAITS, expired, S.FAILED),
    "gate's timeout": (a_job(kind=GATE, expires_s=EXPIRES_S), WAITS, expired, S.FAILED),
}


class Parents(NamedTuple):
    """A group whose job `b` runs on a worker of its own. `a` runs on another one, or waits."""

    group: GroupScene
    slot: SessionKey
    other: Attempt


async def two_parents(scene: Scene, job: Submission, *, runs: bool) -> Parents:
    """The parents of three jobs, one for each condition."""
    both = {"ended": "a b", "succeeded": "a b", "failed": "a b"}
    on = {"ended": ON.ENDED, "failed": ON.FAILED}
    jobs = {"a": job, "b": a_job(priority=5)}
    group = await scene.submit_group(a_group({"a": "", "b": ""} | both, on, jobs=jobs))
    await scene.settle()
    slot = await scene.attend()
    [other] = await scene.claim(slot)
    assert other.id == group.jobs["b"]
    if runs:
        assert await group.claim() == {"a"}
    return Parents(group, slot, other)


@pytest.mark.parametrize("path", PATHS)
async def test_a_job_ends_in_each_way_while_another_dispatcher_ends_the_other_parent(
    scene: Scene, rival: Scene, backend: Backend, path: str
) -> None:
    """The dependents hear of both, each once."""
    job, runs, end, state = PATHS[path]
    for _ in range(ROUNDS):
        group, slot, other = await two_parents(scene, job, runs=runs)
        if end is expired:
            await backend.pass_time(2 * EXPIRES_S)
        await asyncio.gather(
            end(rival, group), scene.pump(finishes=[done(other)]), rival.settle(), scene.settle()
        )
        await settled(scene, rival, group)
        assert await troubles(scene, group) == []
        assert await group.states() == {
            "a": state,
            "b": S.SUCCEEDED,
            "ended": S.READY,
            "succeeded": S.DEPENDENCY_FAILED,
            "failed": S.READY if state is S.FAILED else S.SKIPPED,
        }
        while S.READY in (await group.states()).values():
            left = await scene.claim(slot, most=2)
            await scene.pump(finishes=[done(one) for one in left])
        await settled(scene, rival, group)
        assert await group.group_state() is G.FAILED


async def test_a_finish_that_two_dispatchers_hear_of_at_once_counts_once(
    scene: Scene, rival: Scene
) -> None:
    """A worker that got no answer tells its end to the next dispatcher, too."""
    for _ in range(ROUNDS):
        group, _, other = await two_parents(scene, a_job(), runs=True)
        ends = [done(group.running["a"])]
        answers = await asyncio.gather(
            scene.pump(finishes=ends), rival.pump(finishes=ends), scene.pump(finishes=ends)
        )
        assert Verdict.RECORDED in {one.finished[0].verdict for one in answers}
        await settled(scene, rival, group)
        assert await troubles(scene, group) == []
        assert await group.state("succeeded") is S.WAITING, "it waits for the other one"
        await scene.pump(finishes=[done(other)])
        await settled(scene, rival, group)
        assert await claim(group) == {"ended", "succeeded"}


async def test_a_skip_and_a_failure_among_the_parents_at_once(scene: Scene, rival: Scene) -> None:
    """The failure decides, whichever comes first."""
    for turn in range(ROUNDS):
        group, _, other = await two_parents(scene, a_job(), runs=True)
        one = group.running["a"]
        skips, fails = (one, other) if turn % 2 else (other, one)
        await asyncio.gather(
            scene.pump(finishes=[done(skips, Skipped)]), rival.pump(finishes=[done(fails, Failed)])
        )
        await settled(scene, rival, group)
        states = await group.states()
        assert states["succeeded"] is S.DEPENDENCY_FAILED
        assert (states["failed"], states["ended"]) == (S.READY, S.READY)
