"""The versions that ends publish, within the pump of the PostgreSQL store.

Before the ends are recorded, the pump looks whether each attempt has sealed what it brings. No lock
is needed for that: a seal stays for as long as its token counts. The versions are made last, after
all else that the pump locks, because two batches that publish to one fileset wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.lifecycle import TERMINAL
from longshore.core.publishing import published, without_outputs
from longshore.model.ends import End
from longshore.model.fileset import NewVersion
from longshore.model.job import Finished, Verdict
from longshore.store.postgres.connections import Transaction
from longshore.store.rows import INT64, LARGEST_INT, clean

_SEALED: Final = """
SELECT i.place, i.manifest
FROM unnest($1::integer[], $2::bytea[], $3::uuid[], $4::bigint[])
    AS i (place, manifest, holder, token)
JOIN longshore.manifest_pin AS p
    ON p.manifest = i.manifest AND p.holder = i.holder AND p.token = i.token
WHERE p.sealed
"""
_PUBLISH: Final = """
WITH made AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::text[], $2::uuid[], $3::bytea[], $4::bigint[], $5::bigint[], $6::boolean[], $7::text[]
    ) WITH ORDINALITY AS i (fileset, maker, manifest, files, total_bytes, partial, made_by, place)
),
counted AS (
    INSERT INTO longshore.fileset AS f (name, latest)
    SELECT fileset, count(*) FROM made GROUP BY fileset ORDER BY fileset
    ON CONFLICT (name) DO UPDATE SET latest = f.latest + excluded.latest
    RETURNING name, latest
)
INSERT INTO longshore.fileset_version AS v (
    fileset, version, manifest, maker, round, files, total_bytes, partial, made_by
)
SELECT m.fileset,
    c.latest - row_number() OVER (PARTITION BY m.fileset ORDER BY m.place DESC) + 1,
    m.manifest, m.maker, coalesce(
        (SELECT j.round FROM longshore.job AS j WHERE j.id = m.maker AND m.made_by IS NULL), 0
    ), m.files, m.total_bytes, m.partial, coalesce(m.made_by, '')
FROM made AS m JOIN counted AS c ON c.name = m.fileset
RETURNING v.*
"""
"""Makes versions, by fileset in the order of names. What has no job as its maker has round 0."""

_Made = tuple[UUID, NewVersion, str | None]


async def checked_versions(tx: Transaction, ends: Sequence[End]) -> Sequence[End]:
    """The ends. One that brings what its attempt has not sealed publishes nothing."""
    bringing = [(at, end) for at, end in enumerate(ends) if published(end)]
    if not bringing:
        return ends
    wanted = [
        (at, made.manifest, end.job, end.token)
        for at, end in bringing
        if end.token in INT64
        for made in published(end)
    ]
    rows = await tx.fetch(_SEALED, *zip(*wanted, strict=True)) if wanted else []
    sealed = {(row["place"], row["manifest"]) for row in rows}
    answer = list(ends)
    for at, end in bringing:
        missing = [one.fileset for one in published(end) if (at, one.manifest) not in sealed]
        if missing:
            answer[at] = without_outputs(end, missing)
    return answer


async def publish_versions(
    tx: Transaction, ends: Sequence[End], finished: Sequence[Finished]
) -> None:
    """Makes the versions of ends that were recorded, if their jobs ended by them."""
    made: dict[tuple[UUID, str], _Made] = {
        (end.job, version.fileset): (end.job, version, None)
        for end, done in zip(ends, finished, strict=True)
        if published(end) and done.verdict is Verdict.RECORDED and done.state in TERMINAL
        for version in published(end)
    }
    if made:
        await insert_versions(tx, [*made.values()])


async def insert_versions(tx: Transaction, made: Sequence[_Made]) -> list[asyncpg.Record]:
    """Makes versions: the maker of each, what it is, and who pushed it; None if a job made it."""
    rows = [
        (
            clean(version.fileset),
            maker,
            version.manifest,
            min(version.files, LARGEST_INT),
            min(version.total_bytes, LARGEST_INT),
            version.partial,
            None if by is None else clean(by),
        )
        for maker, version, by in made
    ]
    return await tx.fetch(_PUBLISH, *zip(*rows, strict=True))
