"""To see which groups make progress costs the same, whatever else the store holds."""

from __future__ import annotations

from longshore.model.group import GroupProgress
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.group_upkeep import _PROGRESS
from longshore.store.postgres.states import GROUP_STATES
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import PostgresBackend, SqliteBackend
from longshore.testing.builders import a_group

from .test_flatness import ROWS_READ, sqlite_store

__all__ = ["sqlite_store"]

SEEN = 5
MANY = 20_000

SQLITE_GROUPS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO job_group (number, id, state, jobs, fail_fast, created_at, ended_at, name, labels)
SELECT ?3 + i, randomblob(16), ?2, 0, 0, 0, CASE ?2 WHEN 'succeeded' THEN 1 END, 'g', '[]' FROM n
"""
POSTGRES_GROUPS = """
INSERT INTO longshore.job_group (id, state, jobs, fail_fast, ended_at, name, labels)
SELECT gen_random_uuid(), $2::smallint, 0, false,
    CASE $2::smallint WHEN 100 THEN now() END, 'g', '{}'
FROM generate_series(1, $1)
"""
POSTGRES_COUNTS = """
INSERT INTO longshore.group_count (group_id, ended, failed, cancelled)
SELECT g.id, 0, 0, 0 FROM longshore.job_group AS g, generate_series(1, $1)
WHERE g.number = (SELECT min(number) FROM longshore.job_group)
"""


async def test_sqlite_sees_progress_at_the_same_cost(
    sqlite_store: SqliteStore, sqlite_backend: SqliteBackend
) -> None:
    for _ in range(SEEN + 1):
        await sqlite_store.submit_group(a_group({"a": ""}))
    alone = await _steps(sqlite_store)
    for place, state in enumerate(("running", "succeeded")):
        await sqlite_backend.execute(SQLITE_GROUPS, MANY, state, 1000 + place * MANY)
    assert await _steps(sqlite_store) == alone > 0


async def _steps(store: SqliteStore) -> int:
    assert store._reader is not None
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._reader.set_progress_handler(count, 1)
    assert len(await store.group_progress(0, SEEN)) == SEEN
    store._reader.set_progress_handler(None, 1)
    return steps


async def test_postgres_sees_progress_with_as_many_rows(postgres_backend: PostgresBackend) -> None:
    await postgres_backend.clear()
    store = PostgresStore(postgres_backend.url)
    await store.open()
    try:
        for _ in range(SEEN + 1):
            await store.submit_group(a_group({"a": ""}))
        await postgres_backend.execute(POSTGRES_COUNTS, 1)
        alone = await _rows(store)
        await postgres_backend.execute(POSTGRES_COUNTS, MANY)
        for state in (20, 100):
            await postgres_backend.execute(POSTGRES_GROUPS, MANY, state)
        await postgres_backend.execute("ANALYZE longshore.job_group, longshore.group_count")
        assert await _rows(store) <= alone
        tables = "longshore.job_group, longshore.group_count"
        await postgres_backend.execute(f"TRUNCATE {tables}")
    finally:
        await store.close()


async def _rows(store: PostgresStore) -> int:
    async def work(tx: Transaction) -> int:
        before: int = await tx.connection.fetchval(ROWS_READ)
        rows = await tx.fetch(_PROGRESS, 0, SEEN)
        seen = [GroupProgress(id, n, GROUP_STATES[state], mark) for id, n, state, mark in rows]
        assert len(seen) == SEEN
        after: int = await tx.connection.fetchval(ROWS_READ)
        return after - before

    return await store._keeping.run(work)
