"""Plain ends of groups on PostgreSQL: one statement, and what others do while it waits for a lock.

The statement sees the database as it was when it began, except for rows that it locks. So each test
makes it wait for one row, and has something else happen before it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.store.outside import HOLD, until_waiting

from longshore.model.ends import Failed, Skipped
from longshore.model.group import Condition, GroupState, GroupVerdict
from longshore.model.job import JobState, Verdict
from longshore.model.worker import FreeWorker, OpenSlots, SessionKey
from longshore.ports import Batch, BatchResult
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.plain_ends import MORE_SLOTS
from longshore.store.postgres.settling import MOST_REACHED
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, done, lane

S = JobState
G = GroupState

HOLD_GROUP = "SELECT FROM longshore.job_group WHERE id = $1 FOR UPDATE"
HOLD_NODE = "SELECT FROM longshore.node WHERE job = $1 FOR UPDATE"
HOLD_NODES = "SELECT FROM longshore.node WHERE group_id = $1 FOR UPDATE NOWAIT"
SKIP = "UPDATE longshore.node SET marks = 4 WHERE job = $1"
PAIR = {"a": "", "b": "", "c": "a b"}


@pytest.fixture
async def scene(postgres_store: PostgresStore) -> Scene:
    return await warmed(postgres_store)


async def warmed(store: PostgresStore) -> Scene:
    """A dispatcher whose last batch had an end of a group."""
    scene = Scene(store)
    group = await scene.submit_group(a_group({"first": ""}))
    await group.claim()
    await group.end("first")
    await group.settle()
    return scene


def in_one_statement(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a batch that needs a transaction of several statements fails."""
    assert isinstance(scene.store, PostgresStore)

    async def refuse(*_: object) -> None:
        raise AssertionError("it takes the general way")

    monkeypatch.setattr(scene.store._pumping, "run", refuse)


async def running(scene: Scene, after: dict[str, str] = PAIR) -> GroupScene:
    group = await scene.submit_group(a_group(after))
    await group.claim()
    return group


def ending(
    scene: Scene, group: GroupScene, *keys: str, on: SessionKey | None = None, slots: int = 9
) -> asyncio.Task[BatchResult]:
    """A dispatcher ends these jobs, and offers slots for what depends on them."""
    ends = [done(group.running.pop(key), by="") for key in keys]
    offered: Sequence[OpenSlots] = ()
    if on is not None:
        offered = [OpenSlots({lane()}, [FreeWorker(on, slots, 0)])]
    pumped = scene.store.pump(scene.dispatcher, Batch(ends, for_dependents=offered))
    return asyncio.ensure_future(pumped)


async def counts(scene: Scene) -> dict[str, int]:
    [queue] = await scene.store.queues()
    return {state: count for state, count in queue.counts.items() if count}


