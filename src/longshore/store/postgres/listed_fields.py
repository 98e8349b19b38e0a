"""The fields that actors are listed by, on PostgreSQL. A row is written when a value changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from longshore.store.postgres.connections import Transaction
from longshore.store.rows import clean

SET: Final = """
WITH new AS MATERIALIZED (
    SELECT i.* FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
        AS i (actor, type, key, field, value)
),
gone AS (
    DELETE FROM longshore.listed_field AS f
    USING (
        SELECT l.tid FROM unnest($6::bigint[]) AS i (actor)
        CROSS JOIN LATERAL (
            SELECT ctid AS tid, field FROM longshore.listed_field WHERE actor = i.actor OFFSET 0
        ) AS l
        WHERE NOT EXISTS (SELECT FROM new AS n WHERE n.actor = i.actor AND n.field = l.field)
        OFFSET 0
    ) AS o
    WHERE f.ctid = o.tid
)
INSERT INTO longshore.listed_field (actor, type, key, field, value)
SELECT n.actor, n.type, n.key, n.field, n.value FROM new AS n
LEFT JOIN LATERAL (
    SELECT value FROM longshore.listed_field
    WHERE actor = n.actor AND field = n.field OFFSET 0
) AS o ON true
WHERE o.value IS DISTINCT FROM n.value
ON CONFLICT (actor, field) DO UPDATE SET value = excluded.value
"""
"""What actors, which are locked, are listed by from now on. What is as it was is not written."""
OF: Final = """
SELECT i.actor, l.field, l.value FROM unnest($1::bigint[]) AS i (actor)
CROSS JOIN LATERAL (
    SELECT field, value FROM longshore.listed_field WHERE actor = i.actor OFFSET 0
) AS l
ORDER BY i.actor, l.field
"""

Listed = tuple[int, tuple[str, str], Mapping[str, str]]
"""The number of an actor, its type and key, and its fields with their values."""


async def keep_listed(tx: Transaction, actors: Iterable[Listed]) -> None:
    """Lists these actors by these fields, and by no others."""
    all_of = [*actors]
    rows = [
        (number, *name, clean(field), clean(value))
        for number, name, fields in all_of
        for field, value in fields.items()
    ]
    columns = zip(*rows, strict=True) if rows else ([], [], [], [], [])
    if all_of:
        await tx.fetch(SET, *map(list, columns), [number for number, _, _ in all_of])
