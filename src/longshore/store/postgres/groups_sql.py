"""The statements of groups on PostgreSQL.

Theory of the locks. A transaction that ends jobs takes its locks in this order, each kind in one
statement and by id: the jobs that workers own, then the rows of groups that grow or whose jobs run
again, then nodes, then jobs that wait. Counters change by id in a statement after the one that
locked their rows: an update that finds a row by itself may see an older version of it, and lose
what another dispatcher counted. Edges are read in a statement after the ends. `plain_ends` does all
of it in one statement, and says what else it needs for that.

Whatever else touches groups (sweeps, cancels) passes over rows that are held, and comes back. So
does a delivery that asks for a sweep. It holds the nodes of the jobs that it leaves alone: a sweep
begins after the commit that changed the group's state, and either meets those nodes held, and
begins anew, or sees what the delivery wrote.
"""

from __future__ import annotations

from typing import Final

from longshore.core.fairness import NEW
from longshore.model.group import GroupState, Near
from longshore.model.job import JobState
from longshore.store.postgres.node_pages import parents_of_n
from longshore.store.postgres.sql import (
    LEFT_S,
    MAY_TAKE,
    MOST_ENTRIES,
    NEW_NODE_ENTRY,
    started_or_ready,
)
from longshore.store.postgres.start_rules import may_start
from longshore.store.postgres.states import CODES, ENDED, GROUP_CODES, WAITING
from longshore.store.rows import NOT_RUN_LIST

ADD_GROUP: Final = """
INSERT INTO longshore.job_group (id, jobs, state, fail_fast, name, labels, watchers, own_limit)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING
"""
LOCK_GROUP: Final = """
SELECT id, number, jobs, staged, state, fail_fast, name, labels, is_gone, run_of, watchers,
    own_limit, ended_at, reopening, retries
FROM longshore.job_group WHERE id = $1 FOR UPDATE
"""
STAGED: Final = """
SELECT place, body_hash FROM longshore.node
WHERE group_id = $1 AND place >= $2 AND place < $3
"""
_ADD_NODES_FORM: Final = f"""
WITH new AS (
    INSERT INTO longshore.job (
        id, body_hash, args, unique_key, run_at, lane, priority, kind, queue, target, options,
        timeout_s, created_at, state, history, group_id, concurrency_key, fair, blocked_on{{also}}
    )
    SELECT
        n.id, n.body_hash, n.args, n.unique_key, n.run_at,
        ($8::bigint[])[n.shape], ($9::smallint[])[n.shape], ($10::text[])[n.shape],
        ($11::text[])[n.shape], ($12::text[])[n.shape], ($13::bytea[])[n.shape],
        ($14::float8[])[n.shape], statement_timestamp(), {WAITING}, {NEW_NODE_ENTRY},
        $16::uuid, n.keys, n.fair, CASE WHEN n.fair IS NOT NULL THEN '{NEW}' END{{rank}}
    FROM unnest(
        $1::uuid[], $2::bigint[], $3::bytea[], $4::integer[], $5::text[], $6::timestamptz[],
        $7::float8[], $23::text[], $24::text[]{{ranks}}
    ) AS n (id, body_hash, args, shape, unique_key, run_at, delay_s, keys, fair{{also}})
    ON CONFLICT DO NOTHING
    RETURNING id, number, lane
),
numbered AS (
    INSERT INTO longshore.job_number (number, id) SELECT number, id FROM new
),
nodes AS (
    INSERT INTO longshore.node (
        job, group_id, body_hash, delay_s, place, unmet, condition, key, expires_s, scope
    )
    SELECT i.job, $16::uuid, i.body_hash, i.delay_s, i.place, i.unmet, i.condition, i.key,
        ($15::float8[])[i.shape], i.scope
    FROM unnest(
        $1::uuid[], $17::bigint[], $7::float8[], $18::integer[], $19::integer[], $20::smallint[],
        $21::text[], $4::integer[], $22::uuid[]
    ) AS i (job, body_hash, delay_s, place, unmet, condition, key, shape, scope)
)
SELECT lane, count(*) AS n FROM new GROUP BY lane
"""
ADD_NODES: Final = _ADD_NODES_FORM.format(also="", rank="", ranks="")
"""Nodes that are submitted: their rank is their number, by the default of the column."""
ADD_RANKED_NODES: Final = _ADD_NODES_FORM.format(
    also=", rank", rank=", n.rank", ranks=", $25::bigint[]"
)
"""Nodes that are added later, and take the rank of another."""
ADD_EDGES: Final = """
INSERT INTO longshore.edge (parent, child)
SELECT * FROM unnest($1::uuid[], $2::uuid[])
"""
NOW_STAGED: Final = f"""
UPDATE longshore.job_group
SET staged = staged + $2, staged_at = statement_timestamp(), state = $3::smallint,
    ended_at = CASE
    WHEN $3::smallint >= {ENDED} THEN statement_timestamp() END
WHERE id = $1
"""

