"""The schema: brought forward by `migrate`, checked by `open`, safe to do twice and at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longshore.errors import SchemaMismatch
from longshore.model.job import JobState
from longshore.testing.backends import PostgresBackend, SqlBackend, SqliteBackend
from longshore.testing.builders import Scene, a_job


@pytest.fixture(params=["sqlite", "postgres", "pgbouncer"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> SqlBackend:
    """A database with nothing in it, not even a schema."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "folder" / "new.db", tmp_path / "template.db")
    url: str = request.getfixturevalue("postgres_url")
    pooled = request.param == "pgbouncer"
    pooled_url = request.getfixturevalue("pgbouncer_url") if pooled else None
    return PostgresBackend(url, pooled_url=pooled_url)


async def migrate(backend: SqlBackend) -> tuple[int, int]:
    store = backend.connect()
    try:
        return await store.migrate()
    finally:
        await store.close()


async def assert_usable(backend: SqlBackend) -> None:
    async with backend.opened() as store:
        attempt = await Scene(store).running()
        assert await Scene(store).state(attempt.id) is JobState.RUNNING


async def test_empty_database_is_migrated_then_opened(empty: SqlBackend) -> None:
    before, after = await migrate(empty)
    assert before == 0
    assert after > 0
    await assert_usable(empty)


async def test_store_that_migrated_can_be_opened_itself(empty: SqlBackend) -> None:
    store = empty.connect()
    await store.migrate()
    await store.open()
    try:
        await Scene(store).accepted(a_job())
    finally:
        await store.close()


async def test_database_without_schema_is_refused(empty: SqlBackend) -> None:
    store = empty.connect()
    with pytest.raises(SchemaMismatch, match="longshore migrate"):
        await store.open()
    await store.close()
    await migrate(empty)
    await assert_usable(empty)


async def test_migrating_twice_changes_nothing(empty: SqlBackend) -> None:
    """G1: what is there stays there."""
    _, version = await migrate(empty)
    job = a_job()
    async with empty.opened() as store:
        await Scene(store).accepted(job)
    assert await migrate(empty) == (version, version)
    async with empty.opened() as store:
        assert await Scene(store).state(job.id) is JobState.READY


async def test_migrating_while_in_use_changes_nothing(empty: SqlBackend) -> None:
    _, version = await migrate(empty)
    async with empty.opened() as store:
        scene = Scene(store)
        attempt = await scene.running()
        assert await migrate(empty) == (version, version)
        assert await store.migrate() == (version, version)
        assert await scene.state(attempt.id) is JobState.RUNNING


async def test_newer_schema_is_refused(empty: SqlBackend) -> None:
    await migrate(empty)
    await empty.execute(f"UPDATE {empty.schema}longshore_schema SET version = version + 1")
    store = empty.connect()
    with pytest.raises(SchemaMismatch, match="newer Longshore"):
        await store.open()
    with pytest.raises(SchemaMismatch, match="newer Longshore"):
        await store.migrate()
    await store.close()
    await empty.execute(f"UPDATE {empty.schema}longshore_schema SET version = version - 1")
    await assert_usable(empty)


async def test_older_schema_is_refused(empty: SqlBackend) -> None:
    await migrate(empty)
    await empty.execute(f"UPDATE {empty.schema}longshore_schema SET version = version - 1")
    store = empty.connect()
    with pytest.raises(SchemaMismatch, match="longshore migrate"):
        await store.open()
    await store.close()


async def test_concurrent_migrations_make_one_schema(empty: SqlBackend) -> None:
    answers = await asyncio.gather(*(migrate(empty) for _ in range(4)))
    version = answers[0][1]
    assert {after for _, after in answers} == {version}
    # Each step is a transaction of its own, so whoever comes later may find some of them done.
    assert {before for before, _ in answers} <= set(range(version + 1))
    assert 0 in {before for before, _ in answers}
    await assert_usable(empty)


async def test_migration_that_fails_leaves_nothing_behind(empty: SqlBackend) -> None:
    """A step is one transaction: whoever removes the obstacle can migrate again."""
    if isinstance(empty, SqliteBackend):
        empty.path.parent.mkdir()
    else:
        await empty.execute("CREATE SCHEMA longshore")
    await empty.execute(f"CREATE TABLE {empty.schema}worker (mine text)")
    store = empty.connect()
    with pytest.raises(Exception, match="worker"):
        await store.migrate()
    with pytest.raises(SchemaMismatch):
        await store.open()
    await store.close()
    await empty.execute(f"DROP TABLE {empty.schema}worker")
    assert (await migrate(empty))[0] == 0
    await assert_usable(empty)
