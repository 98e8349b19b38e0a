"""The statements about filesets.

Locks: jobs, checkpoints, manifests, pins, then blobs, each kind by its key.
"""

from __future__ import annotations

from typing import Final

from longshore.model.fileset import BlobState
from longshore.store.postgres.states import ENDED, OWNED

_MISSING: Final = BlobState.MISSING.value
_STORED: Final = BlobState.STORED.value
_DOOMED: Final = BlobState.DOOMED.value

HOLD_ATTEMPT: Final = f"""
SELECT round FROM longshore.job WHERE id = $1 AND token = $2 AND state IN ({OWNED}) FOR SHARE
"""
"""Its end waits for the transaction, and no end that has begun lets it pass."""

TOUCH_UPLOAD: Final = """
UPDATE longshore.manifest_pin SET at = now() WHERE manifest = ANY (ARRAY(
    SELECT manifest FROM longshore.manifest_pin WHERE holder = $1 AND token = 0 ORDER BY manifest
    FOR UPDATE
)) AND holder = $1 AND token = 0
RETURNING 1
"""

PIN: Final = """
INSERT INTO longshore.manifest (sha256) VALUES ($1)
ON CONFLICT (sha256) DO UPDATE SET at = now()
"""
PIN_HOLDER: Final = """
INSERT INTO longshore.manifest_pin (manifest, holder, token) VALUES ($1, $2, $3)
ON CONFLICT (manifest, holder, token) DO UPDATE SET at = now()
"""
WANT_BLOBS: Final = f"""
INSERT INTO longshore.blob AS b (sha256, size, state, generation)
SELECT i.sha256, i.size, {_MISSING}, nextval('longshore.blob_generation')
FROM unnest($1::bytea[], $2::bigint[]) AS i (sha256, size)
ON CONFLICT (sha256) DO UPDATE SET touched_at = now(),
    state = CASE b.state WHEN {_DOOMED} THEN {_MISSING} ELSE b.state END,
    size = CASE b.state WHEN {_STORED} THEN b.size ELSE excluded.size END,
    generation = CASE b.state WHEN {_DOOMED} THEN excluded.generation ELSE b.generation END
RETURNING b.sha256, b.size, b.state, b.generation
"""
"""Takes the blobs in the order in which they are given, which is by hash."""
LIST_BLOBS: Final = """
WITH known AS MATERIALIZED (
    SELECT blob, size FROM longshore.manifest_blob
    WHERE manifest = $1 AND blob = ANY ($2::bytea[])
),
listed AS (
    INSERT INTO longshore.manifest_blob AS m (manifest, blob, size)
    SELECT $1, * FROM unnest($2::bytea[], $3::bigint[])
    ON CONFLICT (manifest, blob) DO UPDATE SET size = excluded.size WHERE m.size <> excluded.size
    RETURNING m.blob, m.size
)
UPDATE longshore.manifest SET total_bytes = total_bytes + (
    SELECT coalesce(sum(listed.size - coalesce(known.size, 0)), 0)
    FROM listed LEFT JOIN known ON known.blob = listed.blob
)
WHERE sha256 = $1 RETURNING total_bytes
"""
"""What this one says of a size counts, not what another has said before: that may be wrong."""

HOLD_BLOBS: Final = """
SELECT sha256, size, state, generation FROM longshore.blob WHERE sha256 = ANY ($1::bytea[])
ORDER BY sha256 FOR UPDATE
"""
STORED: Final = f"""
UPDATE longshore.blob AS b SET state = {_STORED}, size = i.size, touched_at = now()
FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS i (sha256, size, generation)
WHERE b.sha256 = i.sha256 AND b.generation = i.generation AND b.state = {_MISSING}
"""

