"""Bulks on PostgreSQL. A page locks its bulk, then those of its jobs that nobody else has locked.

It waits for no job, so no pump, and no other verb that waits while it holds a job, can wait for it
in turn. What another transaction held, it leaves for the next page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
from msgspec import structs

from longshore.core import bulks, effects
from longshore.core.lanes import lane_of
from longshore.model.bulk import (
    BulkAction,
    BulkAdvance,
    BulkPage,
    BulkRun,
    BulkState,
    NewBulk,
)
from longshore.model.job import Job, JobState, Refused, RetryVerdict
from longshore.ports import Hint
from longshore.store.bulk_rows import pack_bulk, too_many_bulks, unpack_bulk
from longshore.store.postgres import keeper_sql as sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.keeper import PostgresKeeper, retry_locked
from longshore.store.postgres.known_sql import ADD_LANES, KNOWN
from longshore.store.postgres.prune import DROP
from longshore.store.postgres.reads import listed_among
from longshore.store.postgres.states import STATES
from longshore.store.rows import INT64

_ALONE: Final = f"SELECT pg_advisory_xact_lock({0x6C6F6E67_62756C6B})"  # "longbulk"
"""Two that begin a bulk count the running ones one after the other."""
_BULK: Final = "SELECT bulk FROM longshore.bulk"
_BY_ID: Final = f"{_BULK} WHERE id = $1"
_BY_NUMBER: Final = f"{_BULK} WHERE number = $1"
_RUNNING: Final = f"{_BULK} WHERE running ORDER BY number"
_LIST: Final = f"""
{_BULK} WHERE number < coalesce($1::bigint, 9223372036854775807) ORDER BY number DESC LIMIT $2
"""
_BEGIN: Final = """
SELECT nextval(pg_get_serial_sequence('longshore.bulk', 'number')) AS number, now() AS now,
    coalesce((SELECT max(number) FROM longshore.job_number), 0) AS last
