"""The order of locks of groups on PostgreSQL: transactions of one group never wait in a circle.

Another program holds a row, so that the transactions meet where they would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from tests.unit.store.outside import until_waiting

from longshore.model.ends import End, Retried, Succeeded
from longshore.model.group import GroupPart, GroupState
from longshore.model.job import JobState
from longshore.ports import Batch
from longshore.store.postgres.connections import Connection, ConnectionPool, Work
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import GroupScene, Scene, a_group, additions, done

S = JobState
HOLD_NODE = "SELECT FROM longshore.node WHERE job = $1 FOR UPDATE"


@pytest.fixture
async def rival(postgres_store: PostgresStore, postgres_url: str) -> AsyncIterator[PostgresStore]:
    """The store of another dispatcher on the same database."""
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every transaction that is begun, also one that repeats another."""
    begun: list[object] = []
    attempt = ConnectionPool._attempt

    async def counted(self: ConnectionPool, work: Work[Any], *how: Any) -> Any:
        begun.append(work)
        return await attempt(self, work, *how)

    monkeypatch.setattr(ConnectionPool, "_attempt", counted)
    return begun


async def a_paused_group(scene: Scene) -> GroupScene:
    """`r`, `x` and `y` run; `n` depends on `x` and `y`, `m` on `x`, and is locked after `n`."""
    after = {"r": "", "x": "", "y": "", "n": "x y", "m": "x"}
    part = a_group(after)
    while _job(part, "n") > _job(part, "m"):
        part = a_group(after)
    group = await scene.submit_group(part)
    await group.claim()
    await scene.store.pause_group(group.id, True)
    await group.settle()
    return group


def _job(part: GroupPart, key: str) -> UUID:
    return next(node.job.id for node in part.nodes if node.key == key)


def pumped(store: PostgresStore, scene: Scene, *ends: End) -> asyncio.Task[Any]:
    """A batch of ends, on its way."""
    return asyncio.create_task(store.pump(scene.dispatcher, Batch(ends)))


async def test_a_paused_group_grows_while_a_job_of_it_is_to_run_again(
    postgres_store: PostgresStore,
    rival: PostgresStore,
    outside: Connection,
    transactions: list[object],
) -> None:
    """One batch has a retry and holds a node; the other adds to the group and wants that node."""
    scene = Scene(postgres_store)
    group = await a_paused_group(scene)
    running = group.running
    transactions.clear()
    async with outside.transaction():
        await outside.execute(HOLD_NODE, group.jobs["m"])
        first = pumped(
            postgres_store, scene, done(running["r"], Retried), done(running["x"], Succeeded)
        )
        await until_waiting(outside, 1)
        adds = additions({"z": ""})
        second = pumped(rival, scene, done(running["y"], Succeeded, adds=adds))
        await until_waiting(outside, 2)
    await asyncio.gather(first, second)
    assert len(transactions) == 2, "none of them was repeated"
    await group.look()
    await group.settle()
    assert await group.claim() == set(), "the group is paused"
    assert await group.state("r") is S.WAITING
    await postgres_store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"m", "r", "y/z"}
    assert await group.group_state() is GroupState.RUNNING


async def test_two_groups_grow_while_a_job_of_the_other_is_to_run_again(
    postgres_store: PostgresStore, rival: PostgresStore, transactions: list[object]
) -> None:
    """Each batch wants the rows of both groups, and takes them in one order."""
    scene = Scene(postgres_store)
    for _ in range(8):
        one, other = await a_paused_group(scene), await a_paused_group(scene)
        transactions.clear()
        adds = additions({"z": ""})
        await asyncio.gather(
            pumped(
                postgres_store,
                scene,
                done(one.running["x"], Succeeded, adds=adds),
                done(other.running["r"], Retried),
            ),
            pumped(
                rival,
                scene,
                done(other.running["x"], Succeeded, adds=adds),
                done(one.running["r"], Retried),
            ),
        )
        assert len(transactions) == 2
        await one.settle()
        assert await one.state("r") is await other.state("r") is S.WAITING


async def test_a_pause_waits_for_the_batch_that_lets_a_job_run_again(
    postgres_store: PostgresStore, rival: PostgresStore, outside: Connection
) -> None:
    """Otherwise its sweep could pass by before the job is ready."""
    scene = Scene(postgres_store)
    group = await a_paused_group(scene)
    await postgres_store.pause_group(group.id, False)
    running = group.running
    async with outside.transaction():
        await outside.execute(HOLD_NODE, group.jobs["m"])
        batch = pumped(
            postgres_store, scene, done(running["r"], Retried), done(running["x"], Succeeded)
        )
        await until_waiting(outside, 1)
        pause = asyncio.create_task(rival.pause_group(group.id, True))
        await until_waiting(outside, 2)
    await asyncio.gather(batch, pause)
    await group.settle()
    assert await group.state("r") is S.WAITING
    assert await group.claim() == set()
