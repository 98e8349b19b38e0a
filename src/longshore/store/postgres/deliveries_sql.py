"""The statements of messages that applications send in their own transactions.

A row is inserted by an application, and removed by the dispatcher that puts the message into its
mailbox. Rows are taken by number, one dispatcher at a time: of two transactions of one sender the
later has the higher numbers, and whoever sees it sees the earlier too.
"""

from __future__ import annotations

from typing import Final

from longshore.store.postgres.actors_sql import NOW, micros

DELIVERY_LOCK: Final = 0x6C6F6E67_73656E64  # "longsend"

ENQUEUE_SENDS: Final = """
INSERT INTO longshore.enqueued_send (id, type, key, name, args, due_at)
SELECT i.id, i.type, i.key, i.name, i.args,
    statement_timestamp() + make_interval(secs => i.delay_s)
FROM (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::float8[]
    ) WITH ORDINALITY AS i (id, type, key, name, args, delay_s, place)
    ORDER BY i.place OFFSET 0
) AS i
ON CONFLICT DO NOTHING
RETURNING id
"""
"""Numbers are given in the order of the messages. One whose id is there is the same message."""

FIRST_SEND: Final = """
SELECT number FROM longshore.enqueued_send WHERE refused_at IS NULL ORDER BY number LIMIT 1
"""
ALONE: Final = f"SELECT pg_try_advisory_xact_lock({DELIVERY_LOCK}) AS alone"
SENDS: Final = f"""
SELECT s.id, s.number, s.type, s.key, s.name, s.args, s.at, {micros("s.due_at")} AS due_at,
    {NOW} AS now
FROM (
    SELECT f.*, sum(octet_length(f.args)) OVER (ORDER BY f.number) - octet_length(f.args) AS before
    FROM (
        SELECT * FROM longshore.enqueued_send WHERE refused_at IS NULL ORDER BY number LIMIT $1
    ) AS f
) AS s
WHERE s.before < $2
ORDER BY s.number
"""
DELIVERED: Final = "DELETE FROM longshore.enqueued_send WHERE id = ANY ($1::uuid[])"
REFUSED: Final = """
UPDATE longshore.enqueued_send AS s SET refused_at = statement_timestamp(), why = i.why
FROM (SELECT * FROM unnest($1::uuid[], $2::text[]) AS i (id, why) OFFSET 0) AS i
WHERE s.id = i.id
"""

UNDELIVERED: Final = """
SELECT id, type, key, name, args, at, refused_at, why FROM longshore.enqueued_send
WHERE refused_at IS NOT NULL ORDER BY refused_at, number LIMIT $1
"""
AGAIN: Final = """
UPDATE longshore.enqueued_send SET refused_at = NULL, why = ''
WHERE id = $1 AND refused_at IS NOT NULL RETURNING id
"""
DROP: Final = """
DELETE FROM longshore.enqueued_send WHERE id = $1 AND refused_at IS NOT NULL RETURNING id
"""
FORGET_REFUSED: Final = """
DELETE FROM longshore.enqueued_send AS s USING (
    SELECT ctid AS tid FROM longshore.enqueued_send
    WHERE refused_at <= statement_timestamp() - make_interval(secs => $1)
    ORDER BY refused_at LIMIT $2 FOR UPDATE SKIP LOCKED
) AS o
WHERE s.ctid = o.tid
"""
