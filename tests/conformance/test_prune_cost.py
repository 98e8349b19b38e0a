"""Pruning reads what it removes, and little else, however much the store holds.

Counted in rows that PostgreSQL reads and in steps that SQLite's machine takes, as for claims.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from longshore.core.lifecycle import TERMINAL
from longshore.model.job import JobState
from longshore.model.retention import Pruned, Retention
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.prune import STEP
from longshore.store.postgres.states import CODES
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite import prune as sqlite_prune
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import PostgresBackend, SqliteBackend
from longshore.testing.builders import lane

MANY = 10_000
OLD = 300
DAY_S = 86_400.0
S = JobState

A_DAY = Retention(seconds=dict.fromkeys(TERMINAL, DAY_S))
FAILED_A_DAY = Retention(seconds={S.FAILED: DAY_S})

SQLITE_FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
INSERT INTO job (number, id, lane, state, priority, created_at, ended_at, body_hash, kind, queue,
    target, options, history, args)
SELECT (SELECT coalesce(max(number), 0) FROM job) + i, randomblob(16), ?4, ?1, 5,
    unixepoch() * 1000000 - ?3, unixepoch() * 1000000 - ?3, 0,
    'work', 'default', '', x'80', '[]', zeroblob(5000)
FROM n
"""
POSTGRES_FILL = """
WITH new AS (
    INSERT INTO longshore.job (id, lane, state, created_at, ended_at, body_hash, kind, queue,
        target, options, history, args)
    SELECT gen_random_uuid(), $4, $1, now() - $3 * interval '1 microsecond',
        now() - $3 * interval '1 microsecond', 0, 'work', 'default', '', '\\x80', '', ''
    FROM generate_series(1, $2::bigint)
    RETURNING number, id
)
INSERT INTO longshore.job_number (number, id) SELECT number, id FROM new
"""
ROWS_READ = """
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint AS rows
FROM pg_stat_xact_user_tables WHERE schemaname = 'longshore'
"""


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


# SQLite


@pytest.fixture
async def sqlite_store(sqlite_backend: SqliteBackend) -> AsyncIterator[SqliteStore]:
    await sqlite_backend.clear()
    store = SqliteStore(sqlite_backend.path)
    await store.open()
    yield store
    await store.close()


async def sqlite_fill(backend: SqliteBackend, state: S, number: int, age_s: float) -> None:
    await backend.execute(SQLITE_FILL, state.value, number, micros(age_s), lane())


