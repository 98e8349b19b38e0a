"""Pruning on PostgreSQL removes jobs and workers that ended, oldest first.

A walk along `job_number` reads each job on its way, and no other. It begins after a number that the
caller remembers: removed entries stay in the index until a vacuum, and a walk from the first number
would pass them each time. Pruning skips rows that another transaction holds. So no claim, finish or
retry waits for pruning, and pruning waits for none.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import asyncpg

from longshore.core.retention import Seen, Walk
from longshore.model.job import JobState
from longshore.model.retention import Pruned, Retention
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.states import CODES, ENDED, OWNED, STATES
from longshore.store.rows import LARGEST_INT

STEP: Final = 100
PRUNING_LOCK: Final = 0x6C6F6E67_7072756E  # "longprun"
FARTHEST_S: Final = 1e9

Rows = list[asyncpg.Record]

_ALONE: Final = f"SELECT pg_advisory_xact_lock({PRUNING_LOCK})"
_COUNTS: Final = "SELECT state, sum(delta)::bigint AS n FROM longshore.tally GROUP BY state"

_PASSED: Final = """
SELECT j.id, j.number, j.token, j.state, j.group_id, j.actor_id,
    extract(epoch FROM now() - j.created_at)::float8 AS accepted_s,
    extract(epoch FROM now() - j.ended_at)::float8 AS ended_s
FROM ({which} ORDER BY number LIMIT $2) AS n
CROSS JOIN LATERAL (
    SELECT id, number, token, state, created_at, ended_at, group_id, actor_id
    FROM longshore.job
    WHERE id = n.id OFFSET 0
) AS j
ORDER BY j.number
"""
_ALL: Final = _PASSED.format(which="SELECT number, id FROM longshore.job_number WHERE number > $1")
_IN_STATE: Final = """(
    SELECT number, id FROM longshore.job
    WHERE state = {code} AND number > $1 ORDER BY number LIMIT $2
)"""

# The token is compared too: a retry in the meantime gave the job another one.
_HOLD: Final = f"""
SELECT l.*
FROM unnest($1::uuid[], $2::bigint[]) AS i (id, token)
CROSS JOIN LATERAL (
    SELECT j.id, j.number, j.lane, j.state FROM longshore.job AS j
    WHERE j.id = i.id AND j.token = i.token AND j.state >= {ENDED}
    FOR UPDATE SKIP LOCKED
) AS l
"""
DROP: Final = """
WITH numbers AS (
    DELETE FROM longshore.job_number WHERE number = ANY($2::bigint[])
),
logs AS (
    DELETE FROM longshore.log WHERE job = ANY($1::uuid[])
),
inputs AS (
    DELETE FROM longshore.job_input WHERE job = ANY($1::uuid[])
),
parts AS (
    DELETE FROM longshore.log_part WHERE job = ANY($1::uuid[]) RETURNING archive
),
-- In one order, as who pins a manifest locks it.
archives AS (
    SELECT sha256 FROM longshore.manifest WHERE sha256 = ANY (ARRAY(SELECT archive FROM parts))
    ORDER BY sha256 FOR UPDATE
),
loosened AS (
    UPDATE longshore.manifest SET loose = true
    WHERE sha256 = ANY (ARRAY(SELECT sha256 FROM archives))
)
DELETE FROM longshore.job WHERE id = ANY($1::uuid[])
"""

_FORGET: Final = f"""
WITH gone AS (
    DELETE FROM longshore.worker AS w
    -- An array: joined, the subquery might be run again for each row, with a limit of its own.
    WHERE w.id = ANY (ARRAY(
        SELECT id FROM longshore.worker AS old
        WHERE NOT alive AND ended_at <= now() - make_interval(secs => $1) AND NOT EXISTS (
            SELECT FROM longshore.job AS j WHERE j.worker = old.id AND j.state IN ({OWNED})
        )
        ORDER BY ended_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING w.id
),
silent AS (
    DELETE FROM longshore.heartbeat AS h USING gone WHERE h.worker = gone.id
)
SELECT count(*) AS n FROM gone
"""


class PostgresPruning:
    """The verbs that remove jobs and workers that ended."""

    _keeping: ConnectionPool

    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next `most` jobs after a number."""

        async def work(tx: Transaction) -> Pruned:
            walk = await _begin(tx, kept, after, dry_run)
            found, done = await _look(tx, walk, _query(kept), most)
            gone = found if dry_run else await _drop(tx, found)
            return Pruned(_by_state(gone), walk.up_to, done)

        return await self._keeping.run(work)

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        """Removes workers that ended so long ago and own no job; answers how many."""

        rows = await self._keeping.fetch(_FORGET, min(older_than_s, FARTHEST_S), most)
        count: int = rows[0]["n"]
        return count


async def _begin(tx: Transaction, kept: Retention, after: int, dry_run: bool) -> Walk:
    """Begins a walk. Two prunings that count at once would remove too much, so one waits."""
    if not kept.most:
        return Walk(kept, {}, after)
    if not dry_run:
        await tx.fetch(_ALONE)
    rows = await tx.fetch(_COUNTS)
    return Walk(kept, {STATES[row["state"]]: row["n"] for row in rows}, after)


async def _look(tx: Transaction, walk: Walk, query: str, most: int) -> tuple[Rows, bool]:
    """Finds the jobs to remove among the next `most`, a few at a time; and whether it is done."""
    gone: Rows = []
    done, left = walk.over, most
    while left > 0 and not done:
        size = min(left, STEP)
        rows = await tx.fetch(query, min(walk.up_to, LARGEST_INT), size)
        past = [rows[place] for place in walk.through([_seen(row) for row in rows])]
        # A job of a group goes with its group, the turn of an actor with its actor.
        gone += [row for row in past if row["group_id"] is None and row["actor_id"] is None]
        left -= size
        done = walk.over or len(rows) < size
    return gone, done


async def _drop(tx: Transaction, found: Rows) -> Rows:
    """Removes the jobs that no transaction holds, with all that belongs to them."""
    if not found:
        return []
    rows = await tx.fetch(_HOLD, [row["id"] for row in found], [row["token"] for row in found])
    if rows:
        await tx.fetch(DROP, [row["id"] for row in rows], [row["number"] for row in rows])
    for (lane, state), n in Counter((row["lane"], row["state"]) for row in rows).items():
        tx.count(lane, state, None, n)
    return rows


def _query(kept: Retention) -> str:
    """SQL that finds the next jobs. Only jobs that ended badly have an index."""
    if JobState.SUCCEEDED in kept.states:
        return _ALL
    parts = [_IN_STATE.format(code=CODES[state]) for state in sorted(kept.states)]
    return _PASSED.format(which=f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS part")


def _seen(row: asyncpg.Record) -> Seen:
    return Seen(row["number"], STATES[row["state"]], row["accepted_s"], row["ended_s"])


def _by_state(rows: Rows) -> dict[JobState, int]:
    return dict(Counter(STATES[row["state"]] for row in rows))
