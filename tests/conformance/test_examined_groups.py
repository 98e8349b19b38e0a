"""Examining groups: what was lost is found, and counted anew; what is under way is no finding."""

from __future__ import annotations

import pytest

from longshore.model.ends import Failed
from longshore.model.finding import Trouble
from longshore.model.group import GATE, SCOPE, GroupState
from longshore.model.job import JobState
from longshore.run.doctor import examine
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, new_id

from .test_groups import DIAMOND

T = Trouble

A_SCOPE = a_job(kind=SCOPE)
SUB = {"s": A_SCOPE}
"""A job that stands for a sub-group."""


async def troubles(scene: Scene, group: GroupScene, *, repair: bool = False) -> list[Trouble]:
    """What is wrong with a group."""
    found = await scene.store.examine_group(group.id, repair=repair)
    assert all(one.group == group.id and one.repaired is repair for one in found)
    return [one.trouble for one in found]


async def test_nothing_is_wrong_while_a_group_runs(scene: Scene) -> None:
    """Whatever it does, and whether or not its ends have reached all."""
    group = await scene.submit_group(a_group(DIAMOND))
    assert await troubles(scene, group) == []
    await group.claim()
    await group.end("top")
    assert await troubles(scene, group) == []
    await scene.store.pause_group(group.id, True)
    assert await troubles(scene, group) == []
    await group.settle()
    assert await troubles(scene, group) == []
    await scene.store.pause_group(group.id, False)
    await group.settle()
    await group.claim()
    await group.end("left", how=Failed)
    assert await troubles(scene, group) == []
    await group.settle()
    assert await troubles(scene, group, repair=True) == []
    await group.end("right")
    await group.settle()
    assert await group.group_state() is GroupState.FAILED
    assert await troubles(scene, group) == []


@pytest.mark.parametrize("unmet", [0, 2])
async def test_a_wrong_count_is_found_and_counted_anew(
    scene: Scene, backend: Backend, unmet: int
) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await backend.force_unmet(group.jobs["b"], unmet)
    [found] = await scene.store.examine_group(group.id)
    assert (found.trouble, found.job) == (T.COUNT, group.jobs["b"])
    assert found.words.endswith("but 1 of the 1 it depends on have not ended")
    assert await troubles(scene, group, repair=True) == [T.COUNT]
    assert await troubles(scene, group) == []
    await group.settle()
    assert await group.claim() == {"a"}
    await group.end("a")
    assert await group.claim() == {"b"}


async def test_a_job_that_waits_for_nothing_wakes_after_a_repair(
    scene: Scene, backend: Backend
) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    await group.end("a")
    await group.settle()
    await backend.force(group.jobs["b"], JobState.WAITING)
    [found] = await scene.store.examine_group(group.id)
    assert (found.trouble, found.job) == (T.WAITING, group.jobs["b"])
    assert await troubles(scene, group, repair=True) == [T.WAITING]
    await group.settle()
    assert await group.claim() == {"b"}
    assert await troubles(scene, group) == []


async def test_a_scope_that_closes_by_a_repair_is_told_once(scene: Scene, backend: Backend) -> None:
    """Who depends on it and on another job still waits for that one."""
    part = a_group({"s": "", "s/x": "", "r": "", "d": "s r"}, jobs=SUB, scopes={"s/x": "s"})
    group = await scene.submit_group(part)
    await group.settle()
    await group.claim()
    await backend.force_open(group.jobs["s"], 2)
    await group.end("s/x")
    await group.settle()
    assert await troubles(scene, group, repair=True) == [T.COUNT]
    await group.settle()
    assert await group.claim() == set()
    assert (await group.look())["d"].unmet == 1
    assert await troubles(scene, group) == []
    await group.end("r")
    assert await group.claim() == {"d"}


async def test_scopes_in_scopes_close_after_a_repair(scene: Scene, backend: Backend) -> None:
    after = {"s": "", "s/t": "", "s/t/x": "", "s/y": "", "r": "", "d": "s r"}
    scopes = {"s/t": "s", "s/y": "s", "s/t/x": "s/t"}
    group = await scene.submit_group(a_group(after, jobs=SUB | {"s/t": A_SCOPE}, scopes=scopes))
    await group.settle()
    await group.claim()
    await backend.force_open(group.jobs["s/t"], 2)
    await group.end("s/t/x", "s/y")
    await group.settle()
    assert await troubles(scene, group, repair=True) == [T.COUNT]
    await group.settle()
    assert await troubles(scene, group) == []
    assert (await group.look())["d"].unmet == 1
    await group.end("r")
    assert await group.claim() == {"d"}


async def test_a_group_that_did_not_end_with_its_jobs_is_found(
    scene: Scene, backend: Backend
) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    await group.claim()
    await group.end("a", "b")
    assert await troubles(scene, group) == [T.NOT_CLOSED]
    assert await troubles(scene, group, repair=True) == [T.NOT_CLOSED]
    await group.settle()
    assert await group.group_state() is GroupState.SUCCEEDED


async def test_no_group_has_nothing_wrong(scene: Scene) -> None:
    assert await scene.store.examine_group(new_id()) == []


async def test_the_doctor_does_not_miss_workers_for_gates(scene: Scene) -> None:
    gate = a_job(kind=GATE, args=b"\x80")
    group = await scene.submit_group(a_group({"g": ""}, jobs={"g": gate}))
    assert await group.state("g") is JobState.READY
    assert await examine(scene.store) == []


async def test_the_doctor_tells_of_dead_owners_and_of_jobs_that_nobody_serves(
    scene: Scene, backend: Backend
) -> None:
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    served, other = a_job(), a_job(kind="other")
    await scene.accepted(served, other)
    assert [one.job for one in await examine(scene.store)] == [other.id]
    await backend.half_harvest(slot.worker)
    found = {one.job: one for one in await examine(scene.store)}
    assert found[attempt.id].trouble is T.OWNER
    assert found[other.id].trouble is T.UNSERVED
    assert found[other.id].words.endswith("no live worker serves kind 'other' in queue 'default'")
    assert found.keys() == {attempt.id, served.id, other.id}
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await backend.force_unmet(group.jobs["b"], 5)
    assert group.id in {one.group for one in await examine(scene.store, repair=True)}
    assert group.id not in {one.group for one in await examine(scene.store)}


async def test_a_repair_frees_the_jobs_of_a_dead_worker(scene: Scene, backend: Backend) -> None:
    """As a dispatcher's sweep does; what a living worker runs goes on."""
    slot = await scene.attend()
    lost, stopping = await scene.running(slot=slot), await scene.running(slot=slot)
    kept = await scene.running(slot=await scene.attend())
    await scene.store.cancel([stopping.id])
    await backend.half_harvest(slot.worker)
    found = await examine(scene.store)
    assert {(one.job, one.repaired) for one in found} == {(lost.id, False), (stopping.id, False)}
    found = await examine(scene.store, repair=True)
    owned = {(one.job, one.repaired) for one in found if one.trouble is T.OWNER}
    assert owned == {(lost.id, True), (stopping.id, True)}
    ids = lost.id, stopping.id, kept.id
    states = [await scene.state(id) for id in ids]
    assert states == [JobState.READY, JobState.CANCELLED, JobState.RUNNING]
    assert T.OWNER not in {one.trouble for one in await examine(scene.store)}