async def steps(store: SqliteStore, kept: Retention, after: int = 0) -> tuple[Pruned, int]:
    """What a call answers, and how many steps both connections took for it."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    assert store._writer is not None
    assert store._reader is not None
    for connection in (store._writer, store._reader):
        connection.set_progress_handler(step, 1)
    pruned = await store.prune(kept, after=after)
    for connection in (store._writer, store._reader):
        connection.set_progress_handler(None, 1)
    return pruned, count


async def test_sqlite_prune_costs_the_same_before_many_younger_ones(
    sqlite_store: SqliteStore, sqlite_backend: SqliteBackend
) -> None:
    """The first round adds the rows of the tally that the others change."""
    costs = []
    for younger in (1, sqlite_prune.STEP, MANY):
        await sqlite_backend.execute("DELETE FROM job")
        await sqlite_fill(sqlite_backend, S.SUCCEEDED, OLD, 2 * DAY_S)
        await sqlite_fill(sqlite_backend, S.SUCCEEDED, younger, 10)
        pruned, cost = await steps(sqlite_store, A_DAY)
        assert (pruned.removed, pruned.done) == ({S.SUCCEEDED: OLD}, True)
        again, in_vain = await steps(sqlite_store, A_DAY, after=pruned.up_to)
        assert (again.removed, again.done) == ({}, True)
        costs.append((cost, in_vain))
    assert costs[1] == costs[2]
    assert costs[1][0] > costs[1][1] > 0


async def test_sqlite_prune_of_bad_ends_passes_over_no_good_ones(
    sqlite_store: SqliteStore, sqlite_backend: SqliteBackend
) -> None:
    costs = []
    for others in (0, 1, MANY):
        await sqlite_backend.execute("DELETE FROM job")
        if others:
            await sqlite_fill(sqlite_backend, S.SUCCEEDED, others, 2 * DAY_S)
        await sqlite_fill(sqlite_backend, S.FAILED, OLD, 2 * DAY_S)
        pruned, cost = await steps(sqlite_store, FAILED_A_DAY)
        assert pruned.removed == {S.FAILED: OLD}
        costs.append(cost)
    assert costs[1] == costs[2] > 0


async def test_sqlite_uses_freed_pages_again(
    sqlite_store: SqliteStore, sqlite_backend: SqliteBackend
) -> None:
    """The file does not grow while as much goes as comes."""
    await sqlite_fill(sqlite_backend, S.SUCCEEDED, OLD, 2 * DAY_S)
    await sqlite_backend.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = sqlite_backend.path.stat().st_size
    for _ in range(3):
        await sqlite_store.prune(A_DAY)
        await sqlite_fill(sqlite_backend, S.SUCCEEDED, OLD, 2 * DAY_S)
        await sqlite_backend.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert sqlite_backend.path.stat().st_size < size * 1.2


# PostgreSQL


@pytest.fixture
async def postgres_store(postgres_backend: PostgresBackend) -> AsyncIterator[PostgresStore]:
    await postgres_backend.clear()
    store = PostgresStore(postgres_backend.url)
    await store.open()
    yield store
    await store.close()
    await postgres_backend.execute("TRUNCATE longshore.job, longshore.job_number")


async def postgres_fill(backend: PostgresBackend, state: S, number: int, age_s: float) -> None:
    await backend.execute(POSTGRES_FILL, CODES[state], number, micros(age_s), lane())
    # As autovacuum does, but not while a test truncates the tables.
    await backend.execute("ANALYZE longshore.job, longshore.job_number")


async def rows_read(store: PostgresStore, kept: Retention, after: int = 0) -> tuple[Pruned, int]:
    """What a call answers, and how many rows it read."""
    lines = store._keeping
    read = -1

    class Gauge:
        async def run(self, work: Callable[[Transaction], Coroutine[Any, Any, Pruned]]) -> Pruned:
            async def gauged(tx: Transaction) -> Pruned:
                nonlocal read
                before = await tx.connection.fetchval(ROWS_READ)
                answer = await work(tx)
                read = await tx.connection.fetchval(ROWS_READ) - before
                return answer

            return await lines.run(gauged)

    store._keeping = Gauge()  # type: ignore[assignment]
    try:
        pruned = await store.prune(kept, after=after)
    finally:
        store._keeping = lines
    return pruned, read


async def test_postgres_prune_reads_what_it_removes_and_one_stretch_more(
    postgres_store: PostgresStore, postgres_backend: PostgresBackend
) -> None:
    """Found by number, read, held and removed; of each, its number too."""
    await postgres_fill(postgres_backend, S.SUCCEEDED, OLD, 2 * DAY_S)
    await postgres_fill(postgres_backend, S.SUCCEEDED, MANY, 10)
    pruned, read = await rows_read(postgres_store, A_DAY)
    assert (pruned.removed, pruned.done) == ({S.SUCCEEDED: OLD}, True)
    assert OLD <= read <= 5 * OLD + 2 * STEP
    again, in_vain = await rows_read(postgres_store, A_DAY, after=pruned.up_to)
    assert (again.removed, again.done) == ({}, True)
    assert 0 < in_vain <= 2 * STEP


async def test_postgres_prune_of_bad_ends_passes_over_no_good_ones(
    postgres_store: PostgresStore, postgres_backend: PostgresBackend
) -> None:
    await postgres_fill(postgres_backend, S.SUCCEEDED, MANY, 2 * DAY_S)
    await postgres_fill(postgres_backend, S.FAILED, OLD, 2 * DAY_S)
    pruned, read = await rows_read(postgres_store, FAILED_A_DAY)
    assert pruned.removed == {S.FAILED: OLD}
    assert OLD <= read <= 5 * OLD


async def test_postgres_prune_waits_for_nobody_who_holds_a_job(
    postgres_store: PostgresStore, postgres_backend: PostgresBackend
) -> None:
    """A retry under way has the row: it is left, and the rest goes."""
    await postgres_fill(postgres_backend, S.FAILED, 3, 2 * DAY_S)

    async def hold(tx: Transaction) -> Pruned:
        await tx.fetch("SELECT id FROM longshore.job ORDER BY number LIMIT 1 FOR UPDATE")
        return await postgres_store.prune(A_DAY)

    assert (await postgres_store._pumping.run(hold)).removed == {S.FAILED: 2}
    assert (await postgres_store.prune(A_DAY)).removed == {S.FAILED: 1}
