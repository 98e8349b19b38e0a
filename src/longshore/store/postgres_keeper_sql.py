"""The statements of the keeper. What is changed by id is locked first, in the order of ids."""

from __future__ import annotations

from typing import Final

from longshore.model.job import JobState
from longshore.store.postgres_reads import CLAIMED_COLUMNS
from longshore.store.postgres_sql import CODES, NOTHING, appended

S = JobState

LOCK: Final = """
SELECT l.*
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT
        j.id, j.state, j.token, j.lane, ~j.priority AS urgency, j.rank, j.number, j.worker,
        j.crashes, j.kind, j.unique_key
    FROM longshore.job AS j WHERE j.id = i.id FOR UPDATE
) AS l
"""

OWNED: Final = "SELECT id FROM longshore.job WHERE worker = $1 AND state IN (3, 4)"

ORPHANED: Final = """
WITH RECURSIVE owner AS (
    (SELECT worker FROM longshore.job WHERE state IN (3, 4) ORDER BY worker LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.worker FROM longshore.job AS j
        WHERE j.state IN (3, 4) AND j.worker > owner.worker ORDER BY j.worker LIMIT 1
    )
    FROM owner WHERE owner.worker IS NOT NULL
)
SELECT j.id
FROM owner
CROSS JOIN LATERAL (
    SELECT id FROM longshore.job WHERE worker = owner.worker AND state IN (3, 4) OFFSET 0
) AS j
WHERE (SELECT alive FROM longshore.worker WHERE id = owner.worker) IS NOT TRUE
LIMIT $1
"""
"""Goes from owner to owner by the index, so that it reads one row for each live one."""

LOSE: Final = f"""
UPDATE longshore.job AS j
SET state = n.state,
    token = nextval('longshore.token'),
    crashes = n.crashes,
    error = CASE WHEN n.state <> {CODES[S.CANCELLED]} THEN coalesce(n.error, j.error) END,
    ended_at = CASE WHEN n.state >= 5 THEN statement_timestamp() END,
    worker = CASE WHEN n.state >= 5 THEN j.worker END,
    session = CASE WHEN n.state >= 5 THEN j.session END,
    expires_at = NULL,
    {appended("n.state", by=NOTHING, info="$5::text")}
FROM (
    SELECT i.*, l.tid
    FROM unnest($1::uuid[], $2::smallint[], $3::integer[], $4::bytea[])
        AS i (id, state, crashes, error)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM longshore.job WHERE id = i.id OFFSET 0) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
"""

CANCEL: Final = f"""
UPDATE longshore.job AS j
SET state = n.state,
    token = CASE WHEN n.state >= 5 THEN nextval('longshore.token') ELSE j.token END,
    ended_at = CASE WHEN n.state >= 5 THEN statement_timestamp() END,
    cancel_asked_at = statement_timestamp(),
    {appended("n.state", by="$3::text", info=NOTHING)}
FROM (
    SELECT i.state, l.tid
    FROM unnest($1::uuid[], $2::smallint[]) AS i (id, state)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM longshore.job WHERE id = i.id OFFSET 0) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
"""

_REOPENED: Final = appended(
    str(CODES[S.READY]),
    by="$2::text",
    info="""'"round ' || j.round + 1 || ', retried by ' || substr($2, 2)""",
)
REOPEN: Final = f"""
UPDATE longshore.job AS j
SET state = {CODES[S.READY]},
    token = nextval('longshore.token'),
    round = j.round + 1,
    failures = 0,
    crashes = 0,
    result = NULL,
    error = NULL,
    worker = NULL,
    session = NULL,
    started_at = NULL,
    ended_at = NULL,
    cancel_asked_at = NULL,
    {_REOPENED}
FROM (
    SELECT l.tid
    FROM unnest($1::uuid[]) AS i (id)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM longshore.job WHERE id = i.id OFFSET 0) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
"""

_PROMOTED: Final = appended(str(CODES[S.READY]), by=NOTHING, info=NOTHING)
PROMOTE: Final = f"""
UPDATE longshore.job AS j
SET state = {CODES[S.READY]},
    {_PROMOTED}
FROM (
    SELECT ctid AS tid FROM longshore.job
    WHERE state = {CODES[S.DELAYED]} AND run_at <= now()
    ORDER BY run_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
) AS n
WHERE j.ctid = n.tid
RETURNING j.lane, ~j.priority AS urgency, j.rank, j.number
"""
NEXT_DUE: Final = f"""
SELECT extract(epoch FROM run_at - now())::float8 AS seconds FROM longshore.job
WHERE state = {CODES[S.DELAYED]} ORDER BY run_at LIMIT 1
"""

