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
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
from msgspec import structs

from longshore.core.dependencies import Marks, Waiting
from longshore.core.examining import (
    EXAMINED,
    EndCounts,
    GroupRecord,
    NodeRecord,
    end_counts,
    examined,
)
from longshore.core.reopening import NodeState, inner_first
from longshore.core.retention import group_bounds
from longshore.model.finding import Finding
from longshore.model.group import GroupProgress, GroupState
from longshore.model.retention import GroupsPruned, Retention
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.group_retry import node_states
from longshore.store.postgres.node_pages import parents_of_n
from longshore.store.postgres.prune import DROP, FARTHEST_S
from longshore.store.postgres.recounting import (
    count_members,
    count_parents,
    hold_nodes,
    write_counters,
    write_scopes,
)
from longshore.store.postgres.states import CONDITION_OF, ENDED, GROUP_CODES, GROUP_STATES, STATES
from longshore.store.rows import ABANDONED

MOST_MARKED: Final = 100
"""How many groups one step marks as gone."""
MOST_COUNTED: Final = 1000
"""How many nodes a repair counts anew in one transaction."""
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


_EXAMINED: Final = f"""
SELECT g.state AS group_state, g.jobs, g.sweep_from IS NOT NULL AS is_swept, c.*, n.job, n.place,
    n.key, n.condition, n.unmet, n.marks, n.scope, n.open, n.scope_marks, l.state, l.kind,
    EXISTS (SELECT FROM longshore.unsettled AS u WHERE u.job = n.job) AS is_unsettled,
    {parents_of_n("place")} AS after
FROM longshore.job_group AS g
CROSS JOIN (
    SELECT coalesce(sum(ended), 0)::bigint AS ended, coalesce(sum(failed), 0)::bigint AS failed,
        coalesce(sum(cancelled), 0)::bigint AS cancelled
    FROM longshore.group_count WHERE group_id = $1
) AS c
CROSS JOIN LATERAL (SELECT * FROM longshore.node WHERE group_id = g.id OFFSET 0) AS n
CROSS JOIN LATERAL (SELECT state, kind FROM longshore.job WHERE id = n.job OFFSET 0) AS l
WHERE g.id = $1 AND NOT (g.is_gone OR g.reopening) AND g.state = ANY ($2::smallint[])
ORDER BY n.place
"""
"""All that is examined, in one statement: so all of it is of one moment."""
_COUNTED: Final = """
SELECT c.*, s.state, s.n
FROM (
    SELECT coalesce(sum(ended), 0)::bigint AS ended, coalesce(sum(failed), 0)::bigint AS failed,
        coalesce(sum(cancelled), 0)::bigint AS cancelled
    FROM longshore.group_count WHERE group_id = $1
) AS c
CROSS JOIN (
    SELECT j.state, count(*) AS n
    FROM longshore.node AS n
    CROSS JOIN LATERAL (SELECT state FROM longshore.job WHERE id = n.job OFFSET 0) AS j
    WHERE n.group_id = $1 GROUP BY j.state
) AS s
"""
"""What a group counts, and how many of its jobs are in each state: of one moment, too."""
_UNLESS_REOPENING: Final = """
SELECT FROM longshore.job_group WHERE id = $1 AND NOT reopening FOR SHARE
"""
_ONE_REPAIR: Final = "SELECT pg_advisory_xact_lock($1::bigint)"
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
        rows = await self._reading.fetch(_EXAMINED, group, _EXAMINED_CODES)
        if not rows:
            return []
        # Python's own work: a large group would stop the event loop for a second.
        wrong = await asyncio.to_thread(_examine, group, rows)
        if not (repair and wrong.findings):
            return wrong.findings
        for some in _pieces(wrong.scopes):
            await self._keeping.run(partial(_repair_scopes, group=group, jobs=some))
        # Afterwards: of a scope that closes by that, others are told like of any other.
        for some in _pieces(wrong.nodes):
            await self._keeping.run(partial(_repair_nodes, group=group, jobs=some))
        await self._keeping.run(partial(_repair_counts, group=group))
        return [structs.replace(one, repaired=True) for one in wrong.findings]


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


class _Wrong(NamedTuple):
    """What is wrong with a group."""

    findings: list[Finding]
    nodes: list[UUID]
    """Nodes with wrong counters."""
    scopes: list[UUID]
    """Nodes with wrong counters of their scopes, inner ones first."""


def _pieces(jobs: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    for at in range(0, len(jobs), MOST_COUNTED):
        yield jobs[at : at + MOST_COUNTED]


def _examine(group: UUID, rows: Sequence[asyncpg.Record]) -> _Wrong:
    counts = EndCounts(rows[0]["ended"], rows[0]["failed"], rows[0]["cancelled"])
    state, is_swept = GROUP_STATES[rows[0]["group_state"]], rows[0]["is_swept"]
    states = node_states(rows, rows[0]["jobs"])
    nodes = [_record(row, node) for row, node in zip(rows, states, strict=True)]
    found = examined(GroupRecord(group, state, is_swept, counts, nodes))
    scopes = inner_first(states, found.scopes)
    jobs = ([rows[at]["job"] for at in some] for some in (found.counters, scopes))
    return _Wrong(found.findings, *jobs)


def _record(row: asyncpg.Record, node: NodeState) -> NodeRecord:
    waiting = Waiting(CONDITION_OF[row["condition"]], row["unmet"], Marks(row["marks"]))
    scope_marks = Marks(row["scope_marks"])
    return NodeRecord(row["job"], node, waiting, row["is_unsettled"], row["open"], scope_marks)


async def _repair_nodes(tx: Transaction, group: UUID, jobs: Sequence[UUID]) -> None:
    """Counts nodes anew while nobody counts them down."""
    if await _may_repair(tx, group):
        held = await hold_nodes(tx, jobs)
        await write_counters(tx, await count_parents(tx, held))


async def _repair_scopes(tx: Transaction, group: UUID, jobs: Sequence[UUID]) -> None:
    """Counts anew what nodes have of their scopes; others hear of those that are closed by that."""
    if not await _may_repair(tx, group):
        return
    held = await hold_nodes(tx, jobs)
    counters = await count_members(tx, [job for job in jobs if job in held])
    ended = await write_scopes(tx, counters)
    for job, (left, _) in counters.items():
        if held[job]["open"] and not left and job in ended:
            tx.note(job)


async def _may_repair(tx: Transaction, group: UUID) -> bool:
    """Whether the group is not being retried; until the commit no retry begins."""
    rows = await tx.fetch(_UNLESS_REOPENING, group)
    return bool(rows)


async def _repair_counts(tx: Transaction, group: UUID) -> None:
    """Counts the ended jobs of a group anew, and has it swept.

    What ends meanwhile counts itself. Only two that repair must not do so at once.
    """
    await tx.fetch(_ONE_REPAIR, group.int & 0x7FFF_FFFF_FFFF_FFFF)
    rows = await tx.fetch(_COUNTED, group)
    states = [STATES[row["state"]] for row in rows for _ in range(row["n"])]
    counts = [rows[0][name] for name in ("ended", "failed", "cancelled")] if rows else []
    missing = [right - has for right, has in zip(end_counts(states), counts, strict=False)]
    if any(missing):
        await tx.fetch(sql.UNCOUNT, group, *missing)
    await tx.fetch(sql.LOCK_GROUP, group)
    await tx.fetch(sql.ASK_SWEEP, [group])
