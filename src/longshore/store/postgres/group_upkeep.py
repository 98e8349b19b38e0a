"""What time brings to groups on PostgreSQL: old ones are removed, abandoned ones cancelled.

A group is removed whole, in steps. The first marks its row as gone: from then on nobody sees the
group, and nobody retries it. Each further step holds the row and removes some of its jobs; the last
one removes the row. If a process dies in between, the next step of any process goes on. The mark
stays until nothing else is left: a group that is submitted again meanwhile still finds the row.

Every step passes over rows that others hold. So nobody waits for it, and it waits for nobody.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.retention import group_bounds
from longshore.model.group import GroupState
from longshore.model.retention import GroupsPruned, Retention
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.prune import DROP, FARTHEST_S
from longshore.store.postgres.states import ENDED, GROUP_CODES
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


class PostgresGroupUpkeep:
    """The verbs that remove groups and cancel abandoned ones."""

    _keeping: ConnectionPool

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
