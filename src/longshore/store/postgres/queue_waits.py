"""How long the jobs of queues waited, by cause, on PostgreSQL."""

from __future__ import annotations

from typing import Final

ADD_WAITS: Final = """
INSERT INTO longshore.queue_wait AS w (queue, cause, waited_s)
SELECT queue, cause, waited_s FROM unnest($1::text[], $2::text[], $3::float8[])
    AS i (queue, cause, waited_s)
ORDER BY queue, cause
ON CONFLICT (queue, cause) DO UPDATE SET waited_s = w.waited_s + excluded.waited_s
"""
FORGET_WAITS: Final = """
DELETE FROM longshore.queue_wait AS w WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM longshore.queue_wait AS w
    WHERE NOT EXISTS (SELECT FROM longshore.lane AS l WHERE l.queue = w.queue) LIMIT $1
))
"""
"""Of queues that hold no job any more."""
QUEUE_WAITS: Final = "SELECT queue, cause, waited_s FROM longshore.queue_wait"
