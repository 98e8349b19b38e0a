"""Where other systems go wrong when work is added to a graph that runs."""

from __future__ import annotations

import pytest

from longshore.model.group import GroupState
from longshore.model.job import JobState
from longshore.model.reports import OutboxNode
from longshore.payload.references import Reference
from longshore.payload.values import unpack
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    a_map,
    additions,
    needs,
    new_id,
)

from .test_growth_races import claim, run_to_the_end
from .test_new_runs import all_steps

S = JobState
G = GroupState

WIDE = 4_100
"""Past 1,024, where fan-outs stop elsewhere, and past 4,000, where some freeze."""


async def test_dependents_do_not_run_early_after_nested_growth(scene: Scene) -> None:
    """What depends on the first job waits for the last of four generations."""
    group = await scene.submit_group(a_group({"a": "", "d": "a"}))
    await group.claim()
    key = "a"
    for _ in range(4):
        await group.end(key, adds=additions({"x": ""}))
        await group.settle()
        key += "/x"
        assert await group.claim() == {key}
        assert await group.state("d") is S.WAITING
    await group.end(key)
    await group.settle()
    assert await group.claim() == {"d"}


@pytest.mark.parametrize("is_added", [False, True], ids=["submitted", "added by a job"])
async def test_an_empty_fan_out_does_not_cancel_what_depends_on_it(
    scene: Scene, is_added: bool
) -> None:
    empty, needing = a_map([]), needs(Reference("m", is_map=True))
    if is_added:
        group = await scene.submit_group(a_group({"a": "", "d": "a"}))
        await group.claim()
        added = additions({"m": "", "n": "m"}, jobs={"m": empty, "n": needing})
        await group.end("a", adds=added)
        waves = [{"a/n"}, {"d"}]
    else:
        part = a_group({"m": "", "n": "m", "d": "n"}, jobs={"m": empty, "n": needing})
        group = await scene.submit_group(part)
        waves = [{"n"}, {"d"}]
    await group.settle()
    first = await group.claim()
    assert first == waves[0]
    assert [unpack(one.args) for one in group.running.values()] == [{"a0": []}]
    await group.end(*first)
    await group.settle()
    assert await run_to_the_end(group) == waves[1:]
    assert await group.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("again", ["retry", "rerun"])
async def test_a_replay_reaches_the_children(scene: Scene, again: str) -> None:
    """What a job and a map add runs again with them, and so does what depends on all of it."""
    part = a_group({"a": "", "m": "", "d": "a m"}, jobs={"m": a_map(range(2))})
    group = await scene.submit_group(part)
    await grow(group)
    if again == "retry":
        await scene.store.retry_group(group.id, "me", new_id(), keys=["a", "m"])
    else:
        plan = await all_steps(scene.store, group.id, new_id(), "a", "m")
        assert plan.run is not None
        group = await group.of_run(plan.run.id)
    await grow(group)
    assert len(group.jobs) == 7


async def grow(group: GroupScene) -> None:
    """Everything runs, from the job that adds and the map that becomes jobs, to the end."""
    await group.settle()
    assert await claim(group) == {"a", "m/0", "m/1"}
    await group.end("a", adds=additions({"x": "", "y": "x"}))
    await group.end("m/0", "m/1")
    await group.settle()
    assert await run_to_the_end(group) == [{"a/x"}, {"a/y"}, {"d"}]
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("by", ["map", "job"])
async def test_a_fan_out_past_a_thousand_and_past_four_thousand_is_whole(
    scene: Scene, by: str
) -> None:
    """It neither stops nor freezes, and what depends on it waits for the very last."""
    jobs = {"a": a_map(range(WIDE))} if by == "map" else {}
    group = await scene.submit_group(a_group({"a": "", "d": "a"}, jobs=jobs))
    if by == "job":
        await group.claim()
        await group.end("a", adds=[OutboxNode(str(n), a_job()) for n in range(WIDE)])
    await group.settle()
    assert (await group.look())["a"].open == WIDE
    *most, last = await group.claim()
    assert len(most) == WIDE - 1
    await group.end(*most)
    await group.settle()
    assert await group.claim() == set()
    await group.end(last)
    await group.settle()
    assert await group.claim() == {"d"}