REACHED: Final = f"""
SELECT c.child, c.parents, c.inside, c.is_own, n.condition, n.unmet, n.marks, n.group_id,
    coalesce(extract(epoch FROM j.run_at - statement_timestamp())::float8, n.delay_s) AS delay_s,
    n.expires_s, j.state < {ENDED} AS is_live, n.open, n.scope_marks, n.cause, n.has_ended,
    j.lane, j.queue, j.kind, ~j.priority AS urgency, j.rank, j.number,
    octet_length(j.args) AS size
FROM (
    SELECT e.child,
        coalesce(array_agg(e.place) FILTER (WHERE e.role = 0), '{{}}') AS parents,
        coalesce(array_agg(e.place) FILTER (WHERE e.role = 1), '{{}}') AS inside,
        bool_or(e.role = 2) AS is_own
    FROM (
        SELECT i.place::integer AS place, l.child, l.role
        FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS i (parent, after_child, place)
        CROSS JOIN LATERAL (
            (
                SELECT child, 0 AS role FROM longshore.edge
                WHERE parent = i.parent AND (i.after_child IS NULL OR child > i.after_child)
                ORDER BY child LIMIT $3
            )
            UNION ALL
            SELECT scope, 1 FROM longshore.node
            WHERE job = i.parent AND scope IS NOT NULL AND i.after_child IS NULL
        ) AS l
        UNION ALL
        SELECT NULL, o.job, 2 FROM unnest($4::uuid[]) AS o (job)
    ) AS e
    GROUP BY e.child
    ORDER BY e.child
) AS c
CROSS JOIN LATERAL (
    SELECT run_at, state, lane, queue, kind, priority, rank, number, args
    FROM longshore.job WHERE id = c.child OFFSET 0
) AS j
CROSS JOIN LATERAL (
    SELECT condition, unmet, marks, group_id, delay_s, expires_s, open, scope_marks, cause,
        has_ended
    FROM longshore.node WHERE job = c.child FOR UPDATE
) AS n
"""
"""Locks the nodes that depend on these, at most $3 of each, and those whose scopes they are in.

Also the nodes $4, which are told of their own ends.
"""