"""
_INSERT: Final = """
INSERT INTO longshore.bulk (number, id, version, running, bulk) OVERRIDING SYSTEM VALUE
VALUES ($1, $2, $3, true, $4)
"""
_UPDATE: Final = """
UPDATE longshore.bulk SET version = $2, running = $3, bulk = $4 WHERE id = $1
"""
_FORGET: Final = f"""
DELETE FROM longshore.bulk WHERE NOT running AND number < (
    SELECT number FROM longshore.bulk WHERE NOT running
    ORDER BY number DESC LIMIT 1 OFFSET {bulks.BULKS_KEPT - 1}
)
"""
_LOCK: Final = """
SELECT bulk, now() AS now FROM longshore.bulk WHERE id = $1 AND version = $2 AND running
FOR UPDATE
"""
_CHANGE: Final = """
UPDATE longshore.job AS j SET {set}
FROM (
    SELECT i.*, l.tid FROM unnest($1::uuid[]{arrays}) AS i (id{names})
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM longshore.job WHERE id = i.id OFFSET 0) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
"""
_PRIORITY: Final = _CHANGE.format(set="priority = $2", arrays="", names="")
_MOVE: Final = _CHANGE.format(
    set="queue = $3, lane = n.lane", arrays=", $2::bigint[]", names=", lane"
)

Rows = list[asyncpg.Record]


class _Done(NamedTuple):
    """What a page did: to which rows, which jobs it left as they were, and what is ready now."""

    rows: Rows
    refused: Sequence[tuple[int, str]] = ()
    put_back: Sequence[tuple[int, int, tuple[int, int]]] = ()
    """Lanes, urgencies and places at which jobs are ready by now."""


class PostgresBulks(PostgresKeeper):
    """The verbs about bulks."""

    async def put_bulk(self, new: NewBulk, most: int) -> BulkRun | Refused:
        """Stores a bulk, which means the jobs there are now."""

        async def work(tx: Transaction) -> BulkRun | Refused:
            await tx.fetch(_ALONE)
            if known := await tx.fetch(_BY_ID, new.id):
                return unpack_bulk(known[0]["bulk"])
            if len(await tx.fetch(_RUNNING)) >= most:
                return too_many_bulks(new, most)
            [begin] = await tx.fetch(_BEGIN)
            bulk = bulks.begun(new, begin["number"], begin["last"], begin["now"])
            await tx.fetch(_INSERT, bulk.number, new.id, bulk.version, pack_bulk(bulk))
            await tx.fetch(_FORGET)
            return bulk

        return await self._keeping.run(work)

    async def bulk(self, ref: UUID | int) -> BulkRun | None:
        """One bulk, by its id or its number."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        rows = await self._reading.fetch(_BY_NUMBER if isinstance(ref, int) else _BY_ID, ref)
        return unpack_bulk(rows[0]["bulk"]) if rows else None

    async def bulks(self, before: int | None = None, most: int = 50) -> list[BulkRun]:
        """Bulks, newest first."""
        before = None if before is None or before not in INT64 else before
        return [unpack_bulk(row["bulk"]) for row in await self._reading.fetch(_LIST, before, most)]

    async def running_bulks(self) -> list[BulkRun]:
        """The bulks that are not over, oldest first."""
        return [unpack_bulk(row["bulk"]) for row in await self._reading.fetch(_RUNNING)]

    async def stop_bulk(self, ref: UUID | int, by: str = "") -> BulkRun | None:
        """Cancels a bulk: what it did stays done."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        which = _BY_NUMBER if isinstance(ref, int) else _BY_ID

        async def work(tx: Transaction) -> BulkRun | None:
            rows = await tx.fetch(
                f"{which.replace('SELECT bulk', 'SELECT bulk, now() AS now')} FOR UPDATE", ref
            )
            if not rows:
                return None
            bulk = unpack_bulk(rows[0]["bulk"])
            stopped = bulks.stopped(bulk, by, rows[0]["now"])
            if stopped is not bulk:
                await _write(tx, stopped)
            return stopped

        return await self._keeping.run(work)

    async def advance_bulk(self, page: BulkPage) -> BulkAdvance | None:
        """Does the action to those jobs of a page that still match, and notes how far it is."""

        async def work(tx: Transaction) -> tuple[BulkAdvance, _Done] | None:
            rows = await tx.fetch(_LOCK, page.bulk, page.version)
            if not rows:
                return None
            bulk = unpack_bulk(rows[0]["bulk"])
            done, left = await _page(tx, bulk, page)
            return await _advanced(tx, bulk, page, done, left, rows[0]["now"]), done

        found = await self._keeping.run(work)
        if found is None:
            return None
        advance, done = found
        for lane, urgency, place in done.put_back:
            self._pump.cursors.put_back(lane, urgency, place)
        self._tell_of_bulk(advance)
        return advance

    def _tell_of_bulk(self, advance: BulkAdvance) -> None:
        for hint, has_some in (
            (Hint.WORK, advance.is_ready),
            (Hint.CANCEL, advance.cancelling),
            (Hint.ENDED, advance.cancelled),
        ):
            if has_some:
                self._sender.tell(hint)


async def _page(tx: Transaction, bulk: BulkRun, page: BulkPage) -> tuple[_Done, list[UUID]]:
    """Does the action to the jobs of a page; answers what it did, and the jobs it must leave."""
    rows = {row["id"]: row for row in await locked(tx, page.jobs, sql.LOCK_FREE)}
    held = [id for id in page.jobs if id not in rows]
    left = [row["id"] for row in await tx.fetch(KNOWN, held)] if held else []
    wanted = structs.replace(bulks.look_again(bulk, page), ids=tuple(rows))
    found = await listed_among(tx, wanted) if rows else []
    meant = [job for job in found if bulks.is_meant(bulk.new, job)]
    refused = [(job.number, why) for job in meant if (why := bulks.why_not(bulk.new, job))]
    jobs = [job for job in meant if not bulks.why_not(bulk.new, job)]
    done = await _ACTIONS[bulk.new.action](tx, bulk, jobs, [rows[job.id] for job in jobs])
    return done._replace(refused=[*refused, *done.refused]), left


async def _advanced(
    tx: Transaction,
    bulk: BulkRun,
    page: BulkPage,
    done: _Done,
    left: Sequence[UUID],
    now: datetime,
) -> BulkAdvance:
    after = bulks.advanced(bulk, page, len(done.rows), done.refused, left, now)
    await _write(tx, after)
    if bulk.new.action is not BulkAction.CANCEL:
        return BulkAdvance(after, is_ready=bool(done.put_back))
    ends = [row["id"] for row in done.rows if effects.CANCEL[STATES[row["state"]]].ends]
    stops = [row["id"] for row in done.rows if row["id"] not in set(ends)]
    return BulkAdvance(after, tuple(ends), tuple(stops))


async def _write(tx: Transaction, bulk: BulkRun) -> None:
    running = bulk.state is BulkState.RUNNING
    await tx.fetch(_UPDATE, bulk.new.id, bulk.version, running, pack_bulk(bulk))


# the actions, on rows that are locked


async def _cancel(tx: Transaction, bulk: BulkRun, jobs: list[Job], rows: Rows) -> _Done:
    changes = [(row, effects.CANCEL[STATES[row["state"]]]) for row in rows]
    await apply(tx, changes, bulks.done_by(bulk))
    return _Done(rows)


async def _retry(tx: Transaction, bulk: BulkRun, jobs: list[Job], rows: Rows) -> _Done:
    verdicts, reopened = await retry_locked(tx, rows, bulks.done_by(bulk))
    taken = {id for id, verdict in verdicts.items() if verdict is RetryVerdict.UNIQUE_KEY_TAKEN}
    refused = [(job.number, bulks.KEY_TAKEN) for job in jobs if job.id in taken]
    return _Done(reopened, refused, [_place(row) for row in reopened])


async def _set_priority(tx: Transaction, bulk: BulkRun, jobs: list[Job], rows: Rows) -> _Done:
    priority = bulk.new.priority
    assert priority is not None
    changed = [row for job, row in zip(jobs, rows, strict=True) if job.priority != priority]
    if changed:
        await tx.fetch(_PRIORITY, [row["id"] for row in changed], priority)
    ready = [row for row in changed if STATES[row["state"]] is JobState.READY]
    return _Done(rows, (), [(row["lane"], ~priority, _place(row)[2]) for row in ready])


async def _move(tx: Transaction, bulk: BulkRun, jobs: list[Job], rows: Rows) -> _Done:
    queue = bulk.new.queue
    assert queue is not None
    changed = [(job, row) for job, row in zip(jobs, rows, strict=True) if job.queue != queue]
    put_back = []
    lanes = {job.id: lane_of(queue, job.kind, job.target) for job, _ in changed}
    for job, row in changed:
        lane = lanes[job.id].hash
        tx.count(row["lane"], row["state"], None)
        tx.count(lane, None, row["state"])
        if job.state is JobState.READY:
            put_back.append((lane, *_place(row)[1:]))
    if changed:
        new = sorted(set(lanes.values()), key=lambda lane: lane.hash)
        columns = zip(*((one.hash, one.queue, one.kind, one.target) for one in new), strict=True)
        await tx.fetch(ADD_LANES, *columns)
        await tx.fetch(_MOVE, list(lanes), [lane.hash for lane in lanes.values()], queue)
    return _Done(rows, (), put_back)


async def _delete(tx: Transaction, bulk: BulkRun, jobs: list[Job], rows: Rows) -> _Done:
    if rows:
        await tx.fetch(DROP, [row["id"] for row in rows], [row["number"] for row in rows])
    for row in rows:
        tx.count(row["lane"], row["state"], None)
    return _Done(rows)


_ACTIONS: Final = {
    BulkAction.CANCEL: _cancel,
    BulkAction.RETRY: _retry,
    BulkAction.PRIORITY: _set_priority,
    BulkAction.MOVE: _move,
    BulkAction.DELETE: _delete,
}


def _place(row: asyncpg.Record) -> tuple[int, int, tuple[int, int]]:
    return row["lane"], row["urgency"], (row["rank"], row["number"])
