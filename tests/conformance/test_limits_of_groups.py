"""Limits of jobs of groups: whatever makes such a job ready, only a claim starts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from longshore.model.ends import Failed
from longshore.model.group import AddedNode
from longshore.model.job import JobState, Submission
from longshore.model.limits import JobLimit
from longshore.payload.values import unpack
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_claim,
    a_group,
    a_job,
    a_map,
    additions,
    done,
    new_id,
)

from .test_dependents import end, open_slots
from .test_new_runs import rerun

S = JobState
KEY = "tenant=a"


def limited(most: int = 1, key: str = KEY) -> Submission:
    return a_job(limits=(JobLimit(key, most),))


def several(keys: str, most: int = 1) -> dict[str, Submission]:
    return {key: limited(most) for key in keys.split()}


async def run_one_by_one(scene: Scene, group: GroupScene) -> list[str]:
    """Runs a group to its end, in the order of claims; never two jobs of the key run."""
    ran: list[str] = []
    while await group.group_state() == "running":
        taken = await group.claim()
        view = await scene.store.limit_key(KEY)
        assert view.held <= 1
        ran += sorted(taken)
        assert len(taken) == 1, "one at a time, and never none"
        await group.end(*taken)
        await group.settle()
    return ran


@pytest.mark.parametrize("fan", ["b", "b c d"])
async def test_an_end_starts_no_dependent_that_has_limits(scene: Scene, fan: str) -> None:
    """One end with one dependent, and with several: a statement of its own for each."""
    tree = {"a": ""} | dict.fromkeys(fan.split(), "a")
    # The first group shows this dispatcher that ends are of groups.
    for _ in range(2):
        group = await scene.submit_group(a_group(tree, jobs=several(fan)))
        await group.claim()
        result = await end(scene, group, "a", offered=open_slots(await scene.attend(), 5))
        assert result.dependents == []
        assert sum(result.ready.values()) == len(fan.split())
        assert await run_one_by_one(scene, group) == fan.split()


async def test_dependents_without_limits_start_beside_those_that_have_some(scene: Scene) -> None:
    tree = {"a": "", "b": "a", "c": "a"}
    for _ in range(2):
        group = await scene.submit_group(a_group(tree, jobs={"b": limited()}))
        await group.claim()
        result = await end(scene, group, "a", offered=open_slots(await scene.attend(), 5))
        assert [one.id for one in result.dependents] == [group.jobs["c"]]
        assert await group.claim() == {"b"}
        group.running["c"] = result.dependents[0]
        await group.end("b", "c")
        await group.settle()


async def test_the_first_jobs_of_a_group_have_limits(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "", "c": "a b"}, jobs=several("a b c")))
    assert await run_one_by_one(scene, group) == ["a", "b", "c"]
    view = await scene.store.limit_key(KEY)
    assert (view.held, view.is_waited_for) == (0, False)


async def test_jobs_of_groups_and_others_share_a_key(scene: Scene) -> None:
    slot = await scene.attend()
    alone = limited()
    await scene.accepted(alone)
    [one] = await scene.claim(slot)
    group = await scene.submit_group(a_group({"a": ""}, jobs=several("a")))
    assert await group.claim() == set()
    view = await scene.store.limit_key(KEY)
    assert (view.holders, view.is_waited_for) == ((one.number,), True)


async def test_a_job_that_another_adds_has_limits(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a", adds=additions({"x": "", "y": ""}, jobs=several("x y")))
    await group.settle()
    assert await run_one_by_one(scene, group) == ["a/x", "a/y"]


async def test_jobs_that_a_client_adds_have_limits(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    added = [AddedNode(key, job, ("a",)) for key, job in several("x y").items()]
    await scene.store.add_to_group(group.id, new_id(), added)
    await group.look()
    await group.end("a")
    await group.settle()
    first = await group.claim()
    assert len(first) == 2, "b, and one of the two"
    await group.end(*first)
    await group.settle()
    assert await run_one_by_one(scene, group) == list({"x", "y"} - first)


async def test_an_element_of_a_map_completes_the_key(scene: Scene) -> None:
    """The key of the pattern is only the name of the parameter that gets the elements."""
    tenants = ["a", "a", "b"]
    pattern = limited(key="tenant")
    group = await scene.submit_group(
        a_group({"m": ""}, jobs={"m": a_map(tenants, pattern, "tenant")})
    )
    await group.settle()
    taken = await group.claim()
    assert taken == {"m/0", "m/2"}, "one of each tenant"
    assert unpack(group.running["m/2"].args) == {"tenant": "b"}
    assert (await scene.store.limit_key("tenant=b")).held == 1
    await group.end(*taken)
    await group.settle()
    assert await group.claim() == {"m/1"}


async def test_an_element_that_makes_no_key_fails_the_map(scene: Scene) -> None:
    pattern = limited(key="tenant")
    group = await scene.submit_group(
        a_group({"m": ""}, jobs={"m": a_map(["a", "*"], pattern, "tenant")})
    )
    await group.settle()
    job = await scene.job(group.jobs["m"])
    assert job.state is S.FAILED
    assert job.error is not None
    assert "without *" in job.error.message


async def failed_fan(scene: Scene) -> GroupScene:
    """A group whose first job succeeded and whose others, which have limits, failed."""
    tree = {"a": "", "b": "a", "c": "a"}
    group = await scene.submit_group(a_group(tree, jobs=several("b c")))
    await group.claim()
    await group.end("a")
    await group.settle()
    for _ in range(2):
        await group.end(*await group.claim(), how=Failed)
    await group.settle()
    assert await group.group_state() == "failed"
    return group


async def test_a_new_run_keeps_limits(scene: Scene) -> None:
    _, run = await rerun(scene, await failed_fan(scene))
    await run.settle()
    assert await run_one_by_one(scene, run) == ["b", "c"]


async def test_a_retry_keeps_limits(scene: Scene) -> None:
    group = await failed_fan(scene)
    await scene.store.retry_group(group.id, "me", new_id(), keys=["a"])
    await group.settle()
    assert await group.claim() == {"a"}
    result = await end(scene, group, "a", offered=open_slots(await scene.attend(), 5))
    assert result.dependents == []
    assert await run_one_by_one(scene, group) == ["b", "c"]


async def test_a_pause_holds_what_waits_for_a_key_and_a_resume_lets_it_go(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": ""}, jobs=several("a b")))
    assert await group.claim() == {"a"}
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert await group.state("b") is S.WAITING
    await group.end("a")
    await scene.store.pause_group(group.id, False)
    await group.settle()
    await scene.store.open_limits()
    assert await group.claim() == {"b"}


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def test_two_dispatchers_end_and_claim_jobs_of_groups_and_are_never_above(
    scene: Scene, rival: Scene
) -> None:
    """Each end makes dependents ready that have limits, while the other one claims."""
    tree = {"a": "", "z": ""} | {f"b{n}": "a" for n in range(6)} | {f"c{n}": "z" for n in range(6)}
    jobs = {key: limited(2) for key in tree if key not in "az"}
    group = await scene.submit_group(a_group(tree, jobs=jobs))
    await group.claim()
    here, there = await scene.attend(), await rival.attend()
    running = {scene: [group.running["a"]], rival: [group.running["z"]]}
    begun = 0
    for _ in range(40):

        async def step(one: Scene) -> None:
            nonlocal begun
            ends, running[one] = running[one], []
            slot = here if one is scene else there
            pumped = await one.pump(list(map(done, ends)), claims=[a_claim([slot] * 4)])
            running[one] = pumped.claimed
            begun += len(pumped.claimed)

        await asyncio.gather(step(scene), step(rival))
        held = sum(map(len, running.values()))
        assert held <= 2
        assert (await scene.store.limit_key(KEY)).held == held
        if begun == len(jobs) and not held:
            break
    assert begun == len(jobs)
