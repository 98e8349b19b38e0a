"""Jobs of groups that start in the very batch which ends the last job they waited for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from longshore.model.ends import Failed
from longshore.model.job import JobState, Options
from longshore.model.worker import FreeWorker, OpenSlots, SessionKey
from longshore.payload.references import Reference
from longshore.payload.values import pack, unpack
from longshore.ports import Batch, BatchResult
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    done,
    lane,
    new_id,
)

S = JobState
FAN = {"a": "", "b": "a", "c": "a"}


def open_slots(slot: SessionKey, many: int, *lanes: int) -> list[OpenSlots]:
    return [OpenSlots({*(lanes or (lane(),))}, [FreeWorker(slot, many, 0)])]


async def end(
    scene: Scene,
    group: GroupScene,
    *keys: str,
    offered: Sequence[OpenSlots],
    max_bytes: int = 1_000_000,
) -> BatchResult:
    """Ends these jobs and offers slots for what depends on them."""
    ends = [done(group.running.pop(key)) for key in keys]
    batch = Batch(ends, for_dependents=offered, max_bytes=max_bytes)
    return await scene.store.pump(scene.dispatcher, batch)


async def a_fan(scene: Scene, tree: dict[str, str] | None = None) -> tuple[GroupScene, SessionKey]:
    """A group whose first jobs run, and a worker with free slots."""
    group = await scene.submit_group(a_group(tree or FAN))
    await group.claim()
    return group, await scene.attend()


def keys(group: GroupScene, result: BatchResult) -> list[str]:
    known = {id: key for key, id in group.jobs.items()}
    return [known[one.id] for one in result.dependents]


async def test_dependents_start_on_free_slots_in_the_batch_of_the_end(scene: Scene) -> None:
    group, slot = await a_fan(scene)
    result = await end(scene, group, "a", offered=open_slots(slot, 5))
    assert keys(group, result) == ["b", "c"]
    assert (sum(result.ready.values()), sum(result.ready_by_ends.values())) == (0, 0)
    for one in result.dependents:
        assert (one.worker, one.session, one.attempt) == (slot.worker, slot.session, 1)
        job = await scene.job(one.id)
        assert (job.state, job.worker, job.token) == (S.RUNNING, slot.worker, one.token)
        assert [entry.state for entry in job.history] == [S.WAITING, S.READY, S.RUNNING]
        assert job.started_at is not None
    finished = await scene.finish(*(done(one) for one in result.dependents))
    assert [one.state for one in finished] == [S.SUCCEEDED, S.SUCCEEDED]
    await group.settle()
    assert await group.group_state() == "succeeded"


async def test_a_dependent_that_starts_so_says_its_round(scene: Scene) -> None:
    group, slot = await a_fan(scene, {"a": "", "b": "a"})
    [first] = (await end(scene, group, "a", offered=open_slots(slot, 1))).dependents
    await scene.finish(done(first))
    await group.settle()
    await scene.store.retry_group(group.id, "me", new_id(), keys=["a"])
    await group.settle()
    await group.claim()
    [again] = (await end(scene, group, "a", offered=open_slots(slot, 1))).dependents
    assert (first.id, first.round, again.round) == (again.id, 1, 2)


async def test_of_more_dependents_than_slots_the_first_in_order_start(scene: Scene) -> None:
    tree = {"a": "", "late": "a", "soon": "a"}
    soon = structs.replace(a_job(), priority=5)
    group = await scene.submit_group(a_group(tree, jobs={"soon": soon}))
    await group.claim()
    slot = await scene.attend()
    result = await end(scene, group, "a", offered=open_slots(slot, 1))
    assert keys(group, result) == ["soon"]
    assert await group.state("late") is S.READY
    assert result.ready_by_ends == {lane(): 1}
    assert await group.claim() == {"late"}


async def test_a_dependent_that_waits_for_another_does_not_start(scene: Scene) -> None:
    """G5: never before its condition holds."""
    group, slot = await a_fan(scene, {"a": "", "b": "", "c": "a b"})
    assert keys(group, await end(scene, group, "a", offered=open_slots(slot, 5))) == []
    assert await group.state("c") is S.WAITING
    assert keys(group, await end(scene, group, "b", offered=open_slots(slot, 5))) == ["c"]


async def test_dependents_of_a_paused_queue_are_ready_and_do_not_start(scene: Scene) -> None:
    group, slot = await a_fan(scene)
    await scene.store.set_paused("default", True)
    result = await end(scene, group, "a", offered=open_slots(slot, 5))
    assert (keys(group, result), sum(result.ready.values())) == ([], 2)
    assert await group.claim() == set()
    await scene.store.set_paused("default", False)
    assert await group.claim() == {"b", "c"}


async def test_dependents_of_a_paused_group_wait_until_it_goes_on(scene: Scene) -> None:
    group, slot = await a_fan(scene)
    await scene.store.pause_group(group.id, True)
    await group.settle()
    result = await end(scene, group, "a", offered=open_slots(slot, 5))
    assert (keys(group, result), sum(result.ready.values())) == ([], 0)
    await group.settle()
    assert await group.state("b") is S.WAITING
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"b", "c"}


async def test_dependents_start_only_on_workers_that_may_have_them(scene: Scene) -> None:
    group, slot = await a_fan(scene)
    other = await Scene(scene.store).attend()
    drained = await scene.attend()
    await scene.store.set_draining(drained.worker, True)
    past = SessionKey(slot.worker, slot.session + 1)
    offered = [some for one in (other, drained, past) for some in open_slots(one, 1)]
    result = await end(scene, group, "a", offered=offered)
    assert (keys(group, result), sum(result.ready.values())) == ([], 2)
    assert await group.claim() == {"b", "c"}


async def test_dependents_in_lanes_that_nobody_offered_slots_for_are_ready(scene: Scene) -> None:
    group, slot = await a_fan(scene)
    result = await end(scene, group, "a", offered=open_slots(slot, 5, lane(kind="other")))
    assert (keys(group, result), sum(result.ready.values())) == ([], 2)


async def test_a_batch_starts_dependents_only_up_to_its_bytes(scene: Scene) -> None:
    group, slot = await a_fan(scene)
    result = await end(scene, group, "a", offered=open_slots(slot, 5), max_bytes=1)
    assert keys(group, result) == ["b"]
    assert await group.state("c") is S.READY


async def test_a_repeated_batch_starts_nothing_twice(scene: Scene) -> None:
    """The answer got lost: the dispatcher sends the batch again, and reads back what began."""
    group, slot = await a_fan(scene)
    first = group.running["a"]
    result = await end(scene, group, "a", offered=open_slots(slot, 5))
    group.running["a"] = first
    again = await end(scene, group, "a", offered=open_slots(slot, 5))
    assert again.dependents == []
    placed = await scene.store.placed([slot])
    assert {one.token for one in placed} == {one.token for one in result.dependents}


async def test_a_dependent_that_starts_gets_the_results_it_refers_to(scene: Scene) -> None:
    wanted = pack({"x": Reference("a").as_value()}, "arguments")
    taker = structs.replace(a_job(), args=wanted, options=Options(references=True))
    group = await scene.submit_group(a_group({"a": "", "b": "a"}, jobs={"b": taker}))
    await group.claim()
    slot = await scene.attend()
    ends = [done(group.running.pop("a"), result=pack(7, "result"))]
    batch = Batch(ends, for_dependents=open_slots(slot, 1))
    [started] = (await scene.store.pump(scene.dispatcher, batch)).dependents
    assert unpack(started.args) == {"x": 7}


async def test_the_time_to_begin_counts_from_the_end_of_what_it_waited_for(scene: Scene) -> None:
    hurried = structs.replace(a_job(), options=Options(expires_s=60.0, timeout_s=5.0))
    group = await scene.submit_group(a_group({"a": "", "b": "a"}, jobs={"b": hurried}))
    await group.claim()
    slot = await scene.attend()
    [started] = (await end(scene, group, "a", offered=open_slots(slot, 1))).dependents
    assert started.begin_within_s is not None
    assert 0 < started.begin_within_s <= 60


async def test_beside_a_dependent_that_fails_another_one_starts(scene: Scene) -> None:
    group, slot = await a_fan(scene, {"a": "", "x": "", "b": "a", "y": "x"})
    ends = [done(group.running.pop("a")), done(group.running.pop("x"), Failed)]
    batch = Batch(ends, for_dependents=open_slots(slot, 5))
    result = await scene.store.pump(scene.dispatcher, batch)
    begun = set(keys(group, result)) | await group.claim()
    assert begun == {"b"}
    assert await group.state("y") is S.DEPENDENCY_FAILED