HOLD_PIN: Final = """
SELECT sealed FROM longshore.manifest_pin
WHERE manifest = $1 AND holder = $2 AND token = $3 FOR UPDATE
"""
IS_WHOLE: Final = f"""
SELECT count(*) FILTER (WHERE m.blob <> $1) AS blobs,
    coalesce(bool_and(b.state = {_STORED} AND b.size = m.size), false) AS is_stored
FROM longshore.manifest_blob AS m
LEFT JOIN longshore.blob AS b ON b.sha256 = m.blob
WHERE m.manifest = $1
"""
SEAL: Final = """
UPDATE longshore.manifest_pin SET sealed = true, at = now()
WHERE manifest = $1 AND holder = $2 AND token = $3
"""

_VERSION: Final = "SELECT * FROM longshore.fileset_version"
OF_UPLOAD: Final = f"{_VERSION} WHERE maker = $1 AND round = 0 AND fileset = $2"
OF_JOB: Final = f"""
{_VERSION} WHERE maker = $1 AND fileset = $2 AND round > 0 ORDER BY round DESC LIMIT 1
"""
OF_NODE: Final = """
WITH RECURSIVE maker (job, taken_from, depth) AS (
    SELECT n.job, n.taken_from, 0 FROM longshore.node AS own
    JOIN longshore.node AS n ON n.group_id = own.group_id AND n.key = CASE
        WHEN $3 THEN regexp_replace(own.key, '[^/]*$', '') || $2 ELSE $2
    END
    WHERE own.job = $1
    UNION ALL
    SELECT j.id, n.taken_from, m.depth + 1 FROM maker AS m
    JOIN longshore.job_number AS j ON j.number = m.taken_from
    LEFT JOIN longshore.node AS n ON n.job = j.id
)
SELECT v.*, m.depth FROM maker AS m JOIN longshore.job AS j ON j.id = m.job
JOIN longshore.fileset_version AS v ON v.maker = j.id AND v.round = j.round
ORDER BY m.depth, v.fileset
"""
"""What the job with a key has made in its last round; the key may be one beside that of $1.

If a run of the group took its result over from an earlier run, that one's job made it.
"""
ONE_VERSION: Final = f"{_VERSION} WHERE fileset = $1 AND version = $2"
NEWEST: Final = f"{_VERSION} WHERE fileset = $1 AND NOT partial ORDER BY version DESC LIMIT 1"
VERSIONS: Final = f"{_VERSION} WHERE fileset = $1 AND version < $2 ORDER BY version DESC LIMIT $3"
FILESETS: Final = """
SELECT v.*, (
    SELECT count(*) FROM longshore.fileset_version AS o WHERE o.fileset = f.name
) AS versions
FROM longshore.fileset AS f
CROSS JOIN LATERAL (
    SELECT * FROM longshore.fileset_version AS o WHERE o.fileset = f.name
    ORDER BY o.version DESC LIMIT 1
) AS v
WHERE f.name > $1 ORDER BY f.name LIMIT $2
"""

FIXED: Final = f"""
{_VERSION} WHERE fileset = $3 AND version = (
    SELECT version FROM longshore.job_input
    WHERE job = $1 AND round = $2 AND fileset = $3 AND asked = $4
)
"""
FIX: Final = """
INSERT INTO longshore.job_input (job, round, fileset, asked, version) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING 1
"""

HOLD_VERSIONS: Final = """
SELECT version FROM longshore.fileset_version WHERE fileset = $1 AND version = ANY ($2::bigint[])
ORDER BY version FOR UPDATE
"""
REMOVE: Final = f"""
DELETE FROM longshore.fileset_version AS v
WHERE v.fileset = $1 AND v.version = ANY ($2::bigint[]) AND NOT EXISTS (
    SELECT FROM longshore.job_input AS i JOIN longshore.job AS j ON j.id = i.job
    WHERE i.fileset = v.fileset AND i.version = v.version
        AND j.round = i.round AND j.state < {ENDED}
) AND NOT EXISTS (
    SELECT FROM longshore.job AS m JOIN longshore.job_group AS g ON g.id = m.group_id
    WHERE m.id = v.maker AND v.round > 0 AND g.ended_at IS NULL
)
RETURNING v.version, v.manifest
"""
HOLD_MANIFESTS: Final = """
SELECT sha256 FROM longshore.manifest WHERE sha256 = ANY ($1::bytea[]) ORDER BY sha256 FOR UPDATE
"""
LOOSEN: Final = "UPDATE longshore.manifest SET loose = true WHERE sha256 = ANY ($1::bytea[])"