async def test_ends_and_what_they_start_are_one_statement(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await running(scene, {"a": "", "b": "a", "c": "a", "d": "b c"})
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    result = await ending(scene, group, "a", on=slot, slots=1)
    assert [one.id for one in result.dependents] == [group.jobs["b"]]
    [started] = result.dependents
    job = await scene.job(started.id)
    assert (job.state, job.token, job.worker) == (S.RUNNING, started.token, slot.worker)
    assert [entry.state for entry in job.history] == [S.WAITING, S.READY, S.RUNNING]
    assert result.ready == {lane(): 1}
    assert not result.groups
    assert await counts(scene) == {"succeeded": 2, "running": 1, "ready": 1, "waiting": 1}
    group.running["b"] = started
    monkeypatch.undo()
    assert await group.claim() == {"c"}
    in_one_statement(scene, monkeypatch)
    [last] = (await ending(scene, group, "b", "c", on=slot)).dependents
    group.running["d"] = last
    assert (await ending(scene, group, "d", on=slot)).groups == {group.id}
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_ends_that_earlier_ones_waited_for_start_what_depends_on_both(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that ends in two parts: the first starts nothing, the second all of the next one."""
    width = MORE_SLOTS + 10
    keys = [f"p{place}" for place in range(2 * width)]
    layer = {f"c{place}": f"{keys[place]} {keys[place - 1]}" for place in range(2 * width)}
    group = await running(scene, {**dict.fromkeys(keys, ""), **layer})
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    first = await ending(scene, group, *keys[::2], on=slot, slots=999)
    second = await ending(scene, group, *keys[1::2], on=slot, slots=999)
    assert (len(first.dependents), first.ready) == (0, {})
    assert (len(second.dependents), second.ready) == (2 * width, {})


async def test_ends_on_which_nothing_depends_ask_for_no_slots_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the last jobs of each group would make all later batches send more slots."""
    group = await running(scene, {"a": "", "b": "", "c": "", "d": "b c"})
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    assert isinstance(scene.store, PostgresStore)
    await ending(scene, group, "a", "b", on=slot)
    assert scene.store._pump._owed == 1, "b may still let something start, and a may not"
    [last] = (await ending(scene, group, "c", on=slot)).dependents
    group.running["d"] = last
    await ending(scene, group, "d", on=slot)
    assert scene.store._pump._owed == 1, "nothing depends on d, which ended alone"


async def test_what_may_not_start_at_once_is_left_to_settle_and_the_rest_starts(
    scene: Scene,
) -> None:
    after = {"a": "", "b": "", "e": "", "x": "a", "late": "b", "if_bad": "e"}
    jobs = {"late": a_job(delay_s=9.0)}
    conditions = {"if_bad": Condition.FAILED}
    group = await scene.submit_group(a_group(after, jobs=jobs, on=conditions))
    await group.claim()
    alone = await scene.running()
    slot = await scene.attend()
    keys = ("b", "a", "e")
    ends = [done(group.running.pop(key), by="") for key in keys]
    ends += [done(alone, by=""), done(alone, by="")]
    offered = [OpenSlots({lane()}, [FreeWorker(slot, 9, 0)])]
    result = await scene.store.pump(scene.dispatcher, Batch(ends, for_dependents=offered))
    assert [one.job for one in result.finished] == [end.job for end in ends]
    assert [one.verdict for one in result.finished[:4]] == [Verdict.RECORDED] * 4
    assert result.finished[4].verdict is Verdict.ALREADY_RECORDED
    assert [one.id for one in result.dependents] == [group.jobs["x"]]
    assert result.groups == {group.id}
    await group.settle()
    states = await group.states()
    wanted = {"x": S.RUNNING, "late": S.DELAYED, "if_bad": S.SKIPPED}
    assert {key: states[key] for key in wanted} == wanted


async def test_what_is_looked_at_once_more_is_not_counted_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that depends on a job is delayed: all that depends on this job is decided again."""
    jobs = {"late": a_job(delay_s=9.0)}
    group = await scene.submit_group(a_group({**PAIR, "late": "a"}, jobs=jobs))
    await group.claim()
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    assert (await ending(scene, group, "a", on=slot)).groups == {group.id}
    await group.settle()
    views = await group.look()
    assert (views["c"].unmet, views["c"].state, views["late"].state) == (1, S.WAITING, S.DELAYED)
    scene.store._pump._general_batches = 0  # type: ignore[attr-defined]
    [last] = (await ending(scene, group, "b", on=slot)).dependents
    assert last.id == group.jobs["c"]


async def test_one_that_wants_only_ends_starts_after_a_skip_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = {"c": Condition.ENDED}
    group = await scene.submit_group(a_group(PAIR, on=conditions))
    await group.claim()
    slot = await scene.attend()
    await group.end("a", how=Skipped)
    in_one_statement(scene, monkeypatch)
    [started] = (await ending(scene, group, "b", on=slot)).dependents
    assert started.id == group.jobs["c"]


async def test_an_end_that_very_many_depend_on_is_told_by_settle(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"n{place}": "a" for place in range(MOST_REACHED + 1)}
    group = await running(scene, {"a": "", "b": "", "x": "b", **many})
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    result = await ending(scene, group, "a", "b", on=slot)
    assert [one.id for one in result.dependents] == [group.jobs["x"]]
    assert result.groups == {group.id}
    await group.settle()
    assert (await counts(scene))["ready"] == MOST_REACHED + 1


async def test_the_last_end_of_a_group_whose_other_jobs_ended_before_closes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What depends on the job that ends last was cancelled, or cannot run: nothing starts."""
    cancelled, failed = await running(scene), await running(scene)
    await scene.store.cancel([cancelled.jobs["c"]])
    await failed.end("a", how=Failed)
    await scene.settle()
    in_one_statement(scene, monkeypatch)
    result = await ending(scene, cancelled, "a", "b")
    assert not result.dependents
    assert result.groups == {cancelled.id}
    await scene.settle()
    assert await cancelled.group_state() is G.CANCELLED
    scene.store._pump._general_batches = 0  # type: ignore[attr-defined]
    assert (await ending(scene, failed, "b")).groups == {failed.id}
    await scene.settle()
    assert await failed.group_state() is G.FAILED


async def test_a_failure_beside_plain_ends_is_told(scene: Scene) -> None:
    group = await running(scene, {"a": "", "b": "", "c": "a", "d": "b"})
    ends = [done(group.running["a"]), done(group.running["b"], Failed)]
    await scene.store.pump(scene.dispatcher, Batch(ends))
    assert await group.states() == {
        "a": S.SUCCEEDED,
        "b": S.FAILED,
        "c": S.READY,
        "d": S.DEPENDENCY_FAILED,
    }


async def test_two_that_end_the_parents_of_a_job_at_once_lose_no_count(
    scene: Scene, postgres_url: str, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_store = PostgresStore(postgres_url)
    other = await warmed(other_store)
    group = await running(scene)
    slots = [await scene.attend(), await other.attend()]
    in_one_statement(scene, monkeypatch)
    in_one_statement(other, monkeypatch)
    async with outside.transaction():
        await outside.execute(HOLD_NODE, group.jobs["c"])
        calls = [ending(scene, group, "a", on=slots[0])]
        await until_waiting(outside, 1)
        calls.append(ending(other, group, "b", on=slots[1]))
        await until_waiting(outside, 2)
    results = await asyncio.gather(*calls)
    started = [one.id for result in results for one in result.dependents]
    assert started == [group.jobs["c"]]
    assert (await group.look())["c"].unmet == 0
    monkeypatch.undo()
    await other_store.close()


async def test_a_pause_before_the_group_is_locked_is_seen(
    scene: Scene, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement began while the group was running."""
    group = await running(scene)
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    async with outside.transaction():
        await outside.execute(HOLD, group.jobs["a"])
        call = ending(scene, group, "a", "b", on=slot)
        await until_waiting(outside, 1)
        assert await scene.store.pause_group(group.id, True) is GroupVerdict.PAUSED
        await scene.settle()
    result = await call
    assert not result.dependents
    assert result.groups == {group.id}
    await group.settle()
    assert await group.state("c") is S.WAITING
    await scene.store.pause_group(group.id, False)
    await group.settle()
    monkeypatch.undo()
    assert await group.claim() == {"c"}


async def test_a_pause_after_the_group_was_locked_holds_what_became_ready(
    scene: Scene, outside: Connection
) -> None:
    group = await running(scene)
    async with outside.transaction():
        await outside.execute(HOLD_NODE, group.jobs["c"])
        call = ending(scene, group, "a", "b")
        await until_waiting(outside, 1)
        pause = asyncio.ensure_future(scene.store.pause_group(group.id, True))
        await until_waiting(outside, 2)
    await call
    assert await pause is GroupVerdict.PAUSED
    await group.settle()
    assert await group.state("c") is S.WAITING


async def test_it_waits_for_the_group_before_it_holds_a_node(
    scene: Scene, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds the group's row may want its nodes next."""
    group = await running(scene)
    in_one_statement(scene, monkeypatch)
    async with outside.transaction():
        await outside.execute(HOLD_GROUP, group.id)
        call = ending(scene, group, "a", "b")
        await until_waiting(outside, 1)
        await outside.execute(HOLD_NODES, group.id)
    await call
    assert await group.state("c") is S.READY


async def test_it_waits_for_nodes_before_it_holds_a_job_that_waits(
    scene: Scene, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await running(scene, {"a": "", "b": "a", "c": "a"})
    in_one_statement(scene, monkeypatch)
    async with outside.transaction():
        await outside.execute(HOLD_NODE, group.jobs["c"])
        call = ending(scene, group, "a")
        await until_waiting(outside, 1)
        for key in ("b", "c"):
            await outside.execute(f"{HOLD} NOWAIT", group.jobs[key])
    await call
    assert {await group.state("b"), await group.state("c")} == {S.READY}


async def test_a_job_cancelled_while_its_node_is_waited_for_does_not_start(
    scene: Scene, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await running(scene)
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    async with outside.transaction():
        await outside.execute(HOLD_NODE, group.jobs["c"])
        call = ending(scene, group, "a", "b", on=slot)
        await until_waiting(outside, 1)
        await scene.store.cancel([group.jobs["c"]])
    assert not (await call).dependents
    assert await group.state("c") is S.CANCELLED
    await group.settle()
    assert await group.group_state() is G.CANCELLED


async def test_a_skip_heard_while_a_node_is_waited_for_is_not_lost(
    scene: Scene, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node waits for nothing more, and must not run: a sweep decides."""
    group = await running(scene)
    slot = await scene.attend()
    in_one_statement(scene, monkeypatch)
    async with outside.transaction():
        await outside.execute(SKIP, group.jobs["c"])
        call = ending(scene, group, "a", "b", on=slot)
        await until_waiting(outside, 1)
    result = await call
    assert not result.dependents
    assert result.groups == {group.id}
    await group.settle()
    assert await group.state("c") is S.SKIPPED


async def test_a_group_that_is_hardly_plain_is_not_tried_for_a_while(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = {"b": Condition.ENDED, "c": Condition.ENDED}
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "b"}, on=conditions))
    await group.claim()
    await group.end("a")
    assert await group.claim() == {"b"}
    in_one_statement(scene, monkeypatch)
    with pytest.raises(AssertionError, match="general way"):
        await group.end("b")


async def test_a_sweep_that_met_a_group_held_by_plain_ends_comes_back(
    scene: Scene, outside: Connection
) -> None:
    group = await running(scene)
    await scene.store.pause_group(group.id, True)
    async with outside.transaction():
        await outside.execute(HOLD_GROUP.replace("UPDATE", "SHARE"), group.id)
        settled = await scene.store.settle()
        assert settled.groups == {group.id}
    await scene.settle()
    assert not (await scene.store.settle()).groups
