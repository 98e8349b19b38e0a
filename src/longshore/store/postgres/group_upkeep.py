"""What time brings to groups on PostgreSQL: old ones are removed, abandoned ones cancelled.

A group is removed whole, in steps. The first marks its row as gone: from then on nobody sees the
group, and nobody retries it. Each further step holds the row and removes some of its jobs; the last
one removes the row. If a process dies in between, the next step of any process goes on. The mark
stays until nothing else is left: a group that is submitted again meanwhile still finds the row.

Every step passes over rows that others hold. So nobody waits for it, and it waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import structs

from longshore.core.dependencies import Marks, Waiting
from longshore.core.examining import (
    EXAMINED,
    EndCounts,
    Examined,
    GroupRecord,
    NodeRecord,
    examined,
)
from longshore.core.reopening import NodeState
from longshore.core.retention import group_bounds
from longshore.model.finding import Finding
from longshore.model.group import GroupProgress, GroupState
from longshore.model.retention import GroupsPruned, Retention
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.group_retry import node_states, write_scopes
from longshore.store.postgres.prune import DROP, FARTHEST_S
from longshore.store.postgres.states import CONDITION_OF, ENDED, GROUP_CODES, GROUP_STATES
from longshore.store.rows import ABANDONED

MOST_MARKED: Final = 100
"""How many groups one step marks as gone."""
MOST_EDGES: Final = 10_000
"""How many edges one step removes: a job may have very many dependents."""

_PAST: Final = """
unnest($1::smallint[], $2::float8[]) AS b (state, seconds)
CROSS JOIN LATERAL (
    SELECT id, staged FROM longshore.job_group
    WHERE state = b.state AND ended_at IS NOT NULL AND NOT is_gone
        AND ended_at <= now() - make_interval(secs => b.seconds)
    {also}
) AS g
"""
_MARK: Final = f"""
UPDATE longshore.job_group SET is_gone = true
-- An array: joined, the subquery might be run again for each row, with a limit of its own.
WHERE id = ANY (ARRAY(
    SELECT g.id FROM {_PAST.format(also="ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED")}
))
RETURNING id
"""
_COUNT: Final = f"""
SELECT count(*) AS groups, coalesce(sum(g.staged), 0)::bigint AS jobs
FROM {_PAST.format(also="")}
"""
_NEXT_GONE: Final = """
SELECT id, number FROM longshore.job_group WHERE is_gone AND number > $1
ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_HOLD: Final = f"""
SELECT n.job, l.number, l.lane, l.state
FROM (
    SELECT job, place FROM longshore.node
    WHERE group_id = $1 ORDER BY place LIMIT $2 FOR UPDATE SKIP LOCKED
) AS n
LEFT JOIN LATERAL (
    SELECT number, lane, state FROM longshore.job
    WHERE id = n.job AND state >= {ENDED} FOR UPDATE SKIP LOCKED
) AS l ON true
"""
"""Some nodes of a group, with their jobs if nobody else holds these."""
_SOME: Final = """
WITH dropped AS (
    DELETE FROM longshore.{table} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM longshore.{table} WHERE {which} LIMIT $2
    ))
    RETURNING 1
)
SELECT count(*) AS n FROM dropped
"""
_DROP_EDGES: Final = _SOME.format(table="edge", which="parent = ANY ($1::uuid[])")
_DROP_COUNTS: Final = _SOME.format(table="group_count", which="group_id = $1")
_DROP_UNSETTLED: Final = """
DELETE FROM longshore.unsettled WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM longshore.unsettled WHERE job = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
))
"""
_DROP_NODES: Final = "DELETE FROM longshore.node WHERE job = ANY ($1::uuid[])"
_DROP_GROUP: Final = """
WITH dropped AS (
    DELETE FROM longshore.job_group AS g
    WHERE g.id = $1
        AND NOT EXISTS (SELECT FROM longshore.node WHERE group_id = g.id)
        AND NOT EXISTS (SELECT FROM longshore.group_count WHERE group_id = g.id)
    RETURNING g.id
),
retries AS (
    DELETE FROM longshore.group_retry AS r USING dropped WHERE r.group_id = dropped.id
),
runs AS (
    DELETE FROM longshore.group_run AS r USING dropped WHERE r.group_id = dropped.id
)
SELECT id FROM dropped
"""

