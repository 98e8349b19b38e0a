"""What stores answer of groups: why a job of one is where it is, and numbers that nothing has."""

from __future__ import annotations

import pytest

from longshore.core.why import why
from longshore.model.ends import Failed
from longshore.model.group import (
    MOST_SHOWN,
    Condition,
    GroupFilter,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    NodeFacts,
)
from longshore.model.job import JobState
from longshore.testing.builders import GroupScene, Scene, a_group

S = JobState
PAST = [2**63, 2**64 - 1, 2**100, -(2**63) - 1, -(2**100)]


async def facts(scene: Scene, group: GroupScene, key: str) -> NodeFacts:
    job = await scene.job(group.jobs[key])
    found = (await scene.store.explain(job)).node
    assert found is not None
    return found


async def test_why_knows_what_a_job_waits_for(scene: Scene) -> None:
    """G4."""
    edges = {"a": "", "left": "a", "right": "a", "bottom": "a left right"}
    group = await scene.submit_group(a_group(edges, on={"bottom": Condition.ENDED}, name="nightly"))
    await group.claim()
    await group.end("a")
    await group.settle()
    found = await facts(scene, group, "bottom")
    assert (found.key, found.on, found.after, found.unmet) == ("bottom", Condition.ENDED, 3, 2)
    assert sorted(found.waits_for) == [("left", S.READY), ("right", S.READY)]
    assert (found.group.id, found.group.name) == (group.id, "nightly")
    assert found.group.state is GroupState.RUNNING
    await group.claim()
    await group.end("left", how=Failed)
    await group.settle()
    assert (await facts(scene, group, "bottom")).waits_for == (("right", S.RUNNING),)


async def test_why_tells_of_a_few_only(scene: Scene) -> None:
    many = {f"k{number:03}": "" for number in range(100)}
    group = await scene.submit_group(a_group({**many, "last": " ".join(many)}))
    found = await facts(scene, group, "last")
    assert (found.after, found.unmet, len(found.waits_for)) == (100, 100, MOST_SHOWN)
    shown = ", ".join(f"'k{number:03}' (ready)" for number in range(MOST_SHOWN))
    job = await scene.job(group.jobs["last"])
    said = why(job, await scene.store.explain(job))
    assert said == f"waiting for 100 of 100: {shown} and 95 more"


async def test_why_knows_of_a_job_that_waits_for_nothing_or_belongs_to_nothing(
    scene: Scene,
) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    found = await facts(scene, group, "a")
    assert (found.key, found.after, found.unmet, found.waits_for) == ("a", 0, 0, ())
    [number] = await scene.accepted(a_group({"x": ""}).nodes[0].job)
    single = await scene.job(number)
    assert (await scene.store.explain(single)).node is None


async def test_why_knows_that_parts_of_a_group_are_missing(scene: Scene) -> None:
    whole = a_group({"a": "", "b": "a"})
    second = GroupPart(whole.head, 1, whole.nodes[1:])
    assert isinstance(await scene.store.submit_group(second), GroupSubmitted)
    job = await scene.job(whole.nodes[1].job.id)
    found = (await scene.store.explain(job)).node
    assert found is not None
    assert (found.group.state, found.after, found.unmet) == (GroupState.STAGING, 1, 1)
    assert found.waits_for == (), "what it waits for is not there yet"


@pytest.mark.parametrize("number", PAST)
async def test_no_group_has_such_a_number(scene: Scene, number: int) -> None:
    part = a_group({"a": ""})
    group = await scene.submit_group(part)
    assert await scene.store.group(number) is None
    assert await scene.store.cancel_group(number) is GroupVerdict.NOT_FOUND
    found = await scene.store.groups(GroupFilter(before=number))
    assert [one.id for one in found] == ([group.id] if number > 0 else [])


async def test_a_list_of_groups_begins_where_it_is_told(scene: Scene) -> None:
    parts = [a_group({"a": ""}) for _ in range(3)]
    for part in parts:
        await scene.submit_group(part)
    newest = [part.head.id for part in reversed(parts)]
    first = await scene.store.groups(GroupFilter(limit=2))
    assert [one.id for one in first] == newest[:2]
    rest = await scene.store.groups(GroupFilter(before=first[-1].number))
    assert [one.id for one in rest] == newest[2:]
    assert await scene.store.groups(GroupFilter(limit=0)) == []
    assert rest[0].counts == {}


async def test_the_end_of_the_last_that_runs_tells_of_its_cancelled_group(scene: Scene) -> None:
    """What depended on it has ended before: nobody else would ask whether the group is over."""
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    await scene.store.cancel_group(group.id)
    await group.settle()
    assert await group.states() == {"a": S.CANCELLING, "b": S.CANCELLED}
    assert group.id in (await group.end("a")).groups
