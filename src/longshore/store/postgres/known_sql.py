"""SQL for what submits meet: jobs that are known already, holders of unique keys, lanes."""

from __future__ import annotations

from typing import Final

from longshore.store.postgres.states import ENDED

KNOWN: Final = """
SELECT i.id, l.number, l.body_hash
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT number, body_hash FROM longshore.job WHERE id = i.id OFFSET 0
) AS l
"""

HOLDERS: Final = f"""
SELECT i.kind, i.unique_key, l.id, l.number, l.group_id
FROM unnest($1::text[], $2::text[]) AS i (kind, unique_key)
CROSS JOIN LATERAL (
    SELECT id, number, group_id FROM longshore.job
    WHERE kind = i.kind AND unique_key = i.unique_key AND state < {ENDED} OFFSET 0
) AS l
"""

ADD_LANES: Final = """
INSERT INTO longshore.lane (hash, queue, kind, target)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS i (hash)
ORDER BY i.hash
ON CONFLICT DO NOTHING
"""
