"""The statements of the keeper. It locks jobs in the order of ids before it changes them."""

from __future__ import annotations

from typing import Final

from longshore.model.group import GroupState
from longshore.store.postgres.reads import CLAIMED_COLUMNS
from longshore.store.postgres.sql import NOTHING, appended, changed
from longshore.store.postgres.states import (
    CANCELLING,
    DELAYED,
    GROUP_CODES,
    LIVE,
    LIVE_BY_INDEX,
    OWNED,
    READY,
    RUNNING,
    WAITING,
    S,
    head,
)

_HELD: Final = """
    j.id, j.state, j.token, j.lane, ~j.priority AS urgency, j.rank, j.number, j.worker,
    j.failures, j.crashes, j.round, j.kind, j.unique_key, j.options, j.group_id, j.watched,
    j.blocked_on
"""
LOCK: Final = f"""
SELECT l.*
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT {_HELD} FROM longshore.job AS j WHERE j.id = i.id FOR UPDATE
) AS l
"""
LOCK_FREE: Final = LOCK.replace("FOR UPDATE", "FOR UPDATE SKIP LOCKED")
"""`LOCK` of the rows that no other transaction holds."""
LOCK_WAITING: Final = f"""
SELECT l.*
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT {_HELD}, (
        SELECT g.state FROM longshore.job_group AS g WHERE g.id = j.group_id
    ) AS group_state
    FROM longshore.job AS j WHERE j.id = i.id AND j.state = {WAITING} FOR UPDATE
) AS l
"""
"""`LOCK` of the jobs that wait for others, with the states of their groups.

It does not wait for a job that a worker owns.
"""

HOLD_WOKEN: Final = """
SELECT id, state FROM longshore.job_group WHERE id = ANY ($1::uuid[]) ORDER BY id FOR SHARE
"""

OWNED_BY: Final = f"SELECT id FROM longshore.job WHERE worker = $1 AND state IN ({OWNED})"

ORPHANED: Final = f"""
WITH RECURSIVE owner AS (
    (SELECT worker FROM longshore.job WHERE state IN ({OWNED}) ORDER BY worker LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.worker FROM longshore.job AS j
        WHERE j.state IN ({OWNED}) AND j.worker > owner.worker ORDER BY j.worker LIMIT 1
    )
    FROM owner WHERE owner.worker IS NOT NULL
)
SELECT owner.worker
FROM owner
WHERE owner.worker IS NOT NULL
    AND (SELECT alive FROM longshore.worker WHERE id = owner.worker) IS NOT TRUE
LIMIT $1
"""
"""Goes from owner to owner by the index, so that it reads one row for each."""

_APPLY: Final = """
UPDATE longshore.job AS j
SET {changed}
FROM (
    SELECT i.change, l.tid
    FROM unnest($1::uuid[], $2::integer[]) AS i (id, change)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM longshore.job WHERE id = i.id OFFSET 0) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid
"""
APPLY: Final = _APPLY.format(changed=changed(3))
REOPEN: Final = _APPLY.format(changed=changed(3, new_round=True))

OPENED_A_ROUND: Final = """
SELECT j.id
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (SELECT id, history FROM longshore.job WHERE id = i.id OFFSET 0) AS j
WHERE position($2::text IN j.history) > 0
"""

PAUSED: Final = GROUP_CODES[GroupState.PAUSED]

_PROMOTED: Final = appended(f"'{head(S.READY)}'", by=NOTHING, info=NOTHING)
PROMOTE: Final = f"""
UPDATE longshore.job AS j
SET state = {READY},
    {_PROMOTED}
FROM (
    SELECT ctid AS tid FROM longshore.job
    WHERE state = {DELAYED} AND run_at >= $2 AND run_at <= now()
        AND CASE WHEN group_id IS NULL THEN true ELSE
        (SELECT g.state <> {PAUSED} FROM longshore.job_group AS g WHERE g.id = group_id) END
    ORDER BY run_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
) AS n
WHERE j.ctid = n.tid
RETURNING j.lane, ~j.priority AS urgency, j.rank, j.number, j.run_at
"""
NEXT_DUE: Final = f"""
SELECT now() AS now, (
    SELECT extract(epoch FROM run_at - now())::float8 FROM longshore.job
    WHERE state = {DELAYED} AND run_at >= $1 ORDER BY run_at LIMIT 1
) AS seconds
"""