OVERDUE: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM longshore.job AS j
WHERE j.state = {CODES[S.RUNNING]} AND j.expires_at <= now()
ORDER BY j.expires_at LIMIT $1
"""

BEING_CANCELLED: Final = f"""
SELECT {CLAIMED_COLUMNS}
FROM longshore.worker AS w
CROSS JOIN LATERAL (
    SELECT * FROM longshore.job
    WHERE worker = w.id AND state = {CODES[S.CANCELLING]} OFFSET 0
) AS j
WHERE w.dispatcher = $1 AND w.alive
"""

HOLD: Final = """
SELECT l.id
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT w.id FROM longshore.worker AS w WHERE w.id = i.id FOR UPDATE
) AS l
"""
"""Waits for whatever is under way that gives these workers jobs."""

PLACED: Final = f"""
SELECT {CLAIMED_COLUMNS}
FROM unnest($1::uuid[], $2::bigint[]) AS i (worker, session)
CROSS JOIN LATERAL (
    SELECT * FROM longshore.job
    WHERE worker = i.worker AND state IN (3, 4) AND session = i.session OFFSET 0
) AS j
"""

ATTENDED: Final = """
SELECT session, alive, ended_why, info FROM longshore.worker WHERE id = $1 FOR UPDATE
"""
REGISTER: Final = """
INSERT INTO longshore.worker (id, dispatcher, session, draining, info)
VALUES ($1, $2, coalesce($5::bigint, 1), $4, $3)
ON CONFLICT DO NOTHING
RETURNING session
"""
ADOPT: Final = """
UPDATE longshore.worker
SET dispatcher = $2,
    session = coalesce($5::bigint, session + 1),
    info = $3,
    draining = draining OR $4,
    attended_at = now()
WHERE id = $1
RETURNING session
"""
FOLLOW: Final = f"""
UPDATE longshore.job AS j
SET session = $2
FROM (
    SELECT l.tid
    FROM unnest($1::uuid[]) AS i (id)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM longshore.job WHERE id = i.id OFFSET 0) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
RETURNING {CLAIMED_COLUMNS}
"""
BURY: Final = """
UPDATE longshore.worker SET alive = false, ended_at = now(), ended_why = $2 WHERE id = $1
"""
DRAIN: Final = """
UPDATE longshore.worker SET draining = $2 WHERE id = $1 AND CASE WHEN alive THEN true END
RETURNING id
"""
DRAINING: Final = """
SELECT id FROM longshore.worker WHERE dispatcher = $1 AND alive AND draining
"""
BEAT: Final = """
INSERT INTO longshore.heartbeat AS h (worker, seen_at, cpu_percent, memory_percent)
SELECT i.worker, now(), i.cpu_percent, i.memory_percent
FROM unnest($2::uuid[], $3::float8[], $4::float8[]) AS i (worker, cpu_percent, memory_percent)
CROSS JOIN LATERAL (
    SELECT FROM longshore.worker
    WHERE id = i.worker AND CASE WHEN alive THEN dispatcher = $1 END OFFSET 0
) AS w
ORDER BY i.worker
ON CONFLICT (worker) DO UPDATE
SET seen_at = excluded.seen_at,
    cpu_percent = excluded.cpu_percent,
    memory_percent = excluded.memory_percent
"""

RENEW: Final = """
INSERT INTO longshore.dispatcher AS d (id, name, renewed_no) VALUES ($1, $2, 1)
ON CONFLICT (id) DO UPDATE SET renewed_no = d.renewed_no + 1, name = excluded.name
"""
RETIRE: Final = "DELETE FROM longshore.dispatcher WHERE id = $1"
FORGET: Final = f"""{RETIRE}
    AND NOT EXISTS (SELECT FROM longshore.worker WHERE dispatcher = $1 AND alive)
"""

FORGET_LANES: Final = """
DELETE FROM longshore.lane
WHERE hash = ANY (ARRAY(
    SELECT hash FROM longshore.lane
    EXCEPT
    SELECT lane FROM longshore.tally GROUP BY lane HAVING sum(delta) > 0
    LIMIT $1
))
RETURNING hash
"""

LOG: Final = """
INSERT INTO longshore.log (job, token, seq, kind, data)
SELECT i.job, i.token, i.seq, i.kind, i.data
FROM (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bytea[])
        AS i (job, token, seq, kind, data)
    ORDER BY i.job OFFSET 0
) AS i
CROSS JOIN LATERAL (
    SELECT FROM longshore.job WHERE id = i.job AND token = i.token FOR KEY SHARE
) AS l
ON CONFLICT DO NOTHING
"""
"""A job that is held so is not pruned before its entries can be seen; finishes do not mind."""

PAUSE: Final = """
INSERT INTO longshore.queue (name, paused) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused
"""
NEWS: Final = "SELECT nextval('longshore.tally_number')"

FOLD: Final = """
WITH old AS (
    DELETE FROM longshore.tally AS t
    USING (
        SELECT ctid AS tid FROM longshore.tally
        WHERE number > $1 ORDER BY number LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS n
    WHERE t.ctid = n.tid
    RETURNING t.number, t.lane, t.state, t.delta
),
new AS (
    INSERT INTO longshore.tally (lane, state, delta)
    SELECT lane, state, sum(delta)::bigint FROM old
    GROUP BY lane, state HAVING sum(delta) <> 0
)
SELECT count(*) AS folded, coalesce(max(number), $1) AS up_to FROM old
"""
"""Many changes become their sums. Folding starts after what earlier folds have left dead."""