_ABANDON: Final = f"""
UPDATE longshore.job_group
SET state = {GROUP_CODES[GroupState.CANCELLING]}, sweep_from = 0, sweep_again = true,
    cancelled_by = $3
WHERE id = ANY (ARRAY(
    SELECT id FROM longshore.job_group
    WHERE state = {GROUP_CODES[GroupState.STAGING]}
        AND staged_at <= now() - make_interval(secs => $1)
    ORDER BY staged_at LIMIT $2 FOR UPDATE SKIP LOCKED
))
RETURNING id
"""


_EXAMINED: Final = """
SELECT g.state AS group_state, g.jobs, g.sweep_from IS NOT NULL AS is_swept, c.*, n.job, n.place,
    n.key, n.condition, n.unmet, n.marks, n.scope, n.open, n.scope_marks, l.state, l.kind,
    EXISTS (SELECT FROM longshore.unsettled AS u WHERE u.job = n.job) AS is_unsettled, ARRAY(
        SELECT p.place FROM longshore.edge AS e JOIN longshore.node AS p ON p.job = e.parent
        WHERE e.child = n.job ORDER BY p.place
    ) AS after
FROM longshore.job_group AS g
CROSS JOIN (
    SELECT coalesce(sum(ended), 0)::bigint AS ended, coalesce(sum(failed), 0)::bigint AS failed,
        coalesce(sum(cancelled), 0)::bigint AS cancelled
    FROM longshore.group_count WHERE group_id = $1
) AS c
JOIN longshore.node AS n ON n.group_id = g.id
CROSS JOIN LATERAL (SELECT state, kind FROM longshore.job WHERE id = n.job OFFSET 0) AS l
WHERE g.id = $1 AND NOT g.is_gone AND g.state = ANY ($2::smallint[])
ORDER BY n.place
"""
"""All that is examined, in one statement: so all of it is of one moment."""
_EXAMINED_CODES: Final = [GROUP_CODES[state] for state in EXAMINED]


_PROGRESS: Final = """
SELECT g.id, g.number, g.state, coalesce(c.number, 0) AS mark
FROM (
    SELECT id, number, state FROM longshore.job_group
    WHERE ended_at IS NULL AND number > $1 ORDER BY number LIMIT $2
) AS g
LEFT JOIN LATERAL (
    SELECT number FROM longshore.group_count WHERE group_id = g.id ORDER BY number DESC LIMIT 1
) AS c ON true
ORDER BY g.number
"""
"""Whatever ends a job of a group adds a row of counts: the number of the last one is the mark."""


