"""Groups with a limit: whatever makes a job of such a group, the job counts for the group's key."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.key_limits import group_key
from longshore.model.ends import Failed
from longshore.model.group import AddedNode
from longshore.model.job import Refused
from longshore.model.limits import JobLimit, LimitRule
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    a_map,
    additions,
    new_id,
)

from .test_new_runs import rerun


async def run_two_at_once(scene: Scene, group: GroupScene) -> list[str]:
    """Runs a group with a limit of 2 to its end: as many run as may, and never more."""
    ran: list[str] = []
    key = group_key(group.id)
    while await group.group_state() == "running":
        taken = await group.claim()
        view = await scene.store.limit_key(key)
        assert (view.held, view.concurrency) == (len(group.running), 2)
        assert 0 < len(group.running) <= 2
        ran += sorted(taken)
        await group.end(*taken)
        await group.settle()
    return ran


async def test_a_group_has_at_most_so_many_jobs_at_once(scene: Scene) -> None:
    tree = {"a": "", "b": "", "c": "", "d": "a"}
    group = await scene.submit_group(a_group(tree, most=2))
    assert await group.claim() == {"a", "b"}
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert shown.limit == JobLimit("group=", 2)
    await group.end("a", "b")
    await group.settle()
    assert await run_two_at_once(scene, group) == ["c", "d"]


async def test_each_group_counts_by_itself(scene: Scene) -> None:
    first = await scene.submit_group(a_group({"a": "", "b": ""}, most=1))
    second = await scene.submit_group(a_group({"a": "", "b": ""}, most=1))
    assert await first.claim() == {"a"}
    for group in (first, second):
        assert (await scene.store.limit_key(group_key(group.id))).held == 1


async def test_jobs_keep_limits_of_their_own(scene: Scene) -> None:
    own = a_job(limits=(JobLimit("tenant=a", 1),))
    group = await scene.submit_group(a_group({"a": "", "b": ""}, jobs={"a": own, "b": own}, most=2))
    assert await group.claim() == {"a"}
    job = await scene.job(group.jobs["b"])
    assert [one.key for one in job.options.limits] == ["tenant=a", group_key(group.id)]


async def test_what_a_job_adds_counts(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}, most=2))
    await group.claim()
    await group.end("a", adds=additions({"x": "", "y": "", "z": ""}))
    await group.settle()
    assert await run_two_at_once(scene, group) == ["a/x", "a/y", "a/z"]


async def test_what_a_client_adds_counts(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}, most=2))
    request = new_id()
    added = [AddedNode(key, a_job()) for key in "xyz"]
    for _ in range(2):  # a repeat is the same request, though the jobs are stored with a key more
        await scene.store.add_to_group(group.id, request, added)
    await group.look()
    assert sorted(await run_two_at_once(scene, group)) == ["a", "x", "y", "z"]


async def test_elements_of_a_map_count(scene: Scene) -> None:
    elements = a_map(["p", "q", "r"], a_job(), "x")
    group = await scene.submit_group(a_group({"m": ""}, jobs={"m": elements}, most=2))
    await group.settle()
    assert await run_two_at_once(scene, group) == ["m/0", "m/1", "m/2"]


async def test_elements_of_a_map_that_a_job_adds_count(scene: Scene) -> None:
    elements = a_map(["p", "q", "r"], a_job(), "x")
    group = await scene.submit_group(a_group({"a": ""}, most=2))
    await group.claim()
    await group.end("a", adds=additions({"m": ""}, jobs={"m": elements}))
    await group.settle()
    assert await run_two_at_once(scene, group) == ["a/m/0", "a/m/1", "a/m/2"]


async def failed(scene: Scene, most: int = 2) -> GroupScene:
    """A group with a limit, whose first job succeeded, and whose others failed."""
    tree = {"a": "", "b": "a", "c": "a", "d": "a"}
    group = await scene.submit_group(a_group(tree, most=most))
    await group.claim()
    await group.end("a")
    await group.settle()
    while await group.group_state() == "running":
        await group.end(*await group.claim(), how=Failed)
        await group.settle()
    return group


async def test_a_retry_counts(scene: Scene) -> None:
    group = await failed(scene)
    await scene.store.retry_group(group.id, "me", new_id())
    await group.settle()
    assert await run_two_at_once(scene, group) == ["b", "c", "d"]


@pytest.mark.parametrize("most", [1, 1000])
async def test_a_new_run_has_a_key_of_its_own(scene: Scene, most: int) -> None:
    first = await failed(scene)
    _, run = await rerun(scene, first, most=most)
    await run.settle()
    await run.look()
    for key in "abcd":
        [limit] = (await scene.job(run.jobs[key])).options.limits
        assert limit == JobLimit(group_key(run.id), 2)
    assert await run_two_at_once(scene, run) == ["b", "c", "d"]
    [limit] = (await scene.job(first.jobs["b"])).options.limits
    assert limit.key == group_key(first.id), "the first group keeps its own"


async def test_a_run_of_a_run_has_its_own_key_too(scene: Scene) -> None:
    _, second = await rerun(scene, await failed(scene))
    await second.settle()
    while await second.group_state() == "running":
        await second.end(*await second.claim(), how=Failed)
        await second.settle()
    _, third = await rerun(scene, second)
    await third.settle()
    assert await run_two_at_once(scene, third) == ["b", "c", "d"]


async def test_a_rule_for_the_group_goes_before_its_limit(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "", "c": ""}, most=1))
    assert await group.claim() == {"a"}
    await scene.store.set_limit(LimitRule(group_key(group.id), 2))
    await scene.store.open_limits()
    assert await group.claim() == {"b"}


async def test_a_repeat_with_another_limit_is_refused(scene: Scene) -> None:
    part = a_group({"a": ""}, most=1)
    await scene.store.submit_group(part)
    assert not isinstance(await scene.store.submit_group(part), Refused)
    other = structs.replace(part, head=structs.replace(part.head, limit=JobLimit("group=", 2)))
    answer = await scene.store.submit_group(other)
    assert isinstance(answer, Refused)
    assert answer.code == "conflict"
