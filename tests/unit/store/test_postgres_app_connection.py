"""Jobs enqueued in the application's own transaction, by every driver it may use."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from msgspec import msgpack
from tests.unit.store.lent import GRANTS, WAYS, Way

from longshore import App, Call
from longshore.core.lanes import body_hash, lane_of
from longshore.errors import (
    ConfigError,
    Conflict,
    InvalidInput,
    LongshoreError,
    SchemaMismatch,
    WouldBlock,
)
from longshore.model.job import JobState, Submission, Submitted
from longshore.ports import Hint
from longshore.store.postgres import keeper as postgres_keeper
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job, lane

app = App("shop", "tcp://127.0.0.1:1")
EVERYTHING = ("job", "job_number", "lane", "tally")
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@app.job
def work(n: int = 0) -> int:
    return n


@app.job(queue="mail", retries=2, timeout_s=30)
def send(to: str) -> None: ...


@pytest.fixture
async def scene(postgres_store: PostgresStore, outside: Connection) -> Scene:
    await outside.execute("CREATE TABLE orders (id int)")
    return Scene(postgres_store)


@pytest.fixture
async def own(postgres_url: str, scene: Scene) -> AsyncIterator[Connection]:
    """A connection of the application's."""
    connection: Connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


async def counted(connection: Connection) -> dict[str, int]:
    return {
        table: await connection.fetchval(f"SELECT count(*) FROM longshore.{table}")
        for table in EVERYTHING
    }


# with each driver


async def test_committed_jobs_are_claimed_as_they_were_described(
    way: Way, postgres_url: str, scene: Scene, outside: Connection
) -> None:
    calls: list[Call[Any]] = [
        work.options(priority=5, labels=["a"]).call(1),
        send.call("ann"),
        send.options(timeout_s=1.5).call("bob"),
        work.options(delay_s=60, expires_s=40).call(2),
        work.options(run_at=LATER).call(3),
        work.options(unique_key="one", expires_s=40).call(4),
    ]
    handles = await way(app, postgres_url, calls, True)
    assert [handle.id for handle in handles] == [call.id for call in calls]
    assert await outside.fetchval("SELECT count(*) FROM orders") == 1
    jobs = [await scene.job(handle.number) for handle in handles]
    assert [job.id for job in jobs] == [call.id for call in calls]
    assert [job.options for job in jobs] == [call.submission.options for call in calls]
    assert [job.args for job in jobs] == [call.submission.args for call in calls]
    states = [JobState.READY, JobState.READY, JobState.READY, JobState.DELAYED, JobState.DELAYED]
    assert [job.state for job in jobs] == [*states, JobState.READY]
    assert [job.priority for job in jobs] == [5, 0, 0, 0, 0, 0]
    assert jobs[4].run_at == LATER
    assert jobs[5].unique_key == "one"
    waits_s = [(job.deadline_at or job.created_at) - job.created_at for job in jobs]
    assert [wait_s.total_seconds() for wait_s in waits_s] == [0, 0, 0, 100, 0, 40]
    slot = await scene.attend(kinds=["work", "send"])
    claimed = await scene.claim(slot, lane(), lane("mail", "send"), most=10)
    ready = [calls[place].id for place in (0, 1, 2, 5)]
    assert {attempt.id for attempt in claimed} == set(ready)


async def test_rolled_back_jobs_leave_no_trace(
    way: Way, postgres_url: str, scene: Scene, outside: Connection
) -> None:
    await way(app, postgres_url, [work.call(1), send.call("ann")], False)
    assert await counted(outside) == dict.fromkeys(EVERYTHING, 0)
    assert await outside.fetchval("SELECT count(*) FROM orders") == 0


async def test_the_same_again_is_the_same_job(
    way: Way, postgres_url: str, scene: Scene, outside: Connection
) -> None:
    first, other = work.options(unique_key="k").call(1), work.options(unique_key="k").call(2)
    [accepted] = await way(app, postgres_url, [first], True)
    again, existing, twice = await way(app, postgres_url, [first, other, first], True)
    assert (again.id, again.number, again.existing) == (first.id, accepted.number, False)
    assert (existing.id, existing.number, existing.existing) == (first.id, accepted.number, True)
    assert twice == again
    assert (await counted(outside))["job"] == 1