PAST_DEADLINE: Final = f"""
SELECT {_HELD} FROM longshore.job AS j
WHERE j.state = {READY} AND j.deadline_at <= statement_timestamp()
ORDER BY j.deadline_at
LIMIT $1
FOR UPDATE SKIP LOCKED
"""

OVERDUE: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM longshore.job AS j
WHERE j.state = {RUNNING} AND j.expires_at <= now()
ORDER BY j.expires_at LIMIT $1
"""

BEING_CANCELLED: Final = f"""
SELECT {CLAIMED_COLUMNS}
FROM longshore.worker AS w
CROSS JOIN LATERAL (
    SELECT * FROM longshore.job
    WHERE worker = w.id AND state = {CANCELLING} OFFSET 0
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
"""Waits for transactions that are giving these workers jobs."""

PLACED: Final = f"""
SELECT {CLAIMED_COLUMNS}
FROM unnest($1::uuid[], $2::bigint[]) AS i (worker, session)
CROSS JOIN LATERAL (
    SELECT * FROM longshore.job
    WHERE worker = i.worker AND state IN ({OWNED}) AND session = i.session OFFSET 0
) AS j
"""

ATTENDED: Final = """
SELECT session, alive, ended_why, info FROM longshore.worker WHERE id = $1 FOR UPDATE
"""
REGISTERED: Final = """
SELECT 1 FROM longshore.web_worker WHERE id = $1 AND worker = $2 AND ended_at IS NULL FOR SHARE
"""
"""Waits for who ends the registration of a service, and lets nobody end it meanwhile."""
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
LET_GO: Final = """
UPDATE longshore.web_worker SET gateway = NULL WHERE gateway = $1 AND ended_at IS NULL
"""
FORGET_GATEWAY: Final = "DELETE FROM longshore.web_gateway WHERE id = $1"
UNATTENDED: Final = """
SELECT 1 FROM longshore.web_worker WHERE worker = $1 AND gateway IS NULL AND ended_at IS NULL
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
"""The lock keeps a job from pruning until its entries are visible; finishes do not wait."""

PAUSE: Final = """
INSERT INTO longshore.queue (name, paused) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused
RETURNING nextval('longshore.tally_number')
"""
"""The next number of the tally is news for processes that cannot listen (see `hints`)."""

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
"""Replaces many changes by their sums. It starts after the dead rows that earlier folds left."""

_ANY_JOB: Final = """(
    SELECT queue, kind, target FROM longshore.job
    WHERE state IN ({states}){also} AND lane = t.lane LIMIT 1
)"""
_ANY_LIVE_JOB: Final = " UNION ALL ".join(
    _ANY_JOB.format(states=some, also=" AND blocked_on IS NULL" if some == str(READY) else "")
    for some in LIVE_BY_INDEX
)

ADOPT_LANES: Final = f"""
INSERT INTO longshore.lane (hash, queue, kind, target)
SELECT t.lane, j.queue, j.kind, j.target
FROM (
    SELECT lane FROM longshore.tally
    WHERE state IN ({LIVE})
    GROUP BY lane HAVING sum(delta) > 0
    OFFSET 0
) AS t
CROSS JOIN LATERAL ({_ANY_LIVE_JOB} LIMIT 1) AS j
WHERE NOT EXISTS (SELECT FROM longshore.lane AS l WHERE l.hash = t.lane)
    AND ($2::bigint[] IS NULL OR t.lane = ANY ($2))
ORDER BY t.lane
LIMIT greatest($1::bigint - (SELECT count(*) FROM longshore.lane), 0)
ON CONFLICT DO NOTHING
"""
"""Stores lanes that the tally tells of and that are not stored.

Their jobs came by `ENQUEUE`, or the lane was forgotten at the moment when its job came. $2 names
the lanes to look at; NULL means all. It stops when there are $1 lanes in all, so that an
application that makes up kinds or queues fills neither the table nor the dispatchers' memory.
"""
