"""Claims are flat: what one costs does not grow with what the store holds besides.

Counted in rows that PostgreSQL reads and in steps that SQLite's machine takes, so the numbers are
exact and the same on every machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from longshore.model.attempt import Attempt
from longshore.model.job import JobState
from longshore.model.worker import SessionKey
from longshore.ports import Batch
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.states import CODES
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import PostgresBackend, SqliteBackend
from longshore.testing.builders import Scene, a_claim, lane, some_jobs

from .test_interleavings import paused_at_the_head

MANY = 25_000
HELD = 2_000
"""So many jobs of a paused group were ready, and are held. To them come many that look as they do.
"""
TAKEN = 5
S = JobState

UNWANTED = [
    (S.READY, lane(kind="unservable")),
    (S.SUCCEEDED, lane()),
    (S.FAILED, lane()),
    (S.DELAYED, lane()),
]
"""A hundred thousand jobs that no worker can serve, that ended, or that wait for a time.

Their deadlines are long past.
"""

SQLITE_FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
INSERT INTO job (number, id, lane, state, priority, created_at, run_at, body_hash, kind, queue,
    target, options, history, args, deadline_at)
SELECT (SELECT coalesce(max(number), 0) FROM job) + i, randomblob(16), ?2, ?1, 5, 0, 9e15, 0,
    'work', 'default', '', x'80', '[]', x'', 1
FROM n
"""
SQLITE_BEHIND = """UPDATE job SET blocked_on = 'tenant=acme', deadline_at = NULL
WHERE state = 'ready' AND lane = ?"""
"""They wait behind a key of a limit."""
SQLITE_NUMBER = "UPDATE sequence SET number = (SELECT max(number) FROM job)"

POSTGRES_FILL = """
INSERT INTO longshore.job (id, lane, state, priority, run_at, body_hash, kind, queue, target,
    options, history, args, deadline_at)
SELECT gen_random_uuid(), $2, $1, 5, '2100-01-01', 0, 'work', 'default', '', '\\x80', '', '', now()
FROM generate_series(1, $3)
"""

POSTGRES_BEHIND = f"""UPDATE longshore.job SET blocked_on = 'tenant=acme', deadline_at = NULL
WHERE state = {CODES[S.READY]} AND lane = $1"""

ROWS_READ = """
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint AS rows
FROM pg_stat_xact_user_tables WHERE schemaname = 'longshore'
"""


async def started(store: SqliteStore | PostgresStore) -> tuple[Scene, SessionKey]:
    """A dispatcher and its worker, past the first claim of all: that adds rows others change."""
    scene = Scene(store)
    slot = await scene.attend()
    await scene.accepted(*some_jobs(2 * TAKEN))
    await scene.claim(slot, most=2 * TAKEN)
    return scene, slot


class SqliteGauge:
    """A store whose writer counts its steps."""

    def __init__(self, store: SqliteStore, scene: Scene, slot: SessionKey) -> None:
        assert store._writer is not None
        self._connection = store._writer
        self._scene = scene
        self._slot = slot
        self._count = 0

    def _step(self) -> int:
        self._count += 1
        return 0

    async def claim(self) -> tuple[list[Attempt], int]:
        """What a claim took, and what that cost."""
        self._count = 0
        self._connection.set_progress_handler(self._step, 1)
        claimed = await self._scene.claim(self._slot, most=TAKEN)
        self._connection.set_progress_handler(None, 1)
        return claimed, self._count


class PostgresGauge:
    """A store whose pump counts the rows that it reads."""

    def __init__(self, store: PostgresStore, dispatcher: UUID, slot: SessionKey) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._slot = slot

    async def claim(self) -> tuple[list[Attempt], int]:
        """What a claim took, and how many rows it read for that."""
        batch = Batch(claims=[a_claim([self._slot] * TAKEN)])

        async def work(tx: Transaction) -> tuple[list[Attempt], int]:
            before = await tx.connection.fetchval(ROWS_READ)
            drawn = await self._store._pump.run(tx, self._dispatcher, batch)
            after = await tx.connection.fetchval(ROWS_READ)
            return drawn.pumped.claimed, after - before

        return await self._store._pumping.run(work)


