"""Bulks in the SQLite store. Nobody else holds a job during a write, so a page leaves none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from longshore.core import bulks as rules
from longshore.core import effects
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
from longshore.store.bulk_rows import pack_bulk, too_many_bulks, unpack_bulk
from longshore.store.rows import INT64, LARGEST_INT, moment
from longshore.store.sqlite.keeper import retry_held
from longshore.store.sqlite.prune import DROP_INPUTS, DROP_JOBS, drop_logs
from longshore.store.sqlite.reads import jobs as listed
from longshore.store.sqlite.sql import Bulk, Held, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

_BULK: Final = "SELECT bulk FROM bulk"
_RUNNING: Final = f"{_BULK} WHERE running = 1 ORDER BY number"
_FORGET: Final = f"""DELETE FROM bulk WHERE running = 0 AND number < (
    SELECT number FROM bulk WHERE running = 0
    ORDER BY number DESC LIMIT 1 OFFSET {rules.BULKS_KEPT - 1})"""
_SET_PRIORITY: Final = Bulk(
    "UPDATE job SET priority = ?1 FROM {rows} AS v WHERE job.number = v.column1", 1
)
_MOVE: Final = Bulk(
    "UPDATE job SET queue = ?1, lane = v.column2 FROM {rows} AS v WHERE job.number = v.column1", 2
)


class _Done(NamedTuple):
    """What a page did: how many jobs, which it cancelled, which it left as they were, and why."""

    jobs: int
    refused: Sequence[tuple[int, str]] = ()
    cancelled: tuple[UUID, ...] = ()
    cancelling: tuple[UUID, ...] = ()
    is_ready: bool = False


# the verbs


def put_bulk(tx: Transaction, new: NewBulk, most: int) -> BulkRun | Refused:
    """Stores a bulk, which means the jobs there are now."""
    if (known := bulk(tx, new.id)) is not None:
        return known
    if len(running_bulks(tx)) >= most:
        return too_many_bulks(new, most)
    values = (new.id.bytes, 1, 1, b"")
    cursor = tx.execute("INSERT INTO bulk (id, version, running, bulk) VALUES (?, ?, ?, ?)", values)
    number = cursor.lastrowid
    assert number is not None
    made = rules.begun(new, number, tx.last_number, moment(tx.now))
    _write(tx, made)
    tx.execute(_FORGET)
    return made


def bulk(tx: Snapshot, ref: UUID | int) -> BulkRun | None:
    """One bulk, by its id or its number."""
    if isinstance(ref, UUID):
        row = tx.execute(f"{_BULK} WHERE id = ?", (ref.bytes,)).fetchone()
    else:
        row = tx.execute(f"{_BULK} WHERE number = ?", (ref if ref in INT64 else 0,)).fetchone()
    return None if row is None else unpack_bulk(row[0])


def bulks(tx: Snapshot, before: int | None = None, most: int = 50) -> list[BulkRun]:
    """Bulks, newest first."""
    before = LARGEST_INT if before is None or before not in INT64 else before
    rows = tx.execute(f"{_BULK} WHERE number < ? ORDER BY number DESC LIMIT ?", (before, most))
    return [unpack_bulk(row[0]) for row in rows]


def running_bulks(tx: Snapshot) -> list[BulkRun]:
    """The bulks that are not over, oldest first."""
    return [unpack_bulk(row[0]) for row in tx.execute(_RUNNING)]


def stop_bulk(tx: Transaction, ref: UUID | int, by: str = "") -> BulkRun | None:
    """Cancels a bulk: what it did stays done."""
    known = bulk(tx, ref)
    if known is None:
        return None
    stopped = rules.stopped(known, by, moment(tx.now))
    if stopped is not known:
        _write(tx, stopped)
    return stopped


def advance_bulk(tx: Transaction, page: BulkPage) -> BulkAdvance | None:
    """Does the action to those jobs of a page that still match, and notes how far it is."""
    known = bulk(tx, page.bulk)
    if known is None or known.version != page.version or known.state is not BulkState.RUNNING:
        return None
    new = known.new
    found = listed(tx, rules.look_again(known, page)).jobs if page.jobs else ()
    meant = [job for job in found if rules.is_meant(new, job)]
    refused = [(job.number, why) for job in meant if (why := rules.why_not(new, job))]
    jobs = [job for job in meant if not rules.why_not(new, job)]
    rows = [row for row in tx.held([job.number for job in jobs]) if row is not None]
    done = _act(tx, known, jobs, rows) if rows else _Done(0)
    reasons = [*refused, *done.refused]
    after = rules.advanced(known, page, done.jobs, reasons, (), moment(tx.now))
    _write(tx, after)
    return BulkAdvance(after, done.cancelled, done.cancelling, done.is_ready)


def _write(tx: Transaction, made: BulkRun) -> None:
    running = made.state is BulkState.RUNNING
    values = (made.version, running, pack_bulk(made), made.new.id.bytes)
    tx.execute("UPDATE bulk SET version = ?, running = ?, bulk = ? WHERE id = ?", values)


# the actions


def _act(tx: Transaction, made: BulkRun, jobs: Sequence[Job], rows: Sequence[Held]) -> _Done:
    new = made.new
    match new.action:
        case BulkAction.CANCEL:
            return _cancel(tx, rows, rules.done_by(made))
        case BulkAction.RETRY:
            return _retry(tx, rows, rules.done_by(made))
        case BulkAction.PRIORITY:
            assert new.priority is not None
            changed: list[Row] = [(row.number,) for row in rows]
            _SET_PRIORITY.run(tx.connection, changed, (new.priority,))
            return _Done(len(rows), is_ready=True)
        case BulkAction.MOVE:
            assert new.queue is not None
            return _move(tx, new.queue, jobs, rows)
        case BulkAction.DELETE:
            return _delete(tx, rows)
        case _:
            assert_never(new.action)


def _cancel(tx: Transaction, rows: Sequence[Held], by: str) -> _Done:
    ends, stops = list[UUID](), list[UUID]()
    for row in rows:
        change = effects.CANCEL[row.state]
        tx.apply(row, change, by=by)
        (ends if change.ends else stops).append(row.uuid)
    return _Done(len(rows), (), tuple(ends), tuple(stops))


def _retry(tx: Transaction, rows: Sequence[Held], by: str) -> _Done:
    taken = []
    for row in rows:
        _, verdict = retry_held(tx, row, by)
        if verdict is not RetryVerdict.RETRIED:
            taken.append((row.number, rules.KEY_TAKEN))
    return _Done(len(rows) - len(taken), taken, is_ready=len(taken) < len(rows))


def _move(tx: Transaction, queue: str, jobs: Sequence[Job], rows: Sequence[Held]) -> _Done:
    moved: list[Row] = []
    for job, row in zip(jobs, rows, strict=True):
        if job.queue != queue:
            lane = lane_of(queue, job.kind, job.target)
            tx.add_lane(lane)
            tx.count(row.lane, row.state, None)
            tx.count(lane.hash, None, row.state)
            moved.append((row.number, lane.hash))
    _MOVE.run(tx.connection, moved, (queue,))
    return _Done(len(rows), is_ready=any(row.state is JobState.READY for row in rows))


def _delete(tx: Transaction, rows: Sequence[Held]) -> _Done:
    numbers: list[Row] = [(row.number,) for row in rows]
    for row in rows:
        tx.count(row.lane, row.state, None)
    drop_logs(tx, numbers)
    DROP_INPUTS.run(tx.connection, numbers)
    DROP_JOBS.run(tx.connection, numbers)
    return _Done(len(rows))
