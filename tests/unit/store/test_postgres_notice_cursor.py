"""The search for notices begins where it came a while ago, and now and then at the beginning."""

from __future__ import annotations

import json

import asyncpg
from msgspec import structs

from longshore.model.group import GroupHead, GroupPart, GroupSubmitted
from longshore.model.watcher import ActorWatcher
from longshore.ports import Told
from longshore.store.postgres.notice_cursor import (
    EVER,
    FULL_LOOK_S,
    LONGEST_REST_S,
    LOOK_SHARE,
    STEP_S,
    TRAIL_S,
    NoticeCursor,
)
from longshore.store.postgres.store import PostgresStore
from longshore.store.postgres.watchers import FIND
from longshore.testing.builders import Scene, new_id

MANY = 3_000
COPY = """
INSERT INTO longshore.notice (subject, is_group, round, state, options)
SELECT gen_random_uuid(), is_group, round, state, options
FROM (SELECT * FROM longshore.notice LIMIT 1) AS n, generate_series(1, $1)
"""


def test_the_next_search_begins_behind_what_was_found_a_while_ago() -> None:
    cursor = NoticeCursor()
    assert cursor.begin(100.0) == EVER
    cursor.found(EVER, 10, 0.001, 100.0, is_all=True)
    cursor.found(EVER, 20, 0.001, 100.0 + STEP_S, is_all=True)
    rested = float("-inf")
    assert cursor.begin(rested) == EVER
    cursor.begin(100.0 + TRAIL_S)
    assert cursor.begin(rested) == 10
    cursor.begin(100.0 + STEP_S + TRAIL_S)
    assert cursor.begin(rested) == 20


def test_now_and_then_it_looks_from_the_beginning_until_it_is_through() -> None:
    cursor = NoticeCursor()
    cursor.found(EVER, 10, 0.0, 100.0, is_all=True)
    cursor.begin(100.0 + TRAIL_S)
    assert cursor.begin(100.0) == 10
    assert cursor.begin(100.0 + FULL_LOOK_S) == EVER
    cursor.found(EVER, 3, 0.0, 100.0 + FULL_LOOK_S, is_all=False)
    assert cursor.begin(100.0 + FULL_LOOK_S) == EVER, "there is more"
    cursor.found(EVER, 4, 0.0, 100.0 + FULL_LOOK_S, is_all=True)
    assert cursor.begin(100.0 + FULL_LOOK_S) == 10


def test_a_look_from_the_beginning_that_costs_much_is_made_less_often_but_is_made() -> None:
    cursor = NoticeCursor()
    cursor.found(EVER, 10, 0.0, 100.0 - TRAIL_S, is_all=True)
    cursor.begin(100.0)
    cursor.found(EVER, 10, 0.2, 100.0, is_all=True)
    assert cursor.begin(100.0 + FULL_LOOK_S) != EVER
    assert cursor.begin(100.0 + 0.2 * LOOK_SHARE) == EVER
    cursor.found(EVER, 10, 1000.0, 100.0, is_all=True)
    assert cursor.begin(100.0 + LONGEST_REST_S) == EVER


class Clock:
    """The store's clock, which the test moves."""

    def __init__(self, store: PostgresStore) -> None:
        self.at = 1000.0
        store._clock = lambda: self.at


async def a_notice(store: PostgresStore) -> None:
    """A group that nobody hears of has ended."""
    watchers = (ActorWatcher("Nobody", "none", "done", b""),)
    head = structs.replace(GroupHead(new_id(), "none", 0), watchers=watchers)
    assert isinstance(await store.submit_group(GroupPart(head, 0, ())), GroupSubmitted)
    await Scene(store).settle()


async def _pages_read(connection: asyncpg.Connection, since: int) -> int:
    statement = FIND.replace("$1", "100").replace("$2", str(since))
    plan = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    root = json.loads(plan)[0]["Plan"]
    return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])


async def test_dead_entries_of_an_old_snapshot_do_not_slow_the_search(
    postgres_store: PostgresStore, postgres_url: str
) -> None:
    store, clock = postgres_store, Clock(postgres_store)
    holder = await asyncpg.connect(postgres_url)
    try:
        await a_notice(store)
        await holder.execute(COPY, MANY)
        snapshot = holder.transaction(isolation="repeatable_read")
        await snapshot.start()
        await holder.fetch("SELECT count(*) FROM longshore.notice")
        told = 0
        while some := (await store.tell_watchers(1000)).ends:
            told += some
            clock.at += STEP_S
        assert told == MANY + 1
        clock.at += TRAIL_S
        await store.tell_watchers()
        mark = store._notices.begin(clock.at)
        assert mark > EVER
        prober = await asyncpg.connect(postgres_url)
        await prober.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        from_mark, from_start = [await _pages_read(prober, since) for since in (mark, EVER)]
        await prober.close()
        assert from_mark * 5 < from_start
    finally:
        await holder.close()


async def test_a_notice_that_commits_late_is_told_by_the_next_look_from_the_beginning(
    postgres_store: PostgresStore, postgres_url: str
) -> None:
    store, clock = postgres_store, Clock(postgres_store)
    late = await asyncpg.connect(postgres_url)
    try:
        await a_notice(store)
        await late.execute("BEGIN")
        await late.execute(COPY, 1)
        await a_notice(store)
        assert (await store.tell_watchers()).ends == 2
        clock.at += TRAIL_S
        assert await store.tell_watchers() == Told(), "the mark is past the one that comes late"
        await late.execute("COMMIT")
        assert await store.tell_watchers() == Told()
        clock.at += FULL_LOOK_S
        assert (await store.tell_watchers()).ends == 1
    finally:
        await late.close()
