"""Locks of groups on PostgreSQL, in orders that are not left to chance."""

from __future__ import annotations

import asyncio

from tests.unit.store.outside import until_waiting

from longshore.model.group import GroupState
from longshore.model.job import CancelVerdict, JobState
from longshore.ports import Batch
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import GroupScene, Scene, a_group, done

S = JobState
G = GroupState

HOLD_NODE = "SELECT FROM longshore.node WHERE job = $1 FOR UPDATE"
IS_FREE = "SELECT FROM longshore.job WHERE id = $1 FOR UPDATE NOWAIT"


async def with_an_earlier_dependent(scene: Scene) -> GroupScene:
    """A job runs. One that depends on it has the smaller id: in the order of ids it comes first."""
    while True:
        group = await scene.submit_group(a_group({"a": "", "b": "a"}))
        await group.claim()
        if group.jobs["b"].int < group.jobs["a"].int:
            return group


async def test_a_cancel_against_a_pump_that_holds_an_ended_job_and_wants_its_dependent(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    """The cancel holds nothing that the pump wants while it waits for what the pump holds."""
    scene = Scene(postgres_store)
    group = await with_an_earlier_dependent(scene)
    first, then = group.jobs["a"], group.jobs["b"]
    async with outside.transaction():
        await outside.fetch(HOLD_NODE, then)
        batch = Batch([done(group.running.pop("a"))])
        pump = asyncio.ensure_future(scene.store.pump(scene.dispatcher, batch))
        await until_waiting(outside, 1)
        cancel = asyncio.ensure_future(scene.store.cancel([then, first], "me"))
        await until_waiting(outside, 2)
        await outside.fetch(IS_FREE, then)
    await pump
    assert await cancel == [
        (then, CancelVerdict.CANCELLED),
        (first, CancelVerdict.ALREADY_ENDED),
    ]
    await group.settle()
    assert await group.states() == {"a": S.SUCCEEDED, "b": S.CANCELLED}
    assert await group.group_state() is G.CANCELLED
