"""The statements of groups that grow on PostgreSQL: see `groups_sql` for the order of locks."""

from __future__ import annotations

from typing import Final

from longshore.model.group import GroupState
from longshore.store.postgres.states import GROUP_CODES, OWNED, READY

_RANK: Final = "CASE rank WHEN 0 THEN number ELSE rank END"
"""What a job gives to those that it adds. Jobs of earlier versions have none but their number."""

HOLD_OWNED: Final = f"""
SELECT i.place, l.state, l.round, l.group_id, l.rank
FROM (
    SELECT * FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS i (job, token, place)
    ORDER BY i.job, i.place
) AS i
CROSS JOIN LATERAL (
    SELECT state, round, group_id, {_RANK} AS rank FROM longshore.job
    WHERE id = i.job AND token = i.token AND CASE WHEN state IN ({OWNED}) THEN true END
    FOR UPDATE
) AS l
"""
"""Locks the jobs of all ends of a batch that own them, as `FINISH` does afterwards."""
HOLD_GROWING: Final = """
SELECT id, state, staged, own_limit FROM longshore.job_group
WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
"""
ADDERS: Final = """
SELECT n.job, n.key, n.place, l.place AS last
FROM unnest($1::uuid[]) AS i (job)
CROSS JOIN LATERAL (
    SELECT job, key, place, group_id FROM longshore.node WHERE job = i.job OFFSET 0
) AS n
CROSS JOIN LATERAL (
    SELECT place FROM longshore.node
    WHERE group_id = n.group_id ORDER BY group_id DESC, place DESC LIMIT 1
) AS l
"""
"""Nodes that add others, with the last place of their groups, which are locked."""
TAKEN: Final = """
SELECT i.id
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS i (group_id, key, id)
WHERE EXISTS (SELECT FROM longshore.job WHERE id = i.id)
    OR EXISTS (SELECT FROM longshore.node WHERE group_id = i.group_id AND key = i.key)
"""
"""Of the jobs that are to be added, those whose id or key another one has."""
GROW: Final = f"""
UPDATE longshore.job_group
SET staged = staged + $2, edges = coalesce(edges, $5::integer) + $4,
    sweep_from = CASE WHEN state = {GROUP_CODES[GroupState.CANCELLING]}
        THEN least(coalesce(sweep_from, $3), $3) ELSE sweep_from END
WHERE id = $1
"""
"""So many nodes with so many edges are new; $5 is how many edges there were, if that is known."""

EXPANDABLE: Final = f"""
SELECT l.*
FROM unnest($1::bigint[]) AS i (lane)
CROSS JOIN LATERAL (
    SELECT id, kind, group_id FROM longshore.job
    WHERE state = {READY} AND blocked_on IS NULL AND lane = i.lane
        AND CASE WHEN group_id IS NOT NULL THEN true END
    ORDER BY ~priority, rank, number LIMIT $2
) AS l
"""
HOLD_MAP: Final = f"""
SELECT id, state, lane, group_id, round, args, options, {_RANK} AS rank FROM longshore.job
WHERE id = $1 AND state = {READY} FOR UPDATE SKIP LOCKED
"""
HOLD_NODE: Final = "SELECT expanded FROM longshore.node WHERE job = $1 FOR UPDATE"
EXPAND: Final = """
UPDATE longshore.node SET open = open + $2, expanded = expanded + $2 WHERE job = $1
"""

GATE: Final = """
SELECT j.id, j.state, j.lane, j.group_id, j.kind, j.result
FROM (SELECT job FROM longshore.node WHERE group_id = $1 AND key = $2 OFFSET 0) AS n
CROSS JOIN LATERAL (
    SELECT id, state, lane, group_id, kind, result FROM longshore.job WHERE id = n.job FOR UPDATE
) AS j
"""
GIVE_RESULT: Final = "UPDATE longshore.job SET result = $2 WHERE id = $1"
GIVE_ARGS: Final = "UPDATE longshore.job SET args = $2 WHERE id = $1"

COUNT_SCOPES: Final = """
UPDATE longshore.node AS n
SET open = c.open
FROM (
    SELECT scope, count(*) AS open FROM longshore.node
    WHERE group_id = $1 AND scope IS NOT NULL GROUP BY scope
) AS c
WHERE n.job = c.scope
"""
SCOPES: Final = """
SELECT DISTINCT ON (n.scope) n.scope, n.key FROM longshore.node AS n
WHERE n.group_id = $1 AND n.scope IS NOT NULL ORDER BY n.scope, n.place
"""
"""The scopes of a group, each with the key of a node in it."""
SUB_GROUPS: Final = """
SELECT n.job, n.place, n.scope
FROM unnest($1::uuid[]) AS i (job)
CROSS JOIN LATERAL (
    SELECT job, place, scope FROM longshore.node WHERE job = i.job AND group_id = $2 OFFSET 0
) AS n
CROSS JOIN LATERAL (SELECT kind FROM longshore.job WHERE id = i.job OFFSET 0) AS j
WHERE j.kind = $3
"""

LEAVE: Final = """
UPDATE longshore.job SET group_id = NULL WHERE id = ANY ($1::uuid[])
"""
RETIRE: Final = """
WITH edges AS (
    DELETE FROM longshore.edge WHERE parent = ANY ($1::uuid[]) OR child = ANY ($1::uuid[])
),
nodes AS (
    DELETE FROM longshore.node WHERE job = ANY ($1::uuid[])
)
UPDATE longshore.job_group SET staged = staged - cardinality($1::uuid[]), edges = NULL
WHERE id = $2
"""
COUNT_ANEW: Final = """
UPDATE longshore.node AS n
SET open = i.open, scope_marks = i.marks, has_ended = i.has_ended,
    cause = CASE WHEN i.marks <> 0 THEN n.cause END
FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::boolean[])
    AS i (job, open, marks, has_ended)
WHERE n.job = i.job
"""
"""Gives nodes new counters of their scopes."""
FROM_THE_START: Final = """
UPDATE longshore.node SET expanded = 0, taken_from = NULL
WHERE job = ANY ($1::uuid[]) AND (expanded > 0 OR taken_from IS NOT NULL)
"""
"""Jobs run again: a map expands anew, and nothing is taken over from an earlier run."""