COUNT_DOWN: Final = """
UPDATE longshore.node AS n
SET unmet = i.unmet, marks = i.marks
FROM unnest($1::uuid[], $2::integer[], $3::smallint[]) AS i (job, unmet, marks)
WHERE n.job = i.job
"""
TELL_SCOPES: Final = """
UPDATE longshore.node AS n
SET open = i.open, scope_marks = i.marks, cause = i.cause, has_ended = i.has_ended
FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::bytea[], $5::boolean[])
    AS i (job, open, marks, cause, has_ended)
WHERE n.job = i.job
"""
WAKE: Final = f"""
WITH counted AS (
    {COUNT_DOWN.strip()}
),
may AS MATERIALIZED (
    SELECT {MAY_TAKE.format(workers="$8", sessions="$9", dispatcher="$10")} AS slots, ARRAY(
        SELECT {may_start("i.queue", "i.kind")}
        FROM unnest($11::text[], $13::text[]) WITH ORDINALITY AS i (queue, kind, place)
        ORDER BY i.place
    ) AS queues
),
held AS MATERIALIZED (
    SELECT l.*, CASE
        WHEN (SELECT slots FROM may)[i.slot] AND (SELECT queues FROM may)[i.queue]
            AND l.concurrency_key IS NULL AND l.history_length < {MOST_ENTRIES - 1}
        THEN i.slot END AS slot, i.deadline_s
    FROM unnest($4::uuid[], $5::integer[], $6::integer[], $7::float8[])
        AS i (id, slot, queue, deadline_s)
    CROSS JOIN LATERAL (
        SELECT j.id, j.group_id, j.history_length, j.concurrency_key, (
            SELECT g.state FROM longshore.job_group AS g WHERE g.id = j.group_id
        ) AS group_state
        FROM longshore.job AS j
        WHERE j.id = i.id AND CASE WHEN j.state = {WAITING} THEN true END FOR UPDATE
    ) AS l
),
woken AS (
    UPDATE longshore.job AS j
    SET {started_or_ready("h.slot", "h.deadline_s", "$8", "$9", "$12")}
    FROM held AS h
    WHERE j.id = h.id AND h.group_state = {GROUP_CODES[GroupState.RUNNING]}
    RETURNING j.group_id, h.slot, j.lane, ~j.priority AS urgency, j.rank, j.id, j.number, j.token,
        j.kind, CASE WHEN h.slot IS NOT NULL THEN j.args END AS args, j.options, j.attempt,
        j.failures, j.crashes, {LEFT_S}, j.round
)
SELECT * FROM woken
UNION ALL
SELECT h.group_id, {", ".join(["NULL"] * 15)} FROM held AS h
WHERE h.group_state <> {GROUP_CODES[GroupState.RUNNING]}
"""
"""Counts nodes down, and makes the jobs that wait for nothing more ready, or starts them.

A job starts that has a slot, if its worker and its queue allow that, and it has no limits. Groups
that let nothing begin it answers without a job. `REACHED` has locked the nodes before.
"""
ASK_SWEEP: Final = """
UPDATE longshore.job_group SET sweep_from = 0, sweep_again = true
WHERE id = ANY (ARRAY(
    SELECT id FROM longshore.job_group
    WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED
))
"""
"""Passes over groups that others hold: see the theory above."""
NODE_KEYS: Final = "SELECT job, key FROM longshore.node WHERE job = ANY ($1::uuid[])"
OVERFLOW: Final = """
INSERT INTO longshore.unsettled (job, after_child, is_early)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::boolean[])
"""

TAKE_UNSETTLED: Final = """
DELETE FROM longshore.unsettled AS u
USING (
    SELECT ctid AS tid FROM longshore.unsettled ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED
) AS n
WHERE u.ctid = n.tid
RETURNING u.job, u.after_child, u.is_early
"""
PARENTS: Final = """
SELECT i.job, l.group_id, l.number, l.state, l.error, i.after_child, i.is_early, n.open,
    n.scope_marks, n.cause
FROM unnest($1::uuid[], $2::uuid[], $3::boolean[]) AS i (job, after_child, is_early)
CROSS JOIN LATERAL (
    SELECT group_id, number, state, error FROM longshore.job WHERE id = i.job OFFSET 0
) AS l
CROSS JOIN LATERAL (
    SELECT open, scope_marks, cause FROM longshore.node WHERE job = i.job OFFSET 0
) AS n
"""

NEXT_SWEEP: Final = """
SELECT id, state, sweep_from, sweep_again, cancelled_by, reopening FROM longshore.job_group
WHERE sweep_from IS NOT NULL ORDER BY reopening, number LIMIT 2 FOR UPDATE SKIP LOCKED
"""
HELD_SWEEPS: Final = """
SELECT id FROM longshore.job_group WHERE sweep_from IS NOT NULL ORDER BY reopening, number LIMIT 2
"""
"""Groups to sweep, when others hold all of them: plain ends do for a moment, by a shared lock."""
SWEPT_NODES: Final = f"""
SELECT i.job, i.place, n.condition, n.unmet, n.marks, n.expires_s, l.state, coalesce(
    extract(epoch FROM l.run_at - statement_timestamp())::float8, n.delay_s
) AS delay_s
FROM (
    SELECT job, place FROM longshore.node
    WHERE group_id = $1 AND place >= $2 AND ($4::boolean OR unmet = 0 OR marks <> 0)
    ORDER BY place LIMIT $3
) AS i
CROSS JOIN LATERAL (
    SELECT state, run_at FROM longshore.job WHERE id = i.job OFFSET 0
) AS l
LEFT JOIN LATERAL (
    SELECT condition, unmet, marks, delay_s, expires_s FROM longshore.node
    WHERE job = i.job AND l.state < {ENDED} FOR UPDATE SKIP LOCKED
) AS n ON true
ORDER BY i.place
"""
"""Nodes from a place on, those of live jobs locked. A node without a condition is held by another.

An ended job needs nothing. Without $4 it passes over nodes that wait for others and have heard of
nothing bad: no wake can concern these. Who counts one down meanwhile wakes it, or asks for a sweep.
"""
FIRST_FAILED: Final = f"""
SELECT DISTINCT ON (i.child) i.child, n.job, n.group_id, n.key, j.number, j.state, j.error,
    n.scope_marks, n.cause, n.open > 0 OR j.state < {ENDED} AS is_early
FROM unnest($1::uuid[]) AS i (child)
CROSS JOIN LATERAL (SELECT parent FROM longshore.edge WHERE child = i.child OFFSET 0) AS e
JOIN longshore.node AS n ON n.job = e.parent
JOIN longshore.job AS j ON j.id = e.parent
WHERE n.scope_marks & $2 <> 0 OR (n.open = 0 AND j.state = ANY ($3))
ORDER BY i.child, j.number
"""
"""For each job, the first among those it depends on that failed or was cancelled, or what is in it.
"""
SWEEP_ON: Final = """
UPDATE longshore.job_group SET sweep_from = $2, sweep_again = $3 WHERE id = $1
"""