GENERATIONS: Final = f"""
SELECT sha256, generation FROM longshore.blob
WHERE sha256 = ANY ($1::bytea[]) AND state = {_STORED}
"""
READABLE: Final = f"""
SELECT b.sha256, b.generation FROM longshore.blob AS b
WHERE b.sha256 = ANY ($1::bytea[]) AND b.state = {_STORED} AND EXISTS (
    SELECT FROM longshore.job WHERE id = $2 AND token = $3 AND state IN ({OWNED})
) AND (
    EXISTS (
        SELECT FROM longshore.job_input AS i
        JOIN longshore.fileset_version AS v ON v.fileset = i.fileset AND v.version = i.version
        JOIN longshore.manifest_blob AS m ON m.manifest = v.manifest AND m.blob = b.sha256
        WHERE i.job = $2
    )
    OR EXISTS (
        SELECT FROM longshore.manifest_pin AS p
        JOIN longshore.manifest_blob AS m ON m.manifest = p.manifest AND m.blob = b.sha256
        WHERE p.holder = $2 AND p.token = $3
    )
    OR EXISTS (
        SELECT FROM longshore.checkpoint AS c
        JOIN longshore.manifest_blob AS m ON m.manifest = c.manifest AND m.blob = b.sha256
        WHERE c.job = $2
    )
)
"""

OLD_PINS: Final = """
SELECT manifest, holder, token FROM longshore.manifest_pin
WHERE at <= now() - make_interval(secs => $1) ORDER BY at LIMIT $2
"""
HOLD_FREE_MANIFESTS: Final = """
SELECT sha256 FROM longshore.manifest WHERE sha256 = ANY ($1::bytea[])
ORDER BY sha256 FOR UPDATE SKIP LOCKED
"""
DROP_PINS: Final = f"""
WITH old AS MATERIALIZED (
    SELECT p.manifest, p.holder, p.token, EXISTS (
        SELECT FROM longshore.job AS j
        WHERE p.token <> 0 AND j.id = p.holder AND j.token = p.token AND j.state IN ({OWNED})
    ) AS alive
    FROM unnest($1::bytea[], $2::uuid[], $3::bigint[]) AS i (manifest, holder, token)
    JOIN longshore.manifest_pin AS p
        ON p.manifest = i.manifest AND p.holder = i.holder AND p.token = i.token
    WHERE p.at <= now() - make_interval(secs => $4) AND p.manifest = ANY ($5::bytea[])
),
kept AS (
    UPDATE longshore.manifest_pin AS p SET at = now() FROM old
    WHERE old.alive AND p.manifest = old.manifest AND p.holder = old.holder AND p.token = old.token
)
DELETE FROM longshore.manifest_pin AS p USING old
WHERE NOT old.alive AND p.manifest = old.manifest AND p.holder = old.holder
    AND p.token = old.token AND p.at <= now() - make_interval(secs => $4)
RETURNING p.manifest
"""
"""Removes pins of the dead. Pins of the living count as new, so that a later look passes them."""

