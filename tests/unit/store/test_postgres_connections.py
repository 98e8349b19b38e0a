"""Connections: errors that say what to do, and no call that inherits another's broken one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.unit.store.outside import HOLD, end_others, until_waiting

from longshore.errors import ConfigError, InvalidInput, SchemaMismatch, StoreUnavailable
from longshore.model.ends import Failed
from longshore.model.job import CancelVerdict, JobState, RetryVerdict
from longshore.store.postgres.address import parse_address
from longshore.store.postgres.connections import (
    TURNS,
    Connection,
    ConnectionPool,
    Transaction,
)
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job, some_jobs
from longshore.testing.servers import HOST, PgBouncer, PostgresServer, free_port


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:secret@h/db",
        "nonsense",
        "",
        "sqlite:///x",
        "//u:secret@h",
        "postgres:secret@h",
        "postgresql://u:secret@[h",
    ],
)
def test_wrong_url_is_answered_with_a_right_one(url: str) -> None:
    with pytest.raises(
        ConfigError, match="postgresql://user:password@host:5432/database"
    ) as caught:
        PostgresStore(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("password", ["S3cret#PW", "S3cretPW/x", "S3cret?PW", "S3@cret/PW"])
def test_password_that_was_not_encoded_is_told_without_it(password: str) -> None:
    with pytest.raises(ConfigError, match="write %40 for @, %2F for /") as caught:
        PostgresStore(f"postgresql://u:{password}@h/db")
    assert "'postgresql://***@h/db'" in str(caught.value)


def test_prepared_statements_can_be_switched_off_in_the_url() -> None:
    assert parse_address("postgresql://h/db").prepared
    assert not parse_address("postgresql://h/db", prepared=False).prepared
    address = parse_address("postgres://u:secret@h:1/db?prepared=off&sslmode=disable")
    assert not address.prepared
    assert address.url == "postgres://u:secret@h:1/db?sslmode=disable"
    assert address.name == "postgres://h:1/db"
    with pytest.raises(ConfigError, match="prepared=maybe"):
        parse_address("postgresql://h/db?prepared=maybe")


async def test_port_that_is_no_number_is_told() -> None:
    store = PostgresStore("postgresql://u:secret@h:port/db")
    with pytest.raises(ConfigError, match="h:port") as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_server_that_is_down_is_unavailable() -> None:
    url = f"postgresql://u:secret@{HOST}:{free_port()}/db"
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match=HOST) as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        await store.migrate()
    await store.close()


async def test_missing_database_is_named(postgres: PostgresServer) -> None:
    store = PostgresStore(postgres.url("no_such_database"))
    with pytest.raises(ConfigError, match="no_such_database: there is no such database"):
        await store.open()
    await store.close()


async def test_unknown_user_is_told(postgres: PostgresServer) -> None:
    store = PostgresStore(f"postgresql://nobody_we_know:secret@{HOST}:{postgres.port}/postgres")
    with pytest.raises(ConfigError, match="refuses the user or password") as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_unknown_word_in_the_url_is_told(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}?colour=blue")
    with pytest.raises(ConfigError, match="colour"):
        await store.open()
    await store.close()


async def test_pgbouncer_with_prepared_statements_is_recognised(
    pgbouncer: PgBouncer, pgbouncer_url: str
) -> None:
    store = PostgresStore(pgbouncer_url)
    with pytest.raises(ConfigError, match="prepared=off"):
        await store.renew(a_job().id, "d")
    await store.close()


async def test_dropped_schema_is_told(postgres_store: PostgresStore, outside: Connection) -> None:
    await outside.execute("DROP SCHEMA longshore CASCADE")
    with pytest.raises(SchemaMismatch, match="longshore migrate"):
        await postgres_store.lanes()


async def test_store_works_again_after_its_connections_were_cut(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    scene = Scene(postgres_store)
    slot = await scene.attend()
    await scene.running(slot=slot)
    await postgres_store.lanes()
    await end_others(outside)
    for verb in (
        lambda: scene.accepted(a_job()),
        lambda: postgres_store.placed([slot]),
        postgres_store.lanes,
    ):
        # A cut that nobody has noticed yet costs one call.
        with suppress(StoreUnavailable):
            await verb()
    assert len(await postgres_store.placed([slot])) == 1
    await scene.accepted(a_job())
    assert len(await postgres_store.lanes()) == 1


async def test_cancelled_call_leaves_nothing_behind(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    """Its connection is thrown away, and what it held is free."""
    scene = Scene(postgres_store)
    jobs = [(await scene.ended(Failed)).id for _ in range(2)]
    async with outside.transaction():
        await outside.execute(HOLD, jobs[1])
        call = asyncio.create_task(postgres_store.retry(jobs))
        await until_waiting(outside, 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    answers = await asyncio.gather(*(postgres_store.retry([job]) for job in jobs for _ in range(3)))
    assert [answer for [(_, answer)] in answers].count(RetryVerdict.RETRIED) == 2
    assert await scene.states(jobs) == [JobState.READY] * 2


async def test_a_cancel_of_many_jobs_holds_none_while_it_waits_for_another(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    """A pump may hold the one and want another: they would wait for each other."""
    scene = Scene(postgres_store)
    jobs = some_jobs(2)
    await scene.accepted(*jobs)
    async with outside.transaction():
        await outside.execute(HOLD, jobs[1].id)
        call = asyncio.create_task(postgres_store.cancel([job.id for job in jobs]))
        await until_waiting(outside, 1)
        assert await scene.state(jobs[0].id) is JobState.CANCELLED
    assert await call == [(job.id, CancelVerdict.CANCELLED) for job in jobs]


async def test_call_that_takes_too_long_is_unavailable(
    postgres_url: str, postgres_store: PostgresStore, outside: Connection
) -> None:
    job = a_job()
    await Scene(postgres_store).accepted(job)
    hasty = PostgresStore(postgres_url, timeout_s=0.5)
    async with outside.transaction():
        await outside.execute(HOLD, job.id)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await hasty.cancel([job.id])
        await until_waiting(outside, 0)
    assert await hasty.cancel([job.id]) == [(job.id, CancelVerdict.CANCELLED)]
    await hasty.close()


async def test_keeper_does_not_wait_for_the_pump(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    scene = Scene(postgres_store)
    attempt = await scene.running()
    async with outside.transaction():
        await outside.execute("LOCK TABLE longshore.lane")
        pump = asyncio.create_task(scene.accepted(a_job(kind="new")))
        await until_waiting(outside, 1)
        await postgres_store.renew(scene.dispatcher, "d")
        assert len(await postgres_store.cancel([attempt.id])) == 1
        assert (await scene.job(attempt.id)).state is JobState.CANCELLING
        assert not pump.done()
    await pump


async def test_deadlock_is_repeated_within_the_store(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    scene = Scene(postgres_store)
    first, second = sorted(some_jobs(2), key=lambda job: job.id)
    await scene.accepted(first, second)
    # The postgres_store's transaction notices the deadlock first, and is the one that gives way.
    await outside.execute("SET deadlock_timeout = '1min'")
    async with outside.transaction():
        await outside.execute(HOLD, second.id)
        call = asyncio.create_task(postgres_store.cancel([second.id, first.id]))
        await until_waiting(outside, 1)
        await outside.execute(HOLD, first.id)
    assert [answer for _, answer in await call] == [CancelVerdict.CANCELLED] * 2


async def test_what_is_always_in_the_way_ends_as_unavailable(postgres_url: str) -> None:
    lines = ConnectionPool(parse_address(postgres_url), most=1, timeout_s=10)
    turns = 0

    async def work(tx: Transaction) -> None:
        nonlocal turns
        turns += 1
        await tx.connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

    with pytest.raises(StoreUnavailable, match="got in the way"):
        await lines.run(work)
    assert turns == TURNS
    await lines.close()


async def test_value_that_no_column_takes_is_the_callers_fault(
    postgres_store: PostgresStore,
) -> None:
    with pytest.raises(InvalidInput, match="cannot store"):
        await postgres_store.set_paused("a\0b", True)
    await postgres_store.set_paused("ab", True)


async def test_closed_store_says_so(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.migrate()
    await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.lanes()


async def test_close_waits_for_what_is_under_way(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    job = a_job()
    await Scene(postgres_store).accepted(job)
    async with outside.transaction():
        await outside.execute(HOLD, job.id)
        call = asyncio.create_task(postgres_store.cancel([job.id]))
        await until_waiting(outside, 1)
        closing = asyncio.create_task(postgres_store.close())
    assert await call == [(job.id, CancelVerdict.CANCELLED)]
    await closing


async def test_settings_of_the_database_do_not_matter(
    postgres_url: str, postgres_database: str, outside: Connection
) -> None:
    """Another isolation level would turn every race into an error."""
    level = "default_transaction_isolation = 'serializable'"
    await outside.execute(f"ALTER DATABASE {postgres_database} SET {level}")
    store = PostgresStore(postgres_url)
    await store.migrate()

    async def level_of(tx: Transaction) -> str:
        [row] = await tx.fetch("SELECT current_setting('transaction_isolation') AS level")
        found: str = row["level"]
        return found

    assert await store._pumping.run(level_of) == "read committed"
    await store.close()