_SUMS: Final = """
SELECT g.id, g.state, g.staged, g.fail_fast, g.cancelled_by, c.*
FROM {which} AS g
CROSS JOIN LATERAL (
    SELECT coalesce(sum(ended), 0)::bigint AS ended, coalesce(sum(failed), 0)::bigint AS failed,
        coalesce(sum(cancelled), 0)::bigint AS cancelled
    FROM longshore.group_count WHERE group_id = g.id
) AS c
WHERE c.ended >= g.staged OR (g.fail_fast AND c.failed > 0 AND g.state = $1::smallint)
"""
_LIVE: Final = """(
    SELECT * FROM longshore.job_group
    WHERE ended_at IS NULL AND state > $2::smallint AND ($3::uuid[] IS NULL OR id = ANY ($3))
        AND NOT reopening
)"""
MAY_BE_OVER: Final = f"{_SUMS.format(which=_LIVE)}ORDER BY g.number LIMIT $4"
"""At most $4 of those that may be over: groups that go on must not hide younger ones."""
HOLD_GROUPS: Final = """
SELECT id FROM longshore.job_group
WHERE id = ANY ($1::uuid[]) AND ended_at IS NULL ORDER BY id FOR UPDATE SKIP LOCKED
"""
ARE_OVER: Final = _SUMS.format(
    which="(SELECT * FROM longshore.job_group WHERE id = ANY ($2::uuid[]) AND NOT reopening)"
)
_NOTICE: Final = """
INSERT INTO longshore.notice (subject, is_group, round, state, options)
SELECT id, true, round, state, watchers FROM {groups} WHERE watchers IS NOT NULL
"""
NOTE_WATCHED: Final = f"{_NOTICE.format(groups='longshore.job_group')} AND id = ANY ($1::uuid[])"
CLOSE: Final = f"""
WITH closed AS (
    UPDATE longshore.job_group AS g
    SET state = i.state, ended_at = statement_timestamp(), sweep_from = NULL
    FROM unnest($1::uuid[], $2::smallint[]) AS i (id, state)
    WHERE g.id = i.id
    RETURNING g.id, g.round, g.state, g.watchers
)
{_NOTICE.format(groups="closed").strip()}
RETURNING subject
"""
"""Ends groups, and notes those that are watched; answers the latter."""
CANCEL_ALL: Final = """
UPDATE longshore.job_group SET state = $2, sweep_from = 0, sweep_again = true
WHERE id = ANY ($1::uuid[])
"""
CANCEL_GROUP: Final = """
UPDATE longshore.job_group SET state = $2, cancelled_by = $3,
    sweep_from = CASE WHEN state = $2 THEN coalesce(sweep_from, 0) ELSE 0 END,
    sweep_again = sweep_again OR state <> $2 OR sweep_from IS NULL
WHERE id = $1 AND ended_at IS NULL
RETURNING id
"""

PAUSE_GROUP: Final = """
UPDATE longshore.job_group SET state = $2,
    sweep_from = CASE WHEN state = $2 THEN coalesce(sweep_from, 0) ELSE 0 END,
    sweep_again = sweep_again OR state <> $2 OR sweep_from IS NULL
WHERE id = $1 AND state = ANY ($3::smallint[])
RETURNING id
"""
"""A repeat leaves a sweep that is under way where it is."""
IS_SWEEPING: Final = """
SELECT sweep_from IS NOT NULL AS sweeping FROM longshore.job_group
WHERE {key} = $1 AND NOT is_gone
"""

