"""One plain end of a group by itself on PostgreSQL: what it does, and what it leaves to others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.store.outside import HOLD, until_waiting
from tests.unit.store.test_postgres_plain_ends import counts, ending, running, warmed

from longshore.model.group import GroupState, GroupVerdict
from longshore.model.job import JobState, Verdict
from longshore.model.worker import SessionKey
from longshore.ports import Batch
from longshore.store.postgres.connections import Connection, ConnectionPool
from longshore.store.postgres.plain_end import END_ONE
from longshore.store.postgres.plain_ends import END_PLAIN
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_group, a_job, done

S = JobState


@pytest.fixture
async def scene(postgres_store: PostgresStore) -> Scene:
    return await warmed(postgres_store)


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that are transactions of their own; any other transaction fails."""
    sent: list[str] = []
    alone = ConnectionPool.alone

    async def counted(self: ConnectionPool, sql: str, *values: object) -> object:
        sent.append({END_ONE: "one", END_PLAIN: "plain"}.get(sql, sql))
        return await alone(self, sql, *values)

    async def refuse(*_: object) -> None:
        raise AssertionError("it takes the general way")

    with monkeypatch.context() as patch:
        patch.setattr(ConnectionPool, "alone", counted)
        patch.setattr(ConnectionPool, "run", refuse)
        yield sent


async def test_a_step_of_a_chain_is_one_short_statement(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await running(scene, {"a": "", "b": "a"})
    slot = await scene.attend()
    with statements(monkeypatch) as sent:
        result = await ending(scene, group, "a", on=slot)
    assert sent == ["one"]
    [started] = result.dependents
    job = await scene.job(started.id)
    assert started.id == group.jobs["b"]
    assert (job.state, job.token, job.worker) == (S.RUNNING, started.token, slot.worker)
    assert [entry.state for entry in job.history] == [S.WAITING, S.READY, S.RUNNING]
    assert (result.ready, result.groups) == ({}, frozenset())
    assert await counts(scene) == {"succeeded": 2, "running": 1}
    group.running["b"] = started
    with statements(monkeypatch) as sent:
        assert (await ending(scene, group, "b", on=slot)).groups == {group.id}
    assert sent == ["one"]
    await group.settle()
    assert await group.group_state() is GroupState.SUCCEEDED


@pytest.mark.parametrize("slots", [0, 1])
async def test_without_a_slot_the_next_step_is_ready(scene: Scene, slots: int) -> None:
    """No worker has one, or one of a worker that has left."""
    group = await running(scene, {"a": "", "b": "a"})
    gone = await scene.attend()
    offered = SessionKey(gone.worker, gone.session + 1)
    result = await ending(scene, group, "a", on=offered, slots=slots)
    assert (result.dependents, sum(result.ready.values())) == ([], 1)
    assert await group.claim() == {"b"}


async def test_an_end_that_two_depend_on_takes_the_other_statement_for_a_while(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await running(scene, {"a": "", "z": "", "b": "a", "c": "a", "y": "z"})
    slot = await scene.attend()
    with statements(monkeypatch) as sent:
        result = await ending(scene, group, "a", on=slot)
        last = await ending(scene, group, "z", on=slot)
    assert sent == ["one", "plain", "plain"]
    assert {one.id for one in result.dependents} == {group.jobs["b"], group.jobs["c"]}
    assert [one.id for one in last.dependents] == [group.jobs["y"]]


async def test_one_of_two_that_a_job_waits_for_only_counts_it_down(scene: Scene) -> None:
    group = await running(scene)
    slot = await scene.attend()
    assert (await ending(scene, group, "a", on=slot)).dependents == []
    assert (await group.look())["c"].unmet == 1
    [started] = (await ending(scene, group, "b", on=slot)).dependents
    assert started.id == group.jobs["c"]


async def test_a_repeated_end_and_a_late_one_count_nothing_down(scene: Scene) -> None:
    group = await running(scene)
    attempt = group.running["a"]
    await ending(scene, group, "a")
    again = await scene.store.pump(scene.dispatcher, Batch([done(attempt, by="")]))
    assert [one.verdict for one in again.finished] == [Verdict.ALREADY_RECORDED]
    assert (await group.look())["c"].unmet == 1


async def test_a_next_step_that_is_delayed_is_left_to_settle(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {"late": a_job(delay_s=9.0)}
    group = await scene.submit_group(a_group({"a": "", "late": "a"}, jobs=jobs))
    await group.claim()
    slot = await scene.attend()
    with statements(monkeypatch) as sent:
        result = await ending(scene, group, "a", on=slot)
    assert (sent, result.dependents) == (["one"], [])
    assert result.groups == {group.id}
    await group.settle()
    assert await group.state("late") is S.DELAYED


async def test_a_pause_before_the_group_is_locked_is_seen_by_a_single_end(
    scene: Scene, outside: Connection
) -> None:
    """The statement began while the group was running."""
    group = await running(scene, {"a": "", "b": "a"})
    slot = await scene.attend()
    async with outside.transaction():
        await outside.execute(HOLD, group.jobs["a"])
        call = ending(scene, group, "a", on=slot)
        await until_waiting(outside, 1)
        assert await scene.store.pause_group(group.id, True) is GroupVerdict.PAUSED
        await scene.settle()
    result = await call
    assert not result.dependents
    assert result.groups == {group.id}
    await group.settle()
    assert await group.state("b") is S.WAITING
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"b"}


async def test_a_next_step_in_a_paused_queue_does_not_start(scene: Scene) -> None:
    group = await running(scene, {"a": "", "b": "a"})
    slot = await scene.attend()
    await scene.store.set_paused("default", True)
    result = await ending(scene, group, "a", on=slot)
    assert (result.dependents, sum(result.ready.values())) == ([], 1)
