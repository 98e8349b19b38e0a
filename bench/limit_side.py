"""One connection of the limit: batches of finishes, submits and claims, and nothing around them.

    python -m bench.limit_side URL WAY JOBS BATCH

The way is `store` (the store's own `pump`) or `bare` (its statements alone, on values made in
advance). Says "ready", waits for a line, does it, and says when it began and ended.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from uuid import UUID

import asyncpg
import uvloop

from bench.helper import questions, reply
from longshore.core.lanes import body_hash, lane_of
from longshore.model.batch import BATCH_BYTES
from longshore.model.ends import End, Succeeded
from longshore.model.ids import make_id
from longshore.model.job import DEFAULT_QUEUE, JobState, Submission
from longshore.model.worker import Attended, Claim, KindInfo, SessionKey, WorkerInfo
from longshore.ports import Batch, Store
from longshore.store.postgres import columns as postgres_columns
from longshore.store.postgres import finish as postgres_finish
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.planning import STEADY
from longshore.store.postgres.sql import CLAIM, FINISH, SUBMIT
from longshore.store.postgres.states import CODES, READY, RUNNING
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore

ARGS = b"\x81\xa4data\xd9\x64" + b"x" * 100
RESULT = b"\xc0"
SUCCEEDED = CODES[JobState.SUCCEEDED]
URGENCY = -1

Run = Callable[[], Coroutine[None, None, None]]


def new_id() -> UUID:
    return make_id(time.time_ns() // 1_000_000, os.urandom(10))


def open_store(url: str) -> PostgresStore | SqliteStore:
    """The store at a URL, not opened yet."""
    if url.startswith("sqlite:///"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")))
    return PostgresStore(url)


class Side:
    """A dispatcher with one worker, whose jobs nobody else runs."""

    def __init__(self, jobs: int, batch: int) -> None:
        self.dispatcher = new_id()
        self.jobs = jobs
        self.batch = batch
        self.kind = f"limit{os.getpid()}"
        self.lane = lane_of(DEFAULT_QUEUE, self.kind, "")
        made = [Submission(new_id(), self.kind, ARGS) for _ in range(jobs)]
        self.chunks = [made[start : start + batch] for start in range(0, jobs, batch)]

    async def attend(self, store: Store) -> SessionKey:
        """Its worker's slot."""
        info = WorkerInfo(id=new_id(), kinds={self.kind: KindInfo()})
        answer = await store.attend(self.dispatcher, info)
        assert isinstance(answer, Attended), answer
        return SessionKey(info.id, answer.session)


async def through_store(side: Side, url: str) -> Run:
    """Batches through the store's pump."""
    store = open_store(url)
    await store.open()
    slot = await side.attend(store)
    claims = [Claim((side.lane.hash,), (slot,) * side.batch)]

    async def run() -> None:
        finishes: Sequence[End] = ()
        done = 0
        chunks = iter(side.chunks)
        while done < side.jobs:
            pumped = await store.pump(side.dispatcher, Batch(finishes, next(chunks, ()), claims))
            finishes = [Succeeded(job.id, job.token, RESULT) for job in pumped.claimed]
            done += len(pumped.finished)
        await store.close()

    return run


async def on_postgres(side: Side, url: str) -> Run:
    """The three statements on one connection of PostgreSQL."""
    store = PostgresStore(url)
    await store.open()
    slot = await side.attend(store)
    await store.pump(side.dispatcher, Batch(submits=[Submission(new_id(), side.kind, ARGS)]))
    await store.close()
    connection = await asyncpg.connect(url, server_settings=STEADY)
    chunks = iter(
        [
            postgres_columns.columns([(job, body_hash(job)) for job in chunk])
            for chunk in side.chunks
        ]
    )
    slots = ([slot.worker], [slot.session], [1] * side.batch, side.dispatcher)
    lane = side.lane.hash

    async def run() -> None:
        claimed: list[asyncpg.Record] = []
        done = last = 0
        while done < side.jobs:
            tx = Transaction(connection)
            await connection.execute("BEGIN")
            if claimed:
                await connection.fetch(FINISH, *_finishes(claimed))
                tx.count(lane, RUNNING, SUCCEEDED, len(claimed))
            if columns := next(chunks, None):
                rows = await connection.fetch(SUBMIT, *columns)
                tx.count(lane, None, READY, len(rows))
            done += len(claimed)
            stretch = ([lane], [URGENCY], [0], [last], [URGENCY])
            claimed = await connection.fetch(CLAIM, *slots, *stretch, 10.0, BATCH_BYTES, None)
            tx.count(lane, READY, RUNNING, len(claimed))
            last = max((row["number"] for row in claimed), default=last)
            await connection.execute(tx.ending())
        await connection.close()

    return run


def _finishes(claimed: list[asyncpg.Record]) -> list[object]:
    ends = [Succeeded(row["id"], row["token"], RESULT) for row in claimed]
    return postgres_finish.finish_columns(ends, isolate_bad_items=False)


INSERT = """
INSERT INTO job (number, id, lane, state, priority, created_at, body_hash, kind, queue, target,
    options, history, args)
VALUES ((SELECT coalesce(max(number), 0) + 1 FROM job), ?, ?, 'ready', 0, ?, 0, ?, 'default', '',
    x'80', '[["ready",1700000000000000,"",""]]', ?)
"""
TAKE = """
UPDATE job SET state = 'running', token = number + 1, worker = ?2, session = 1,
    attempt = attempt + 1, started_at = ?3,
    history = json_insert(history, '$[#]', json('["running",1700000000000000,"",""]'))
WHERE number IN (
    SELECT number FROM job WHERE lane = ?1 AND state = 'ready'
    ORDER BY priority DESC, rank, number LIMIT ?4
) RETURNING number, token
"""
END = """
UPDATE job SET state = 'succeeded', result = ?3, ended_at = ?4, expires_at = NULL,
    history = json_insert(history, '$[#]', json('["succeeded",1700000000000000,"",""]'))
WHERE number = ?1 AND token = ?2 AND state = 'running'
"""


async def on_sqlite(side: Side, url: str) -> Run:
    """The least SQL that does the same on the real table, on one connection of SQLite."""
    path = url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    for setting in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {setting}")
    lane, now, worker = side.lane.hash, time.time_ns() // 1000, new_id().bytes
    chunks = iter(
        [[(job.id.bytes, lane, now, job.kind, job.args) for job in c] for c in side.chunks]
    )

    async def run() -> None:
        claimed: list[tuple[int, int]] = []
        done = 0
        while done < side.jobs:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(END, [(*job, RESULT, now) for job in claimed])
            connection.executemany(INSERT, next(chunks, []))
            done += len(claimed)
            claimed = connection.execute(TAKE, (lane, worker, now, side.batch)).fetchall()
            connection.execute("COMMIT")
        connection.close()

    return run


async def main(url: str, way: str, jobs: int, batch: int) -> None:
    """Prepares, waits for the word, runs, and says when."""
    side = Side(jobs, batch)
    if way == "store":
        run = await through_store(side, url)
    elif url.startswith("sqlite"):
        run = await on_sqlite(side, url)
    else:
        run = await on_postgres(side, url)
    reply("ready")
    await asyncio.to_thread(next, questions(), None)
    began = time.monotonic()
    await run()
    reply([began, time.monotonic()])


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