RETRIED_GROUP: Final = """
SELECT id, staged, reopening FROM longshore.job_group WHERE {key} = $1 AND NOT is_gone
"""
RETRIED: Final = "SELECT reopened, retired FROM longshore.group_retry WHERE request = $1"
NOTE_RETRY: Final = """
INSERT INTO longshore.group_retry (request, group_id, reopened, retired) VALUES ($1, $2, $3, $4)
"""
HOLD_UNSETTLED: Final = """
SELECT count(*) FROM (
    SELECT FROM longshore.unsettled AS u
    CROSS JOIN LATERAL (
        SELECT FROM longshore.node WHERE job = u.job AND group_id = $1 OFFSET 0
    ) AS n
    ORDER BY u.number FOR UPDATE OF u
) AS held
"""
"""Waits for those who are delivering these notes: they hold a note before they hold nodes."""
HOLD_NODES: Final = """
SELECT count(*) FROM (
    SELECT FROM longshore.node WHERE group_id = $1 ORDER BY job FOR UPDATE
) AS held
"""
"""Waits for those who are counting these nodes down."""
NODE_STATES: Final = f"""
SELECT n.place, n.job, n.key, n.scope, l.state, l.kind, {parents_of_n("place")} AS after
FROM longshore.node AS n
CROSS JOIN LATERAL (SELECT state, kind FROM longshore.job WHERE id = n.job OFFSET 0) AS l
WHERE n.group_id = $1
ORDER BY n.place
"""
FORGET_UNSETTLED: Final = """
DELETE FROM longshore.unsettled AS u
WHERE EXISTS (SELECT FROM longshore.node WHERE job = u.job AND group_id = $1 OFFSET 0)
"""
UNCOUNT: Final = """
INSERT INTO longshore.group_count (group_id, ended, failed, cancelled) VALUES ($1, $2, $3, $4)
"""
RUN_AGAIN: Final = """
UPDATE longshore.job_group
SET state = $2, round = round + CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END, ended_at = NULL,
    cancelled_by = '', sweep_from = 0, sweep_again = true, retries = retries + 1
WHERE id = $1
"""

