"""Additions on PostgreSQL: what they hold, and what statements with an older view make of them."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from tests.conformance.test_additions import ON, add, new
from tests.unit.store.outside import until_waiting

from longshore.errors import StoreUnavailable
from longshore.model.ends import End, Failed, Succeeded
from longshore.model.job import JobState
from longshore.ports import Batch
from longshore.store.additions import Addition
from longshore.store.postgres.additions import AddToGroup
from longshore.store.postgres.connections import Connection, Transaction
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import GroupScene, Scene, a_group, done, new_id

S = JobState


async def running(store: PostgresStore) -> GroupScene:
    """A group whose jobs `a` and `b` run, and `d` waits for `a`."""
    group = await Scene(store).submit_group(a_group({"a": "", "b": "", "d": "a"}))
    assert await group.claim() >= {"a", "b"}
    return group


@pytest.mark.parametrize("how", [Succeeded, Failed])
async def test_an_end_that_began_before_an_addition_reaches_what_was_added(
    postgres_store: PostgresStore, outside: Connection, how: type[End]
) -> None:
    """A plain success is one statement, which sees the edges of an older moment."""
    before = await running(postgres_store)
    await before.end("a")  # from now on the store tries ends of groups as one statement
    group = await running(postgres_store)
    await outside.execute("BEGIN")
    tx = Transaction(outside, isolate_bad_items=False)
    addition = Addition(new_id(), [new("x", "a", ON.ENDED), new("y", "a b", ON.ENDED)], 9, 9)
    await AddToGroup(group.id, addition, 0).run(tx)
    batch = Batch([done(group.running.pop("a"), how)])
    call = asyncio.create_task(postgres_store.pump(group._scene.dispatcher, batch))
    await until_waiting(outside, 1)
    await outside.execute(tx.ending())
    await call
    await group.settle()
    views = await group.look()
    assert {key: views[key].unmet for key in "dxy"} == {"d": 0, "x": 0, "y": 1}
    assert "x" in await group.claim()


@pytest.mark.parametrize("table", ["job", "node"])
async def test_an_addition_waits_for_nothing_while_it_holds_the_group(
    postgres_store: PostgresStore, outside: Connection, table: str
) -> None:
    """Whoever holds the job that it depends on may want the group's row next."""
    group = await running(postgres_store)
    where = "id" if table == "job" else "job"
    async with outside.transaction():
        await outside.execute(
            f"SELECT FROM longshore.{table} WHERE {where} = $1 FOR UPDATE", group.jobs["a"]
        )
        with pytest.raises(StoreUnavailable, match="try again"):
            await add(group, new("x", "a"))
    await add(group, new("x", "a"))


async def test_an_addition_does_not_pass_a_note_that_is_being_told(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    group = await Scene(postgres_store).submit_group(a_group({"a": "", "b": ""}))
    await postgres_store.cancel([group.jobs["a"]], "me")
    async with outside.transaction():
        await outside.execute("DELETE FROM longshore.unsettled")
        with pytest.raises(StoreUnavailable, match="try again"):
            await add(group, new("x", "a"))
    await add(group, new("x", "a"))
    assert await group.state("x") is S.DEPENDENCY_FAILED


@pytest.mark.parametrize(("after", "unmet"), [(0, 1), (2**128 - 1, 0)])
async def test_a_note_that_has_passed_the_place_of_an_added_job_is_told_from_here(
    postgres_store: PostgresStore, outside: Connection, after: int, unmet: int
) -> None:
    """A job with very many dependents tells them in steps, by their ids."""
    group = await running(postgres_store)
    await group.end("a")
    await group.settle()
    note = "INSERT INTO longshore.unsettled (job, after_child) VALUES ($1, $2)"
    await outside.execute(note, group.jobs["a"], UUID(int=after))
    await add(group, new("x", "a"))
    assert (await group.look())["x"].unmet == unmet
    await group.settle()
    assert (await group.look())["x"].unmet == 0
