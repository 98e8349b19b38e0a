"""Orders in which things happen to a group that lose or double something in a careless store.

Other such orders have their tests where their subject is: `test_groups.py` (two dispatchers end two
parents of one job, a finish is repeated, a skip and a failure in both orders, every way to end),
`test_end_races.py` (the same, by two dispatchers at one moment),
`test_growth_races.py`, `test_addition_races.py` (an edge is added while its parent ends, an outside
add against the close), `test_staged_keys.py`, and on PostgreSQL `test_postgres_group_locks.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from longshore.model.ends import Cancelled, Failed
from longshore.model.group import GATE, Condition, GroupPart, GroupState
from longshore.model.job import JobState, Submission
from longshore.payload.values import pack, unpack
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, additions, new_id

from .test_examined_groups import troubles
from .test_growth_races import ending, run_to_the_end, settled

S = JobState
G = GroupState
ON = Condition

Ending = Callable[[Scene, GroupScene, Backend], Awaitable[JobState]]

ROUNDS = 8
MANY = 3_000
PART = 1_000


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def test_a_retry_counts_anew_while_dispatchers_end_jobs(scene: Scene, rival: Scene) -> None:
    """The recount holds the ends that it saw, and those that it did not are told: each once."""
    parents = " ".join(f"p{n}" for n in range(6))
    after = {f"p{n}": "" for n in range(6)} | {"bad": "", "c": parents, "d": parents + " bad"}
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group(after))
        await group.claim()
        await group.end("bad", how=Failed)
        await group.settle()
        await asyncio.gather(
            ending(scene, group, "p0", "p1"),
            ending(rival, group, "p2"),
            rival.store.retry_group(group.id, "me", new_id()),
            ending(scene, group, "p3"),
            ending(rival, group, "p4", "p5"),
            rival.settle(),
        )
        await settled(scene, rival, group)
        assert await troubles(scene, group) == []
        assert (await group.look())["c"].unmet == 0
        await run_to_the_end(group)
        assert set((await group.states()).values()) == {S.SUCCEEDED}
        assert await group.group_state() is G.SUCCEEDED


async def test_a_second_round_with_other_arguments_adds_other_jobs(scene: Scene) -> None:
    """Nothing of the first round is left, also where both add a job under one key."""
    group = await scene.submit_group(a_group({"a": "", "d": "a"}))
    await group.claim()
    await group.end("a", adds=additions({"x": "", "y": "x"}))
    assert await run_to_the_end(group) == [{"a/x"}, {"a/y"}, {"d"}]
    before = dict(group.jobs)
    other = pack({"n": 2}, "arguments")
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["a"], args=other)
    assert plan is not None
    assert set(plan.retired) == {"a/x", "a/y"}
    await group.settle()
    await group.claim()
    assert unpack(group.running["a"].args) == {"n": 2}
    await group.end("a", adds=additions({"x": "", "z": ""}))
    nodes = await group.look()
    assert set(nodes) == {"a", "d", "a/x", "a/z"}
    assert nodes["a/x"].job != before["a/x"]
    assert nodes["a"].open == 2
    assert await run_to_the_end(group) == [{"a/x", "a/z"}, {"d"}]
    assert (await scene.job(before["a/y"])).group is None
    assert await group.group_state() is G.SUCCEEDED


async def expired(scene: Scene, group: GroupScene, backend: Backend) -> JobState:
    """No worker began it, or nobody opened it, in time."""
    await group.settle()
    await backend.pass_time(100)
    assert [one.id for one in await scene.store.expire()] == [group.jobs["a"]]
    return S.FAILED


async def cancelled(scene: Scene, group: GroupScene, backend: Backend) -> JobState:
    """Somebody cancelled it before it began."""
    await scene.store.cancel([group.jobs["a"]], "me")
    return S.CANCELLED


async def cancelled_while_it_ran(scene: Scene, group: GroupScene, backend: Backend) -> JobState:
    """It was told to stop, and did."""
    await group.claim()
    await scene.store.cancel([group.jobs["a"]], "me")
    await group.end("a", how=Cancelled)
    return S.CANCELLED


@pytest.mark.parametrize(
    ("job", "end"),
    [
        (a_job(expires_s=50.0), expired),
        (a_job(kind=GATE, expires_s=50.0), expired),
        (a_job(), cancelled),
        (a_job(kind=GATE), cancelled),
        (a_job(), cancelled_while_it_ran),
    ],
    ids=["expiry", "gate's timeout", "cancel", "cancel of a gate", "cancel of a job that runs"],
)
async def test_dependents_hear_of_an_end_without_a_finish(
    scene: Scene, backend: Backend, job: Submission, end: Ending
) -> None:
    """By harvest and by poison: `test_dependents_hear_of_every_end`."""
    after = {"a": "", "b": "a", "c": "a", "d": "a"}
    part = a_group(after, {"c": ON.ENDED, "d": ON.FAILED}, jobs={"a": job})
    group = await scene.submit_group(part)
    state = await end(scene, group, backend)
    await group.settle()
    assert await group.states() == {
        "a": state,
        "b": S.DEPENDENCY_FAILED,
        "c": S.READY,
        "d": S.READY if state is S.FAILED else S.SKIPPED,
    }


async def paused_at_the_head(scene: Scene, jobs: int, *, priority: int = 5) -> GroupPart:
    """A group of jobs without dependencies, older and more urgent than all others, is paused."""
    part = a_group(
        {f"j{n}": "" for n in range(jobs)},
        jobs={f"j{n}": a_job(priority=priority) for n in range(jobs)},
    )
    for at in range(0, jobs, PART):
        await scene.store.submit_group(GroupPart(part.head, at, part.nodes[at : at + PART]))
    await scene.settle()
    await scene.store.pause_group(part.head.id, True)
    await scene.settle()
    return part


async def test_a_paused_group_at_the_head_of_a_lane_does_not_starve_it(scene: Scene) -> None:
    """What a claim costs behind it: see `test_flatness.py`."""
    slot = await scene.attend()
    part = await paused_at_the_head(scene, MANY)
    job = a_job()
    await scene.accepted(job)
    [attempt] = await scene.claim(slot, most=9)
    assert attempt.id == job.id
    await scene.store.pause_group(part.head.id, False)
    await scene.settle()
    claimed = await scene.claim(slot, most=9)
    assert [one.id for one in claimed] == [node.job.id for node in part.nodes[:9]]