async def test_what_was_enqueued_is_the_same_job_to_a_dispatcher(
    scene: Scene, own: Connection, postgres_url: str
) -> None:
    """A dispatcher hashes what it decoded, in which whole seconds are floats."""
    call = send.options(delay_s=60, backoff_s=2).call("me")
    handle = await app.enqueue_async(own, call)
    decoded = msgpack.decode(msgpack.encode(call.submission), type=Submission)
    assert body_hash(decoded) == body_hash(call.submission)
    assert await scene.submit(decoded) == [Submitted(call.id, handle.number or 0)]


async def test_another_job_under_a_taken_id_is_refused(
    way: Way, postgres_url: str, scene: Scene
) -> None:
    call = work.call(1)
    await way(app, postgres_url, [call], True)
    with pytest.raises(Conflict, match=rf"{call.id} exists .* roll this transaction back"):
        await way(app, postgres_url, [work.options(id=call.id).call(2)], True)


async def test_a_database_without_longshore_is_named_as_such(way: Way, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE orders (id int)")
    await connection.close()
    with pytest.raises(SchemaMismatch, match=r"no Longshore schema .*longshore migrate"):
        await way(app, postgres_url, [work.call(1)], True)


# whom it disturbs


async def test_an_open_transaction_blocks_nobody(scene: Scene, own: Connection) -> None:
    """A job in a lane that nobody had before, not committed: others submit, claim and finish."""
    async with own.transaction():
        await app.enqueue_async(own, work.call(1), notify=True)
        other = work.call(2)
        async with asyncio.timeout(10):
            await scene.accepted(other.submission)
            [attempt] = await scene.claim(await scene.attend())
            assert attempt.id == other.id
            assert await scene.store.lanes() == [lane_of("default", "work", "")]


async def test_whoever_submits_the_same_key_waits_for_which_counts(
    scene: Scene, own: Connection, outside: Connection
) -> None:
    first, second = work.options(unique_key="k").call(1), work.options(unique_key="k").call(2)
    async with own.transaction():
        await app.enqueue_async(own, first)
        submit = asyncio.create_task(scene.submit(second.submission))
        while await outside.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0:
            pass
    [answer] = await submit
    assert isinstance(answer, Submitted)
    assert (answer.id, answer.existing) == (first.id, True)


# how dispatchers come to know


@pytest.mark.parametrize("call", [work.call(1), work.options(delay_s=60).call(1)])
async def test_a_lane_that_nobody_stored_is_adopted(
    scene: Scene, own: Connection, call: Call[int]
) -> None:
    await app.enqueue_async(own, call)
    assert await scene.store.lanes() == [lane_of("default", "work", "")]
    [queue] = await scene.store.queues()
    assert sum(queue.counts.values()) == 1


async def test_only_so_many_lanes_are_adopted(
    scene: Scene, own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is there already; whoever enqueues in many others gets no more than the rest."""
    monkeypatch.setattr(postgres_keeper, "ADOPT_REST_S", 0.0)
    monkeypatch.setattr(postgres_keeper, "ADOPT_SHARE", 0.0)
    await scene.accepted(a_job(kind="there"))
    queues = [work.options(queue=f"customer-{place}").call(1) for place in range(5)]
    for call in queues:
        await app.enqueue_async(own, call)
    assert len(await scene.store.lanes(0)) == 1
    assert len(await scene.store.lanes(3)) == 3
    adopted = await scene.store.lanes(3)
    assert len(adopted) == 3
    lanes = {lane_of(f"customer-{place}", "work", "") for place in range(5)}
    served = (lanes - set(adopted)).pop()
    assert set(await scene.store.lanes(3, [served.hash])) == {*adopted, served}
    assert len(await scene.store.lanes()) == 6


async def test_lanes_are_not_looked_for_again_and_again(scene: Scene, own: Connection) -> None:
    assert await scene.store.lanes() == []
    await app.enqueue_async(own, work.call(1))
    assert await scene.store.lanes() == []


async def test_with_notify_others_hear_at_the_commit(scene: Scene, own: Connection) -> None:
    async with aclosing(scene.store.watch()) as hints:  # type: ignore[type-var]
        for _ in Hint:
            await anext(hints)
        async with own.transaction():
            await app.enqueue_async(own, work.call(1), notify=True)
        async with asyncio.timeout(10):
            assert await anext(hints) is Hint.WORK


# without a transaction


async def test_without_a_transaction_the_job_is_one_of_its_own(
    scene: Scene, postgres_url: str, outside: Connection
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        handle = app.enqueue(connection, work.call(1))
    assert await scene.state(handle.id) is JobState.READY
    assert await outside.fetchval("SELECT sum(delta) FROM longshore.tally") == 1


# what cannot be done


async def test_a_connection_for_an_event_loop_wants_to_be_awaited(own: Connection) -> None:
    with pytest.raises(WouldBlock, match="await enqueue_async"):
        app.enqueue(own, work.call(1))


async def test_a_connection_that_blocks_is_not_awaited(scene: Scene, postgres_url: str) -> None:
    told = pytest.raises(WouldBlock, match=r"psycopg.Connection is .* call enqueue\(")
    with psycopg.connect(postgres_url) as connection, told:
        await app.enqueue_async(connection, work.call(1))


def test_what_is_no_connection_is_refused_by_name() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(InvalidInput, match=r"builtins.str; give a connection of asyncpg"):
        app.enqueue("postgresql://localhost", work.call(1))
    with pytest.raises(InvalidInput, match=r"sqlalchemy.Engine is not a connection.*engine.begin"):
        app.enqueue(engine, work.call(1))
    with engine.connect() as connection, pytest.raises(InvalidInput, match="of a sqlite database"):
        app.enqueue(connection, work.call(1))


async def test_a_pool_is_no_connection(postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1) as pool:
        with pytest.raises(InvalidInput, match=r"asyncpg.Pool is not a connection"):
            await app.enqueue_async(pool, work.call(1))


def test_a_kind_is_no_call() -> None:
    with pytest.raises(InvalidInput, match=r"<Kind work> is not a call; give what work.call"):
        app.enqueue(object(), work)  # type: ignore[arg-type]


async def test_a_failed_transaction_says_so(own: Connection) -> None:
    transaction = own.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await own.execute("SELECT 1/0")
    with pytest.raises(LongshoreError, match="earlier statement of this transaction failed"):
        await app.enqueue_async(own, work.call(1))
    await transaction.rollback()


async def test_a_transaction_that_only_reads_says_so(own: Connection) -> None:
    async with own.transaction(readonly=True):
        with pytest.raises(ConfigError, match="only reads"):
            await app.enqueue_async(own, work.call(1))


async def test_a_user_needs_only_what_the_page_grants(own: Connection, scene: Scene) -> None:
    await own.execute("CREATE ROLE shop")
    try:
        await own.execute("SET ROLE shop")
        with pytest.raises(ConfigError, match=r"may not enqueue jobs .*docs/transactions.md"):
            await app.enqueue_async(own, work.call(1))
        await own.execute(f"RESET ROLE; {GRANTS} SET ROLE shop")
        call = work.options(unique_key="k").call(1)
        for _ in range(2):
            await app.enqueue_async(own, call)
        await app.enqueue_send_async(own, app.actor_ref("Customer", "ann").call("ordered"))
        assert await scene.state(call.id) is JobState.READY
    finally:
        await own.execute("RESET ROLE; DROP OWNED BY shop; DROP ROLE shop")


def test_no_driver_is_imported_before_it_is_used() -> None:
    drivers = "{'asyncpg', 'psycopg', 'sqlalchemy'}"
    script = f"import longshore, sys; sys.exit(bool({drivers} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
