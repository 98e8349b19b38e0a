"""Growth on PostgreSQL: what it locks, in which order, and what others take from under it."""

from __future__ import annotations

import asyncio

from tests.unit.store.outside import until_waiting

from longshore.model.group import GroupState
from longshore.model.job import JobState, Reason
from longshore.store.postgres.columns import columns
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.sql import ENQUEUE
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, a_map, additions, done

S = JobState

HOLD_GROUP = "SELECT FROM longshore.job_group WHERE id = $1 FOR UPDATE"
HOLD_NODES = "SELECT FROM longshore.node WHERE group_id = $1 FOR UPDATE NOWAIT"
UNIQUE = additions({"x": "", "y": ""}, jobs={"y": a_job(unique_key="k")})


async def running(store: PostgresStore) -> GroupScene:
    """A group whose job `a` runs, and `d` waits for it."""
    group = await Scene(store).submit_group(a_group({"a": "", "d": "a"}))
    assert await group.claim() == {"a"}
    return group


async def enqueue(outside: Connection) -> None:
    """An application enqueues a job with the unique key, in a transaction that has not ended."""
    await outside.fetch(ENQUEUE, *columns([(a_job(unique_key="k"), 1)]))


async def test_a_unique_key_taken_after_the_check_refuses_the_growth_whole(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    group = await running(postgres_store)
    async with outside.transaction():
        await enqueue(outside)
        call = asyncio.create_task(group.end("a", adds=UNIQUE))
        await until_waiting(outside, 1)
    await call
    assert set(await group.look()) == {"a", "d"}
    job = await Scene(postgres_store).job(group.jobs["a"])
    assert (job.state, job.error and job.error.reason) == (S.FAILED, Reason.INVALID_GROWTH)
    shown = await postgres_store.group(group.id)
    assert shown is not None
    assert shown.jobs == 2


async def test_a_unique_key_given_back_after_the_check_lets_the_group_grow(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    group = await running(postgres_store)
    taken = outside.transaction()
    await taken.start()
    await enqueue(outside)
    call = asyncio.create_task(group.end("a", adds=UNIQUE))
    await until_waiting(outside, 1)
    await taken.rollback()
    await call
    assert set(await group.look()) == {"a", "d", "a/x", "a/y"}
    assert await group.claim() == {"a/x", "a/y"}


async def test_a_transaction_that_does_not_end_refuses_only_the_growth_it_holds_up(
    postgres_store: PostgresStore, postgres_url: str, outside: Connection
) -> None:
    store = PostgresStore(postgres_url, timeout_s=3.0)
    scene = Scene(store)
    group = await scene.submit_group(a_group({"a": "", "b": "", "c": ""}))
    await group.claim()
    async with outside.transaction():
        await enqueue(outside)
        await group.end("a", "b", adds=UNIQUE)
    assert {await group.state("a"), await group.state("b")} == {S.FAILED}
    error = (await scene.job(group.jobs["a"])).error
    assert error is not None
    assert "has not ended" in error.message
    await group.end("c", adds=additions({"x": ""}))
    assert await group.claim() == {"c/x"}
    await store.close()


async def test_what_the_database_refuses_is_a_growth_that_fails(
    postgres_store: PostgresStore,
) -> None:
    """Also beside one that it does not refuse, in the same batch."""
    scene = Scene(postgres_store)
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    await group.claim()
    adds = {"a": additions({"\ud800": ""}), "b": additions({"x": ""})}
    await scene.finish(*(done(group.running[key], adds=adds[key]) for key in adds))
    assert await group.state("a") is S.FAILED
    assert set(await group.look()) == {"a", "b", "b/x"}


async def test_growth_waits_for_the_group_before_it_holds_a_node(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    """Whoever holds the group's row may want its nodes next."""
    group = await running(postgres_store)
    async with outside.transaction():
        await outside.execute(HOLD_GROUP, group.id)
        call = asyncio.create_task(group.end("a", adds=additions({"x": ""})))
        await until_waiting(outside, 1)
        await outside.execute(HOLD_NODES, group.id)
    await call
    assert await group.claim() == {"a/x"}


async def test_an_end_that_adds_nothing_waits_for_no_group(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    """Also not where it leaves a job alone because the group is paused; the sweep finds that."""
    group = await running(postgres_store)
    await postgres_store.pause_group(group.id, True)
    await group.settle()
    async with outside.transaction():
        await outside.execute(HOLD_GROUP, group.id)
        await group.end("a")
        assert await group.state("d") is S.WAITING
    await postgres_store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"d"}


async def test_a_map_waits_for_its_group_and_passes_over_what_others_hold(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    scene = Scene(postgres_store)
    group = await scene.submit_group(a_group({"m": ""}, jobs={"m": a_map([1, 2])}))
    async with outside.transaction():
        await outside.execute("SELECT FROM longshore.job WHERE id = $1 FOR UPDATE", group.jobs["m"])
        settled = await postgres_store.settle([group.id])
        assert settled.groups == {group.id}, "it comes back"
        assert set(await group.look()) == {"m"}
    await group.settle()
    assert await group.claim() == {"m/0", "m/1"}


async def test_a_group_whose_row_is_held_when_it_is_over_is_looked_at_again(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    group = await Scene(postgres_store).submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a")
    async with outside.transaction():
        await outside.execute(HOLD_GROUP, group.id)
        assert (await postgres_store.settle([group.id])).groups == {group.id}
    await group.settle()
    assert await group.group_state() is GroupState.SUCCEEDED
