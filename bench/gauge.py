"""How many rows and index entries a claim reads, counted by PostgreSQL itself."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from longshore.model.worker import SessionKey
from longshore.ports import Batch
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_claim, done, lane, some_jobs

KIND = "gauged"
TAKEN = 100
ROUNDS = 10

# Of an index: entries, and the rows they led to; of a table: rows that were read in another way.
_READ = """
SELECT
    sum(pg_stat_get_xact_tuples_fetched(c.oid) + CASE
        WHEN relkind = 'r' THEN pg_stat_get_xact_tuples_returned(c.oid) ELSE 0
    END)::bigint AS rows,
    sum(CASE WHEN relkind = 'i' THEN pg_stat_get_xact_tuples_returned(c.oid) ELSE 0
    END)::bigint AS entries
FROM pg_class AS c WHERE relnamespace = 'longshore'::regnamespace AND relkind IN ('r', 'i')
"""


class Reads(Struct, frozen=True):
    """What one claim of `TAKEN` jobs read."""

    rows: int
    entries: int


def reads_per_claim(url: str) -> Reads:
    """Measured on a lane of its own, after some rounds of jobs have gone through that."""
    return asyncio.run(_gauge(url))


async def _gauge(url: str) -> Reads:
    store = PostgresStore(url)
    await store.open()
    try:
        scene = Scene(store)
        slot = await scene.attend(kinds=[KIND])
        for _ in range(ROUNDS):
            await scene.accepted(*some_jobs(TAKEN, kind=KIND))
            claimed = await scene.claim(slot, lane(kind=KIND), most=TAKEN)
            await scene.finish(*[done(attempt) for attempt in claimed])
        # Marks trail behind what was claimed; by now they have come up.
        await asyncio.sleep(0.6)
        await scene.accepted(*some_jobs(2 * TAKEN, kind=KIND))
        await scene.claim(slot, lane(kind=KIND), most=TAKEN)
        return await _claim(store, scene, slot)
    finally:
        await store.close()


async def _claim(store: PostgresStore, scene: Scene, slot: SessionKey) -> Reads:
    batch = Batch(claims=[a_claim([slot] * TAKEN, lane(kind=KIND))])

    async def work(tx: Transaction) -> Reads:
        before = await tx.connection.fetchrow(_READ)
        drawn = await store._pump.run(tx, scene.dispatcher, batch)
        after = await tx.connection.fetchrow(_READ)
        assert len(drawn.pumped.claimed) == TAKEN
        assert before is not None
        assert after is not None
        return Reads(after["rows"] - before["rows"], after["entries"] - before["entries"])

    return await store._pumping.run(work)
