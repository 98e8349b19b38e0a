"""The search for due jobs begins where the last one ended, and now and then at the beginning."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import asyncpg
from msgspec import structs

from longshore.store.postgres import keeper_sql as sql
from longshore.store.postgres.due_cursor import (
    EVER,
    FULL_LOOK_S,
    LONGEST_REST_S,
    LOOK_SHARE,
    TRAIL,
    DueCursor,
)
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MANY = 3_000


def test_the_first_search_looks_from_the_beginning_the_next_from_where_it_came() -> None:
    cursor = DueCursor()
    assert cursor.begin(100.0) == EVER
    cursor.found(EVER, NOON, 0.001, 100.0)
    assert cursor.begin(100.1) == NOON - TRAIL
    cursor.found(NOON - TRAIL, NOON + timedelta(seconds=5), 0.001, 105.0)
    assert cursor.begin(100.2) == NOON + timedelta(seconds=5) - TRAIL


def test_now_and_then_it_looks_from_the_beginning() -> None:
    cursor = DueCursor()
    cursor.found(EVER, NOON, 0.0, 100.0)
    assert cursor.begin(100.0 + FULL_LOOK_S) == EVER


def test_a_look_from_the_beginning_that_costs_much_is_made_less_often_but_is_made() -> None:
    cursor = DueCursor()
    cursor.found(EVER, NOON, 0.2, 100.0)
    assert cursor.begin(100.0 + FULL_LOOK_S) != EVER
    assert cursor.begin(100.0 + 0.2 * LOOK_SHARE) == EVER
    cursor.found(EVER, NOON, 1000.0, 100.0)
    assert cursor.begin(100.0 + LONGEST_REST_S) == EVER


async def _pages_read(connection: asyncpg.Connection, statement: str) -> int:
    """How many pages a statement reads."""
    plan = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    root = json.loads(plan)[0]["Plan"]
    return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])


def _next_due(since: datetime) -> str:
    return sql.NEXT_DUE.replace("$1", f"'{since}'")


def _promote(since: datetime) -> str:
    return sql.PROMOTE.replace("$1", "1000").replace("$2", f"'{since}'")


async def _promote_until_past(store: PostgresStore, at: datetime) -> datetime:
    """Searches until the next search begins behind a time; answers from when it does."""
    while (mark := store._due.begin(float("-inf"))) <= at:
        await store.promote()
    return mark


async def test_dead_entries_of_an_old_snapshot_do_not_slow_the_search(
    postgres_store: PostgresStore, postgres_url: str
) -> None:
    store, scene = postgres_store, Scene(postgres_store)
    later = structs.replace(a_job(), delay_s=3600.0)
    [number] = await scene.accepted(later)
    holder = await asyncpg.connect(postgres_url)
    prober = await asyncpg.connect(postgres_url)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetch("SELECT count(*) FROM longshore.job")
        soon = [structs.replace(a_job(), delay_s=n * 1e-5) for n in range(1, MANY + 1)]
        await scene.accepted(*soon)
        promoted = 0
        while promoted < MANY:
            promoted += (await store.promote()).count
        await prober.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        last_due = await prober.fetchval(
            "SELECT max(run_at) FROM longshore.job WHERE number <> $1", number
        )
        mark = await _promote_until_past(store, last_due)
        for search in (_next_due, _promote):
            from_mark = await _pages_read(prober, search(mark))
            from_start = await _pages_read(prober, search(NOON))
            assert from_mark * 5 < from_start
    finally:
        await holder.close()
        await prober.close()
