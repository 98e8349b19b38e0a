"""Pruning on SQLite removes jobs and workers that ended, oldest first.

The table of jobs is its own index of numbers, so a walk reads only the beginnings of the rows on
its way. New rows use the room that it frees: the file does not shrink, and does not grow while as
much goes as comes.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from msgspec import Struct

from longshore.core.retention import Seen, Walk
from longshore.model.job import JobState
from longshore.model.retention import Pruned, Retention
from longshore.store.rows import LARGEST_INT
from longshore.store.sqlite.fair import forget_accounts
from longshore.store.sqlite.log_archives import DROP_PARTS, LOOSEN_ARCHIVES
from longshore.store.sqlite.pauses import forget_pauses
from longshore.store.sqlite.queue_waits import forget_queue_waits
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

STEP: Final = 100


class _Passed(Struct, array_like=True):
    """A job on the way of a walk; times are microseconds."""

    number: int
    lane: int
    state: JobState
    created_at: int
    ended_at: int | None
    whole: int | None
    """The number of the group or actor that it belongs to."""

    def seen(self, now: int) -> Seen:
        """As the walk wants it."""
        ended_s = None if self.ended_at is None else (now - self.ended_at) / 1e6
        return Seen(self.number, self.state, (now - self.created_at) / 1e6, ended_s)


_passed = msgspec.json.Decoder(list[_Passed])

_ROWS: Final = """
    SELECT json_group_array(json_array(number, lane, state, created_at, ended_at,
        whole)) FROM (
        {which} ORDER BY number LIMIT ?2)"""
_COLUMNS: Final = """SELECT number, lane, state, created_at, ended_at,
    coalesce(group_id, actor_id) AS whole FROM job"""
_ALL: Final = _ROWS.format(which=f"{_COLUMNS} NOT INDEXED WHERE number > ?1")
_IN_STATE: Final = f"""SELECT * FROM (
    {_COLUMNS} INDEXED BY job_ended_badly WHERE state = '{{state}}' AND number > ?1
    ORDER BY number LIMIT ?2)"""
_COUNTS: Final = "SELECT state, sum(n) FROM tally GROUP BY state"

DROP_LOGS: Final = Bulk("DELETE FROM log WHERE job IN (SELECT column1 FROM {rows})", 1)
DROP_INPUTS: Final = Bulk(
    """DELETE FROM job_input WHERE job IN (
        SELECT id FROM job WHERE number IN (SELECT column1 FROM {rows}))""",
    1,
)
DROP_JOBS: Final = Bulk("DELETE FROM job WHERE number IN (SELECT column1 FROM {rows})", 1)

_EMPTY_LANES: Final = """
    SELECT hash FROM lane WHERE NOT EXISTS (
        SELECT 1 FROM tally WHERE tally.lane = lane.hash AND tally.n > 0)
    LIMIT ?"""

_GONE_WORKERS: Final = f"""
    SELECT id FROM worker INDEXED BY worker_ended
    WHERE alive = 0 AND ended_at <= ? AND NOT EXISTS (
        SELECT 1 FROM job INDEXED BY job_owned
        WHERE job.state IN {OWNED_LIST} AND job.worker = worker.id)
    ORDER BY ended_at LIMIT ?"""


def prune(tx: Transaction, kept: Retention, after: int, most: int) -> Pruned:
    """Removes ended jobs past their bounds, of the next `most` jobs after a number."""
    pruned, gone = look(tx, kept, after, most)
    for row in gone:
        tx.count(row.lane, row.state, None)
    numbers: list[Row] = [(row.number,) for row in gone]
    drop_logs(tx, numbers)
    DROP_INPUTS.run(tx.connection, numbers)
    DROP_JOBS.run(tx.connection, numbers)
    return pruned


def drop_logs(tx: Transaction, numbers: list[Row]) -> None:
    """Removes the logs of jobs, and lets go of the archives that hold parts of them."""
    for bulk in (DROP_LOGS, LOOSEN_ARCHIVES, DROP_PARTS):
        bulk.run(tx.connection, numbers)


def look(tx: Snapshot, kept: Retention, after: int, most: int) -> tuple[Pruned, list[_Passed]]:
    """Finds the jobs to remove among the next `most` after a number, a few at a time."""
    counts = dict(tx.execute(_COUNTS)) if kept.most else {}
    walk = Walk(kept, counts, after)
    query = _query(kept)
    gone: list[_Passed] = []
    done = walk.over
    left = most
    while left > 0 and not done:
        size = min(left, STEP)
        values = (min(walk.up_to, LARGEST_INT), size)
        rows = _passed.decode(tx.execute(query, values).fetchone()[0])
        past = [rows[place] for place in walk.through([row.seen(tx.now) for row in rows])]
        # A job of a group goes with its group, and a turn with its actor.
        gone += [row for row in past if row.whole is None]
        left -= size
        done = walk.over or len(rows) < size
    return Pruned(dict(Counter(row.state for row in gone)), walk.up_to, done), gone


def _query(kept: Retention) -> str:
    """SQL that finds the next jobs. Only jobs that ended badly have an index."""
    if JobState.SUCCEEDED in kept.states:
        return _ALL
    parts = [_IN_STATE.format(state=state) for state in sorted(kept.states)]
    return _ROWS.format(which=" UNION ALL ".join(parts))


def empty_lanes(tx: Snapshot, most: int) -> list[tuple[int]]:
    """The hashes of lanes that hold no job, as rows."""
    return tx.execute(_EMPTY_LANES, (most,)).fetchall()


def forget_lanes(tx: Transaction, most: int) -> int:
    """Removes lanes that hold no job, with the counts of what they held; answers how many."""
    found = empty_lanes(tx, most)
    tx.connection.executemany("DELETE FROM tally WHERE lane = ?", found)
    tx.connection.executemany("DELETE FROM lane WHERE hash = ?", found)
    tx.remembered.lanes.difference_update(hash for (hash,) in found)
    forget_accounts(tx)
    forget_pauses(tx)
    forget_queue_waits(tx)
    return len(found)


def gone_workers(tx: Snapshot, older_than_s: float, most: int) -> list[tuple[bytes]]:
    """The ids of workers that ended so long ago and own no job, as rows."""
    until = max(-LARGEST_INT, tx.now - round(min(older_than_s, 1e12) * 1e6))
    return tx.execute(_GONE_WORKERS, (until, most)).fetchall()


def forget_workers(tx: Transaction, older_than_s: float, most: int) -> int:
    """Removes workers that ended so long ago and own no job; answers how many."""
    found = gone_workers(tx, older_than_s, most)
    tx.connection.executemany("DELETE FROM heartbeat WHERE worker = ?", found)
    tx.connection.executemany("DELETE FROM worker WHERE id = ?", found)
    return len(found)
