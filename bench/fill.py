"""Many jobs in a store at once, as if they had come through it: rows, numbers, lane and counts."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from msgspec import Struct

from bench.sql import ask
from longshore.core.lanes import lane_of
from longshore.model.job import JobState
from longshore.store.postgres.states import CODES

CHUNK = 1_000_000
ARGS = "\\x81a464617461d964" + "78" * 100

# Ids that rise with time, as submitters make them.
_ID = """(
    lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
    || '7' || substr(md5(random()::text || i), 1, 3) || '8' || substr(md5(i || 'x'), 1, 15)
)::uuid"""
_AT = "1700000000000000"
_WORKER = "019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b"

_FILL = f"""
WITH new AS (
    INSERT INTO longshore.job (
        id, lane, state, body_hash, kind, queue, target, options, args, run_at, history,
        history_length, token, attempt, worker, session, started_at, ended_at, result
    )
    SELECT {_ID}, $1, $2, i, $3, $4, '', '\\x80', '{ARGS}',
        CASE WHEN $2 = {CODES[JobState.DELAYED]} THEN timestamptz '2100-01-01' END,
        CASE WHEN e.ended
            THEN '["ready",{_AT},"",""],["running",{_AT},"{_WORKER}",""],'
                || '["succeeded",{_AT},"{_WORKER}",""]'
            ELSE '["' || $5::text || '",{_AT},"",""]' END,
        CASE WHEN e.ended THEN 3 ELSE 1 END,
        CASE WHEN e.ended THEN nextval('longshore.token') ELSE 0 END,
        CASE WHEN e.ended THEN 1 ELSE 0 END,
        CASE WHEN e.ended THEN '{_WORKER}'::uuid END,
        CASE WHEN e.ended THEN 1 END,
        CASE WHEN e.ended THEN now() END,
        CASE WHEN e.ended THEN now() END,
        CASE WHEN e.ended THEN '\\xc0'::bytea END
    FROM generate_series(1, $6::integer) AS i
    CROSS JOIN (SELECT $2 = {CODES[JobState.SUCCEEDED]} AS ended) AS e
    RETURNING number, id
), numbered AS (
    INSERT INTO longshore.job_number (number, id) SELECT number, id FROM new
)
INSERT INTO longshore.tally (lane, state, delta) SELECT $1, $2, count(*) FROM new
"""
_LANE = "INSERT INTO longshore.lane VALUES ($1, $2, $3, '') ON CONFLICT DO NOTHING"
_SETTLE = "VACUUM ANALYZE longshore.job; VACUUM ANALYZE longshore.job_number; CHECKPOINT"


_SQLITE_FILL = f"""
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :jobs)
INSERT INTO job (
    number, id, lane, state, priority, token, attempt, created_at, run_at, started_at, ended_at,
    body_hash, kind, queue, target, options, history, args, result
)
SELECT i + :before, randomblob(16), :lane, :state, 0, iif(:ended, i + :before, 0),
    iif(:ended, 1, 0), {_AT},
    iif(:state = 'delayed', 4102444800000000, NULL), iif(:ended, {_AT}, NULL),
    iif(:ended, {_AT}, NULL), i, :kind, :queue, '', x'80',
    iif(:ended, '[["ready",{_AT},"",""],["running",{_AT},"{_WORKER}",""],'
        || '["succeeded",{_AT},"{_WORKER}",""]]', '[["' || :state || '",{_AT},"",""]]'),
    x'{ARGS[2:]}', iif(:ended, x'c0', NULL)
FROM n
"""


class Filling(Struct, frozen=True):
    """So many jobs in one state; `name` says what they are."""

    name: str
    state: JobState
    jobs: int
    kind: str
    queue: str = "default"

    @property
    def lane(self) -> int:
        """The lane of all of them."""
        return lane_of(self.queue, self.kind, "").hash


def fill(url: str, filling: Filling) -> None:
    """These jobs are in a store that nobody uses, and the database has settled after it."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            _fill_file(connection, filling)
    else:
        _fill_server(url, filling)


def _fill_server(url: str, filling: Filling) -> None:
    lane, kind, queue = filling.lane, filling.kind, filling.queue
    ask(url, _LANE, lane, queue, kind)
    for start in range(0, filling.jobs, CHUNK):
        count = min(CHUNK, filling.jobs - start)
        ask(url, _FILL, lane, CODES[filling.state], kind, queue, filling.state.value, count)
    ask(url, _SETTLE)


def _fill_file(connection: sqlite3.Connection, filling: Filling) -> None:
    lane, state, jobs = filling.lane, filling.state.value, filling.jobs
    [[before]] = connection.execute("SELECT coalesce(max(number), 0) FROM job")
    values = {"jobs": jobs, "before": before, "lane": lane, "state": state, "kind": filling.kind}
    ended = filling.state is JobState.SUCCEEDED
    with connection:
        connection.execute(_SQLITE_FILL, values | {"queue": filling.queue, "ended": ended})
        names = (lane, filling.queue, filling.kind)
        connection.execute("INSERT INTO lane VALUES (?, ?, ?, '')", names)
        connection.execute("INSERT INTO tally VALUES (?, ?, ?)", (lane, state, jobs))
        connection.execute("UPDATE sequence SET number = ?1, token = ?1", (before + jobs,))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