_SHOWN: Final = """
SELECT id, number, name, state, greatest(jobs, staged) AS jobs, fail_fast, labels, created_at,
    ended_at, cancelled_by, run_of, round, watchers, own_limit AS "limit"
FROM longshore.job_group
"""
GROUP_BY_ID: Final = f"{_SHOWN} WHERE id = $1 AND NOT is_gone"
GROUP_BY_NUMBER: Final = f"{_SHOWN} WHERE number = $1 AND NOT is_gone"
LIST_GROUPS: Final = f"""{_SHOWN}
WHERE ($1::smallint[] IS NULL OR state = ANY ($1)) AND ($2::text IS NULL OR name = $2)
    AND number < $3 AND NOT is_gone
ORDER BY number DESC LIMIT $4
"""
GROUP_COUNTS: Final = f"""
SELECT l.state, count(*) AS n, count(n.taken_from) AS taken, count(*) FILTER (
    WHERE n.open > 0 AND l.state = {CODES[JobState.SUCCEEDED]} AND l.kind IN ({NOT_RUN_LIST})
) AS open
FROM longshore.node AS n
CROSS JOIN LATERAL (SELECT state, kind FROM longshore.job WHERE id = n.job OFFSET 0) AS l
WHERE n.group_id = $1 GROUP BY l.state
"""
"""How many jobs of a group are in each state, and maps and sub-groups that run on in theirs."""
NODE_FACTS: Final = """
SELECT n.key, n.group_id, n.condition, n.unmet, n.taken_from, (
    SELECT count(*) FROM longshore.edge AS e WHERE e.child = n.job
) AS after
FROM longshore.node AS n WHERE n.job = $1
"""
WAITS_FOR: Final = f"""
SELECT p.key, j.state
FROM (SELECT parent FROM longshore.edge WHERE child = $1 OFFSET 0) AS e
CROSS JOIN LATERAL (
    SELECT key, place, open FROM longshore.node WHERE job = e.parent OFFSET 0
) AS p
CROSS JOIN LATERAL (SELECT state FROM longshore.job WHERE id = e.parent OFFSET 0) AS j
WHERE (j.state < {ENDED} OR p.open > 0)
ORDER BY p.place LIMIT $2
"""
_NODE_VIEW: Final = f"""
SELECT n.key, n.job, l.number, l.kind, l.state, n.condition, n.unmet, n.open, n.taken_from, (
    SELECT s.key FROM longshore.node AS s WHERE s.job = n.scope
) AS scope, {parents_of_n("key")} AS after"""
NODES: Final = f"""{_NODE_VIEW}
FROM longshore.node AS n
CROSS JOIN LATERAL (SELECT number, kind, state FROM longshore.job WHERE id = n.job OFFSET 0) AS l
WHERE n.group_id = $1 AND n.place >= (
    SELECT CASE
        WHEN g.staged > (
            SELECT place FROM longshore.node WHERE group_id = $1 ORDER BY place DESC LIMIT 1
        ) THEN $2::integer + 1
        ELSE (
            SELECT place FROM longshore.node
            WHERE group_id = $1 ORDER BY place OFFSET $2::integer + 1 LIMIT 1
        ) END
    FROM longshore.job_group AS g WHERE g.id = $1 AND NOT g.is_gone
)
ORDER BY n.place LIMIT $3
"""
"""The nodes after the first $2 + 1. Their places have gaps once some have left the group."""
NODES_NEAR: Final = f"""{_NODE_VIEW}
FROM (
    SELECT o.* FROM (SELECT DISTINCT i.job FROM ({{near}}) AS i (job)) AS i
    CROSS JOIN LATERAL (
        SELECT * FROM longshore.node WHERE job = i.job AND group_id = $1 OFFSET 0
    ) AS o
    ORDER BY o.place LIMIT $3
) AS n
CROSS JOIN LATERAL (SELECT number, kind, state FROM longshore.job WHERE id = n.job OFFSET 0) AS l
WHERE EXISTS (SELECT FROM longshore.job_group WHERE id = $1 AND NOT is_gone)
ORDER BY n.place
"""
NEAR: Final = {
    Near.THESE: "SELECT unnest($2::uuid[])",
    Near.AFTER: "SELECT parent FROM longshore.edge WHERE child = ANY ($2::uuid[])",
    Near.DEPENDENTS: "SELECT child FROM longshore.edge WHERE parent = ANY ($2::uuid[])",
}
"""SQL that selects the jobs that are near those in $2."""
RESULTS: Final = """
SELECT i.job, i.key, j.state, j.size, CASE
    WHEN sum(j.size) OVER (PARTITION BY i.job) <= $3 THEN (
        SELECT result FROM longshore.job WHERE id = j.id
    ) END AS result
FROM unnest($1::uuid[], $2::text[]) AS i (job, key)
CROSS JOIN LATERAL (
    SELECT group_id, CASE WHEN i.key LIKE './%'
        THEN regexp_replace(key, '[^/]*$', '') || substr(i.key, 3) ELSE i.key END AS wanted
    FROM longshore.node WHERE job = i.job OFFSET 0
) AS own
CROSS JOIN LATERAL (
    SELECT job, place FROM longshore.node
    WHERE group_id = own.group_id AND key = own.wanted
    UNION ALL
    SELECT m.job, m.place
    FROM (
        SELECT job FROM longshore.node
        WHERE own.wanted LIKE '%/*' AND group_id = own.group_id
            AND key = left(own.wanted, -2) OFFSET 0
    ) AS map
    CROSS JOIN LATERAL (
        SELECT job, place FROM longshore.node
        WHERE group_id = own.group_id AND scope = map.job OFFSET 0
    ) AS m
) AS other
CROSS JOIN LATERAL (
    SELECT id, state, coalesce(octet_length(result), 0) AS size
    FROM longshore.job WHERE id = other.job OFFSET 0
) AS j
ORDER BY i.job, i.key, other.place
"""
"""What the jobs with these keys have come to; no results where they take more than $3 bytes.

A key that begins with `./` lies beside the job's own. One that ends in `/*` means all nodes in the
scope of the node with that key.
"""

WORKERS_OF: Final = "SELECT id, worker FROM longshore.job WHERE id = ANY ($1::uuid[])"
"""Which workers had these jobs last."""