LOOSE_MANIFEST: Final = """
SELECT sha256 FROM longshore.manifest WHERE loose AND at <= now() - make_interval(secs => $1)
ORDER BY at LIMIT 1 FOR UPDATE SKIP LOCKED
"""
IS_NEEDED: Final = """
SELECT EXISTS (SELECT FROM longshore.fileset_version WHERE manifest = $1)
    OR EXISTS (SELECT FROM longshore.manifest_pin WHERE manifest = $1)
    OR EXISTS (SELECT FROM longshore.checkpoint WHERE manifest = $1)
    OR EXISTS (SELECT FROM longshore.log_part WHERE archive = $1) AS needed
"""
KEEP_MANIFEST: Final = "UPDATE longshore.manifest SET loose = false WHERE sha256 = $1"
UNLIST: Final = """
WITH gone AS (
    DELETE FROM longshore.manifest_blob WHERE manifest = $1 AND blob = ANY (ARRAY(
        SELECT blob FROM longshore.manifest_blob WHERE manifest = $1 ORDER BY blob LIMIT $2
    ))
    RETURNING blob, size
),
counted AS (
    UPDATE longshore.manifest SET total_bytes = total_bytes - (
        SELECT coalesce(sum(size), 0) FROM gone
    )
    WHERE sha256 = $1
)
SELECT blob FROM gone
"""
LOOSEN_BLOBS: Final = "UPDATE longshore.blob SET loose = true WHERE sha256 = ANY ($1::bytea[])"
FORGET_MANIFEST: Final = "DELETE FROM longshore.manifest WHERE sha256 = $1"

LOOSE_BLOBS: Final = f"""
SELECT sha256 FROM longshore.blob
WHERE loose AND state <> {_DOOMED} AND touched_at <= now() - make_interval(secs => $1)
ORDER BY touched_at LIMIT $2 FOR UPDATE SKIP LOCKED
"""
DOOM: Final = f"""
UPDATE longshore.blob AS b SET loose = false,
    state = CASE WHEN i.listed THEN b.state ELSE {_DOOMED} END,
    touched_at = CASE WHEN i.listed THEN b.touched_at ELSE now() END
FROM (
    SELECT sha256, EXISTS (
        SELECT FROM longshore.manifest_blob AS m WHERE m.blob = sha256
    ) AS listed
    FROM unnest($1::bytea[]) AS l (sha256)
) AS i
WHERE b.sha256 = i.sha256
RETURNING b.sha256, b.size, NOT i.listed AS doomed
"""
DOOMED: Final = f"""
SELECT sha256, size, generation FROM longshore.blob
WHERE state = {_DOOMED} AND touched_at <= now() - make_interval(secs => $1)
ORDER BY touched_at LIMIT $2
"""
FORGET_BLOBS: Final = f"""
WITH held AS MATERIALIZED (
    SELECT b.sha256 FROM longshore.blob AS b
    JOIN unnest($1::bytea[], $2::bigint[]) AS i (sha256, generation)
        ON b.sha256 = i.sha256 AND b.generation = i.generation
    WHERE b.state = {_DOOMED} ORDER BY b.sha256 FOR UPDATE OF b
)
DELETE FROM longshore.blob AS b USING held WHERE b.sha256 = held.sha256 RETURNING 1
"""
UNUSED: Final = f"""
SELECT count(*) AS blobs, coalesce(sum(b.size), 0)::bigint AS size FROM longshore.blob AS b
WHERE b.state <> {_MISSING} AND NOT EXISTS (
    SELECT FROM longshore.manifest_blob AS m WHERE m.blob = b.sha256 AND (
        EXISTS (SELECT FROM longshore.fileset_version AS v WHERE v.manifest = m.manifest)
        OR EXISTS (SELECT FROM longshore.manifest_pin AS p WHERE p.manifest = m.manifest)
        OR EXISTS (SELECT FROM longshore.checkpoint AS c WHERE c.manifest = m.manifest)
        OR EXISTS (SELECT FROM longshore.log_part AS l WHERE l.archive = m.manifest)
    )
)
"""
BIND: Final = """
WITH bound AS (
    INSERT INTO longshore.file_place (folder) VALUES ($1) ON CONFLICT DO NOTHING RETURNING folder
)
SELECT folder FROM bound UNION ALL SELECT folder FROM longshore.file_place
"""
