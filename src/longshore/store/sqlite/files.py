"""Filesets in the SQLite store: pins, blobs, versions, and what nothing needs any more.

The rules are those of `store.postgres.files`. Each verb is one transaction, and no other runs
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from longshore.errors import InvalidInput
from longshore.model.fileset import (
    BlobRef,
    BlobState,
    FilesetVersion,
    FilesetView,
    Holder,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.store.rows import INT64, LARGEST_INT, clean, moment, other_size
from longshore.store.sqlite.publishing import insert_version
from longshore.store.sqlite.results import whole_key
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

_VERSION: Final = """SELECT fileset, version, manifest, maker, round, files, total_bytes, partial,
    created_at, made_by FROM fileset_version"""
_NEWEST: Final = f"{_VERSION} WHERE fileset = ? AND partial = 0 ORDER BY version DESC LIMIT 1"
_ONE: Final = f"{_VERSION} WHERE fileset = ? AND version = ?"
_NODE: Final = """SELECT node.job, node.taken_from FROM job AS own
    JOIN node ON node.group_id = own.group_id AND node.key = ? WHERE own.id = ?"""
_OF_NUMBER: Final = f"""{_VERSION} WHERE maker = (SELECT id FROM job WHERE number = ?1)
    AND round = (SELECT round FROM job WHERE number = ?1) ORDER BY fileset"""
_STORED: Final = BlobState.STORED.value
_MISSING: Final = BlobState.MISSING.value


# pins


def pin(
    tx: Transaction,
    holder: Holder,
    manifest: BlobRef,
    blobs: Sequence[BlobRef],
    most_bytes: int | None = None,
) -> tuple[PinVerdict, Sequence[Needed]]:
    """Pins a manifest and lists some of its blobs; answers which must be uploaded."""
    if holder.is_attempt and not round_of(tx, holder):
        return PinVerdict.STALE, ()
    tx.execute(
        "INSERT INTO manifest (sha256, at) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET at = ?2",
        (manifest.sha256, tx.now),
    )
    tx.execute(
        """INSERT INTO manifest_pin (manifest, holder, token, at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET at = ?4""",
        (manifest.sha256, holder.id.bytes, holder.token, tx.now),
    )
    sizes = {blob.sha256: min(blob.size, LARGEST_INT) for blob in (*blobs, manifest)}
    needed = [one for key in sorted(sizes) if (one := _want(tx, key, sizes[key])) is not None]
    listed = _list(tx, manifest.sha256, sizes)
    if most_bytes is not None and listed > most_bytes:
        return PinVerdict.TOO_LARGE, ()
    return PinVerdict.DONE, needed


def _want(tx: Transaction, sha256: bytes, size: int) -> Needed | None:
    """A blob that a holder wants; None if it is stored already."""
    query = "SELECT state, generation, size FROM blob WHERE sha256 = ?"
    found = tx.execute(query, (sha256,)).fetchone()
    if found is None:
        generation = _next_generation(tx)
        tx.execute(
            "INSERT INTO blob (sha256, size, state, generation, touched_at) VALUES (?, ?, ?, ?, ?)",
            (sha256, size, _MISSING, generation, tx.now),
        )
        return Needed(sha256, generation)
    state, generation, known = found
    if state == _STORED:
        if known != size:
            raise InvalidInput(other_size(sha256, known))
        tx.execute("UPDATE blob SET touched_at = ? WHERE sha256 = ?", (tx.now, sha256))
        return None
    if state == BlobState.DOOMED:
        generation = _next_generation(tx)
    tx.execute(
        "UPDATE blob SET state = ?, generation = ?, size = ?, touched_at = ? WHERE sha256 = ?",
        (_MISSING, generation, size, tx.now, sha256),
    )
    return Needed(sha256, generation)


def _next_generation(tx: Transaction) -> int:
    query = "UPDATE file_place SET generation = generation + 1 RETURNING generation"
    generation: int = tx.execute(query).fetchone()[0]
    return generation


def _list(tx: Transaction, manifest: bytes, sizes: dict[bytes, int]) -> int:
    """Lists blobs; answers how many bytes all have that the manifest lists.

    What this one says of a size counts, not what another has said before: that may be wrong.
    """
    added = 0
    for blob, size in sizes.items():
        query = "SELECT size FROM manifest_blob WHERE manifest = ? AND blob = ?"
        known = tx.execute(query, (manifest, blob)).fetchone()
        if known is None or known[0] != size:
            query = (
                "INSERT INTO manifest_blob VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET size = ?3"
            )
            tx.execute(query, (manifest, blob, size))
            added += size - (0 if known is None else known[0])
    query = (
        "UPDATE manifest SET total_bytes = total_bytes + ? WHERE sha256 = ? RETURNING total_bytes"
    )
    total: int = tx.execute(query, (added, manifest)).fetchone()[0]
    return total


def note_stored(tx: Transaction, holder: Holder, stored: Sequence[StoredBlob]) -> PinVerdict:
    """Blobs are stored whole; incomplete if one of them must be stored anew."""
    if holder.is_attempt:
        held = bool(round_of(tx, holder))
    else:
        query = "UPDATE manifest_pin SET at = ? WHERE holder = ? AND token = 0"
        held = tx.execute(query, (tx.now, holder.id.bytes)).rowcount > 0
    if not held:
        return PinVerdict.STALE
    done = True
    for blob in stored:
        tx.execute(
            """UPDATE blob SET state = ?, size = ?, touched_at = ?
            WHERE sha256 = ? AND generation = ? AND state = ?""",
            (_STORED, blob.size, tx.now, blob.sha256, blob.generation, _MISSING),
        )
        query = "SELECT 1 FROM blob WHERE sha256 = ? AND state = ?"
        done &= tx.execute(query, (blob.sha256, _STORED)).fetchone() is not None
    return PinVerdict.DONE if done else PinVerdict.INCOMPLETE


def seal(tx: Transaction, holder: Holder, manifest: bytes, blobs: int) -> PinVerdict:
    """All blobs of a pinned manifest are listed and stored, so many."""
    if holder.is_attempt and not round_of(tx, holder):
        return PinVerdict.STALE
    key = (manifest, holder.id.bytes, holder.token)
    query = "SELECT 1 FROM manifest_pin WHERE manifest = ? AND holder = ? AND token = ?"
    if tx.execute(query, key).fetchone() is None:
        return PinVerdict.STALE
    listed, missing = tx.execute(
        """SELECT count(*) FILTER (WHERE m.blob <> ?1), count(*) FILTER (
            WHERE b.state IS NOT ?2 OR b.size <> m.size
        ) FROM manifest_blob AS m LEFT JOIN blob AS b ON b.sha256 = m.blob
        WHERE m.manifest = ?1""",
        (manifest, _STORED),
    ).fetchone()
    if missing or listed != blobs:
        return PinVerdict.INCOMPLETE
    tx.execute(
        """UPDATE manifest_pin SET sealed = 1, at = ?
        WHERE manifest = ? AND holder = ? AND token = ?""",
        (tx.now, *key),
    )
    return PinVerdict.DONE


def round_of(tx: Snapshot, holder: Holder) -> int:
    """The round of the attempt that holds; 0 if it is over."""
    if holder.token not in INT64:
        return 0
    query = f"SELECT round FROM job WHERE id = ? AND token = ? AND state IN {OWNED_LIST}"
    found = tx.execute(query, (holder.id.bytes, holder.token)).fetchone()
    return 0 if found is None else found[0]


# versions


def publish(tx: Transaction, upload: UUID, made: NewVersion, by: str) -> FilesetVersion | None:
    """Makes a version of what an upload has sealed, once; None if it has not."""
    query = f"{_VERSION} WHERE maker = ? AND round = 0 AND fileset = ?"
    if (known := _one(tx, query, upload.bytes, clean(made.fileset))) is not None:
        return known
    query = "SELECT sealed FROM manifest_pin WHERE manifest = ? AND holder = ? AND token = 0"
    pinned = tx.execute(query, (made.manifest, upload.bytes)).fetchone()
    if pinned is None or not pinned[0]:
        return None
    version = insert_version(tx, upload, 0, made, by)
    return _one(tx, _ONE, clean(made.fileset), version)


def input_version(
    tx: Transaction, holder: Holder, fileset: str, version: int | None
) -> FilesetVersion | None:
    """The version that an attempt reads, the same for all attempts of a round."""
    asked = 0 if version is None else version
    round = round_of(tx, holder)
    if not round or asked not in INT64:
        return None
    key = (holder.id.bytes, round, clean(fileset), asked)
    fixed = tx.execute(
        """SELECT version FROM job_input
        WHERE job = ? AND round = ? AND fileset = ? AND asked = ?""",
        key,
    ).fetchone()
    found = version_of(tx, fileset, version if fixed is None else fixed[0])
    if found is not None and fixed is None:
        tx.execute("INSERT INTO job_input VALUES (?, ?, ?, ?, ?)", (*key, found.version))
    return found


def version_of_job(tx: Snapshot, job: UUID, fileset: str) -> FilesetVersion | None:
    """What the last round of a job that published this fileset has made."""
    query = f"{_VERSION} WHERE maker = ? AND fileset = ? AND round > 0 ORDER BY round DESC LIMIT 1"
    return _one(tx, query, job.bytes, clean(fileset))


def versions_of_node(tx: Snapshot, job: UUID, key: str) -> list[FilesetVersion]:
    """What the job with this key, in the group of this job, has made in its last round."""
    found = tx.execute(_NODE, (whole_key(tx, job, clean(key)), job.bytes)).fetchone()
    while found is not None:
        number, taken_from = found
        if made := tx.execute(_OF_NUMBER, (number,)).fetchall():
            return [_version(row) for row in made]
        query = "SELECT ?1, (SELECT taken_from FROM node WHERE job = ?1)"
        found = None if taken_from is None else tx.execute(query, (taken_from,)).fetchone()
    return []


def listed(tx: Snapshot, after: str, most: int) -> list[FilesetView]:
    """Filesets that have versions, by name, after this one."""
    names = tx.execute(
        """SELECT f.name, count(*), max(v.version) FROM fileset AS f
        JOIN fileset_version AS v ON v.fileset = f.name
        WHERE f.name > ? GROUP BY f.name ORDER BY f.name LIMIT ?""",
        (clean(after), min(most, LARGEST_INT)),
    ).fetchall()
    views = [(_one(tx, _ONE, name, latest), count) for name, count, latest in names]
    return [FilesetView(latest=one, versions=count) for one, count in views if one is not None]


def versions(tx: Snapshot, fileset: str, before: int | None, most: int) -> list[FilesetVersion]:
    """The versions of a fileset, newest first, below this number."""
    below = LARGEST_INT if before is None else max(0, min(before, LARGEST_INT))
    query = f"{_VERSION} WHERE fileset = ? AND version < ? ORDER BY version DESC LIMIT ?"
    return [_version(row) for row in tx.execute(query, (clean(fileset), below, most))]


def version_of(tx: Snapshot, fileset: str, version: int | None) -> FilesetVersion | None:
    """One version, or the newest that is not partial."""
    if version is None:
        return _one(tx, _NEWEST, clean(fileset))
    return _one(tx, _ONE, clean(fileset), version) if version in INT64 else None


def remove_versions(tx: Transaction, fileset: str, wanted: Sequence[int]) -> list[int]:
    """Removes versions, except those that live jobs or groups may need; answers which."""
    gone = []
    for version in sorted({one for one in wanted if one in INT64}):
        row = tx.execute(
            """DELETE FROM fileset_version AS v WHERE v.fileset = ? AND v.version = ?
            AND NOT EXISTS (
                SELECT 1 FROM job_input AS i JOIN job AS j ON j.id = i.job
                WHERE i.fileset = v.fileset AND i.version = v.version
                    AND j.round = i.round AND j.ended_at IS NULL
            ) AND NOT EXISTS (
                SELECT 1 FROM job AS m JOIN job_group AS g ON g.number = m.group_id
                WHERE m.id = v.maker AND v.round > 0 AND g.ended_at IS NULL
            ) RETURNING manifest""",
            (clean(fileset), version),
        ).fetchone()
        if row is not None:
            gone.append(version)
            tx.execute("UPDATE manifest SET loose = 1 WHERE sha256 = ?", row)
    return gone


def generations(
    tx: Snapshot, blobs: Sequence[bytes], reader: Holder | None = None
) -> list[int | None]:
    """Under which generation each blob is stored, as far as the reader may know."""
    if reader is not None and not round_of(tx, reader):
        return [None] * len(blobs)
    return [_generation(tx, blob, reader) for blob in blobs]


def _generation(tx: Snapshot, blob: bytes, reader: Holder | None) -> int | None:
    query = "SELECT generation FROM blob WHERE sha256 = ? AND state = ?"
    found = tx.execute(query, (blob, _STORED)).fetchone()
    if found is None or (reader is not None and not _may_read(tx, blob, reader)):
        return None
    generation: int = found[0]
    return generation


def _may_read(tx: Snapshot, blob: bytes, reader: Holder) -> bool:
    found = tx.execute(
        """SELECT EXISTS (
            SELECT 1 FROM job_input AS i
            JOIN fileset_version AS v ON v.fileset = i.fileset AND v.version = i.version
            JOIN manifest_blob AS m ON m.manifest = v.manifest AND m.blob = ?1
            WHERE i.job = ?2
        ) OR EXISTS (
            SELECT 1 FROM manifest_pin AS p
            JOIN manifest_blob AS m ON m.manifest = p.manifest AND m.blob = ?1
            WHERE p.holder = ?2 AND p.token = ?3
        ) OR EXISTS (
            SELECT 1 FROM checkpoint AS c
            JOIN manifest_blob AS m ON m.manifest = c.manifest AND m.blob = ?1
            WHERE c.job = ?2
        )""",
        (blob, reader.id.bytes, reader.token),
    ).fetchone()
    return bool(found[0])


def _one(tx: Snapshot, query: str, *values: object) -> FilesetVersion | None:
    row = tx.execute(query, values).fetchone()
    return None if row is None else _version(row)


def _version(row: tuple[Any, ...]) -> FilesetVersion:
    fileset, version, manifest, maker, round, files, total_bytes, partial, created_at, by = row
    return FilesetVersion(
        fileset=fileset,
        version=version,
        manifest=manifest,
        files=files,
        total_bytes=total_bytes,
        created_at=moment(created_at),
        partial=bool(partial),
        job=UUID(bytes=maker) if round else None,
        round=round,
        by=by,
    )