class PostgresGroupUpkeep:
    """The verbs that remove groups, cancel abandoned ones and examine them."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def prune_groups(
        self, kept: Retention, *, most: int = 1000, dry_run: bool = False
    ) -> GroupsPruned:
        """Does one step of the removal of ended groups past their bounds."""

        async def work(tx: Transaction) -> GroupsPruned:
            if dry_run:
                [row] = await tx.fetch(_COUNT, *_bounds(kept))
                return GroupsPruned(row["groups"], row["jobs"], done=True)
            jobs, did_any = await _remove_some(tx, most)
            if did_any:
                return GroupsPruned(0, jobs, done=False)
            marked = await tx.fetch(_MARK, *_bounds(kept), MOST_MARKED)
            return GroupsPruned(len(marked), 0, done=not marked)

        return await self._keeping.run(work)

    async def cancel_abandoned(self, older_than_s: float, most: int = 100) -> list[UUID]:
        """Cancels groups of which no part came for so long; answers which."""
        rows = await self._keeping.fetch(_ABANDON, min(older_than_s, FARTHEST_S), most, ABANDONED)
        return [row["id"] for row in rows]

    async def group_progress(self, after: int = 0, most: int = 1000) -> list[GroupProgress]:
        """How far groups are that have not ended: the next ones after a number."""
        rows = await self._reading.fetch(_PROGRESS, after, most)
        return [
            GroupProgress(id, number, GROUP_STATES[state], mark) for id, number, state, mark in rows
        ]

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        """What is wrong with a group that runs; with `repair`, its counts are made right."""

        async def work(tx: Transaction) -> list[Finding]:
            return await _repair(tx, group) if repair else (await _examine(tx, group))[2].findings

        return await self._keeping.run(work)


def _bounds(kept: Retention) -> tuple[list[int], list[float]]:
    bounds = group_bounds(kept)
    codes = [GROUP_CODES[state] for state in bounds]
    return codes, [min(seconds, FARTHEST_S) for seconds in bounds.values()]


async def _remove_some(tx: Transaction, most: int) -> tuple[int, bool]:
    """Removes jobs of groups that are gone; answers how many, and whether it did anything."""
    jobs = edges = after = 0
    did_any = False
    while jobs < most and edges < MOST_EDGES:
        rows = await tx.fetch(_NEXT_GONE, after)
        if not rows:
            break
        removed, cut, did = await _remove(tx, rows[0]["id"], most - jobs, MOST_EDGES - edges)
        jobs, edges, did_any = jobs + removed, edges + cut, did_any or did
        after = rows[0]["number"]
    return jobs, did_any


async def _remove(
    tx: Transaction, group: UUID, most: int, most_edges: int
) -> tuple[int, int, bool]:
    """Removes some of a group; answers how many jobs and edges, and whether it did anything."""
    rows = await tx.fetch(_HOLD, group, most)
    edges = await _count(tx, _DROP_EDGES, [row["job"] for row in rows], most_edges)
    if edges == most_edges:
        return 0, edges, True
    free = [row for row in rows if row["number"] is not None]
    if free:
        await _drop(tx, free)
    counts = await _count(tx, _DROP_COUNTS, group, most)
    over = await tx.fetch(_DROP_GROUP, group)
    return len(free), edges, bool(edges or free or counts or over)


async def _count(tx: Transaction, query: str, *values: object) -> int:
    [row] = await tx.fetch(query, *values)
    count: int = row["n"]
    return count


async def _drop(tx: Transaction, rows: list[asyncpg.Record]) -> None:
    """Removes jobs with all that belongs to them."""
    ids = [row["job"] for row in rows]
    await tx.fetch(_DROP_UNSETTLED, ids)
    await tx.fetch(_DROP_NODES, ids)
    await tx.fetch(DROP, ids, [row["number"] for row in rows])
    for (lane, state), n in Counter((row["lane"], row["state"]) for row in rows).items():
        tx.count(lane, state, None, n)


# examining


async def _examine(
    tx: Transaction, group: UUID
) -> tuple[list[asyncpg.Record], EndCounts, Examined]:
    """The nodes of a group, its counts, and what is wrong."""
    rows = await tx.fetch(_EXAMINED, group, _EXAMINED_CODES)
    if not rows:
        return [], EndCounts(0, 0, 0), Examined([], {}, EndCounts(0, 0, 0), {}, [])
    counts = EndCounts(rows[0]["ended"], rows[0]["failed"], rows[0]["cancelled"])
    state, is_swept = GROUP_STATES[rows[0]["group_state"]], rows[0]["is_swept"]
    states = node_states(rows, rows[0]["jobs"])
    nodes = [_record(row, node) for row, node in zip(rows, states, strict=True)]
    record = GroupRecord(group, state, is_swept, counts, nodes)
    return rows, counts, await asyncio.to_thread(examined, record)


def _record(row: asyncpg.Record, node: NodeState) -> NodeRecord:
    waiting = Waiting(CONDITION_OF[row["condition"]], row["unmet"], Marks(row["marks"]))
    scope_marks = Marks(row["scope_marks"])
    return NodeRecord(row["job"], node, waiting, row["is_unsettled"], row["open"], scope_marks)


async def _repair(tx: Transaction, group: UUID) -> list[Finding]:
    """Counts a group anew while nobody counts its nodes down, and has it swept."""
    await tx.fetch(sql.LOCK_GROUP, group)
    await tx.fetch(sql.HOLD_NODES, group)
    rows, counts, found = await _examine(tx, group)
    if not found.findings:
        return []
    counters = [
        (rows[at]["job"], unmet, int(marks)) for at, (unmet, marks) in found.counters.items()
    ]
    if counters:
        await tx.fetch(sql.COUNT_DOWN, *zip(*counters, strict=True))
    await write_scopes(tx, rows, found.scopes)
    for at in found.closed:
        tx.note(rows[at]["job"])
    missing = [right - has for right, has in zip(found.counts, counts, strict=True)]
    if any(missing):
        await tx.fetch(sql.UNCOUNT, group, *missing)
    await tx.fetch(sql.ASK_SWEEP, [group])
    return [structs.replace(one, repaired=True) for one in found.findings]
