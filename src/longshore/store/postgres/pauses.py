"""From when to when queues and groups were paused, on PostgreSQL."""

from __future__ import annotations

from typing import Final

from longshore.model.waited import MOST_PAUSES, PAUSES_KEPT_S
from longshore.store.postgres.connections import Transaction

PAUSES_OF_JOB: Final = """
SELECT coalesce(json_agg(json_build_array(
        p.is_group,
        (extract(epoch FROM p.since) * 1000000)::bigint,
        (extract(epoch FROM p.until) * 1000000)::bigint
    )), '[]')::text
FROM (
    SELECT * FROM longshore.pause WHERE NOT is_group AND name = j.queue
    UNION ALL
    SELECT * FROM longshore.pause WHERE is_group AND name = j.group_id::text
) AS p
"""
"""SQL for the pauses of the queue of job j, and of its group, as JSON."""

PAUSED_QUEUES: Final = """
SELECT name, since FROM longshore.queue JOIN longshore.pause AS p USING (name)
WHERE queue.paused AND NOT p.is_group AND p.until IS NULL
"""
"""SQL for the queues that are paused, and since when."""

_BEGIN: Final = """
INSERT INTO longshore.pause (is_group, name, since) VALUES ($1, $2, statement_timestamp())
ON CONFLICT DO NOTHING
"""
_END: Final = """
UPDATE longshore.pause SET until = greatest(since, statement_timestamp())
WHERE is_group = $1 AND name = $2 AND until IS NULL
"""
_FORGET_OLDEST: Final = f"""
DELETE FROM longshore.pause WHERE is_group = $1 AND name = $2 AND since < (
    SELECT min(since) FROM (
        SELECT since FROM longshore.pause WHERE is_group = $1 AND name = $2
        ORDER BY since DESC LIMIT {MOST_PAUSES}
    ) AS newest
)
"""
FORGET_PAUSES: Final = f"""
DELETE FROM longshore.pause WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM longshore.pause WHERE until < now() - interval '{PAUSES_KEPT_S} s' LIMIT $1
))
"""


async def note_pause(tx: Transaction, name: str, paused: bool, *, is_group: bool = False) -> None:
    """Notes that a queue or a group, whose row is locked, is paused from now on, or no more."""
    await tx.fetch(_BEGIN if paused else _END, is_group, name)
    if paused:
        await tx.fetch(_FORGET_OLDEST, is_group, name)