@pytest.fixture
async def sqlite_store(sqlite_backend: SqliteBackend) -> AsyncIterator[SqliteStore]:
    await sqlite_backend.clear()
    store = SqliteStore(sqlite_backend.path)
    await store.open()
    yield store
    await store.close()


async def test_sqlite_claim_costs_the_same_among_many_others(
    sqlite_store: SqliteStore, sqlite_backend: SqliteBackend
) -> None:
    scene, slot = await started(sqlite_store)
    gauge = SqliteGauge(sqlite_store, scene, slot)
    await scene.accepted(*some_jobs(TAKEN))
    taken, alone = await gauge.claim()
    _, in_vain = await gauge.claim()
    for state, hash in UNWANTED:
        await sqlite_backend.execute(SQLITE_FILL, state.value, hash, MANY)
    await sqlite_backend.execute(SQLITE_FILL, S.READY.value, lane(), MANY)
    await sqlite_backend.execute(SQLITE_BEHIND, lane())
    await sqlite_backend.execute(SQLITE_NUMBER)
    await gauge.claim()  # It reads once more what another process may have changed.
    await scene.accepted(*some_jobs(TAKEN))
    again, among_many = await gauge.claim()
    _, in_vain_among_many = await gauge.claim()
    assert len(taken) == len(again) == TAKEN
    assert among_many == alone > 0
    assert in_vain_among_many == in_vain > 0


async def test_sqlite_claim_costs_the_same_behind_a_paused_group(
    sqlite_store: SqliteStore, sqlite_backend: SqliteBackend
) -> None:
    scene, slot = await started(sqlite_store)
    gauge = SqliteGauge(sqlite_store, scene, slot)
    await scene.accepted(*some_jobs(TAKEN))
    taken, alone = await gauge.claim()
    await paused_at_the_head(scene, HELD)
    await sqlite_backend.execute(SQLITE_FILL, S.WAITING.value, lane(), MANY * 4)
    await sqlite_backend.execute(SQLITE_NUMBER)
    await gauge.claim()  # It reads once more what another process may have changed.
    await scene.accepted(*some_jobs(TAKEN))
    again, behind = await gauge.claim()
    assert len(taken) == len(again) == TAKEN
    assert behind == alone > 0


async def read_by_claims(backend: PostgresBackend) -> tuple[int, int]:
    """How many rows a claim reads that takes a few jobs, and one that finds nothing."""
    store = PostgresStore(backend.url)
    await store.open()
    try:
        scene, slot = await started(store)
        await scene.accepted(*some_jobs(TAKEN))
        gauge = PostgresGauge(store, scene.dispatcher, slot)
        taken, rows = await gauge.claim()
        assert len(taken) == TAKEN
        nothing, in_vain = await gauge.claim()
        assert nothing == []
        return rows, in_vain
    finally:
        await store.close()


async def test_postgres_claim_reads_the_same_among_many_others(
    postgres_backend: PostgresBackend,
) -> None:
    """Also with plans made while nobody knew how large the table is, and after somebody does."""
    await postgres_backend.clear()
    alone = await read_by_claims(postgres_backend)
    for state, hash in UNWANTED:
        await postgres_backend.execute(POSTGRES_FILL, CODES[state], hash, MANY)
    await postgres_backend.execute(POSTGRES_FILL, CODES[S.READY], lane(), MANY)
    await postgres_backend.execute(POSTGRES_BEHIND, lane())
    among_many = await read_by_claims(postgres_backend)
    await postgres_backend.execute("ANALYZE longshore.job")
    analyzed = await read_by_claims(postgres_backend)
    await postgres_backend.execute("TRUNCATE longshore.job, longshore.job_number")
    assert alone[0] >= TAKEN
    assert among_many == alone
    assert analyzed == alone


async def test_postgres_claim_reads_the_same_behind_a_paused_group(
    postgres_backend: PostgresBackend,
) -> None:
    await postgres_backend.clear()
    alone = await read_by_claims(postgres_backend)
    async with postgres_backend.opened() as store:
        await paused_at_the_head(Scene(store), HELD)
    await postgres_backend.execute(POSTGRES_FILL, CODES[S.WAITING], lane(), MANY * 4)
    behind = await read_by_claims(postgres_backend)
    await postgres_backend.execute("TRUNCATE longshore.job, longshore.job_number")
    assert behind == alone
    assert alone[0] >= TAKEN
