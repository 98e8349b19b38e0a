"""What nothing needs any more, in the SQLite store: pins of the dead, manifests, then blobs.

Who takes a version, a pin or a listing away marks what may have become free as `loose`. Only that
is looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.model.fileset import BlobRef, BlobState, Needed, StoredBlob
from longshore.store.rows import clean, earlier
from longshore.store.sqlite.checkpoints import drop_dead, has_dead
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

FARTHEST_S: Final = 1e9
UNLISTED: Final = 5_000
"""So many listings of manifests go in one transaction."""

_OLD_PINS: Final = (
    "SELECT manifest, holder, token FROM manifest_pin WHERE at <= ? ORDER BY at LIMIT ?"
)
_LOOSE: Final = "SELECT sha256 FROM manifest WHERE loose = 1 AND at <= ? ORDER BY at LIMIT ?"
_LOOSE_BLOBS: Final = """SELECT sha256, size FROM blob
    WHERE loose = 1 AND state <> 2 AND touched_at <= ? ORDER BY touched_at LIMIT ?"""


def _before(tx: Snapshot, age_s: float) -> int:
    return earlier(tx.now, min(age_s, FARTHEST_S)) or 0


def has_old(tx: Snapshot, older_than_s: float) -> bool:
    """Whether there are old pins, loose manifests, or checkpoints of the dead."""
    before = _before(tx, older_than_s)
    is_old = any(tx.execute(query, (before, 1)).fetchone() for query in (_OLD_PINS, _LOOSE))
    return is_old or has_dead(tx)


def has_loose_blobs(tx: Snapshot, older_than_s: float) -> bool:
    """Whether there are blobs to look at."""
    return tx.execute(_LOOSE_BLOBS, (_before(tx, older_than_s), 1)).fetchone() is not None


def forget_manifests(tx: Transaction, older_than_s: float, most: int = 1000) -> int:
    """Forgets pins of the dead, and manifests that nothing needs."""
    before = _before(tx, older_than_s)
    done = _drop_pins(tx, before, most) + drop_dead(tx, most)
    room = UNLISTED
    for (manifest,) in tx.execute(_LOOSE, (before, most)).fetchall():
        if room <= 0:
            break
        room -= _forget(tx, manifest, room)
        done += 1
    return done


def _drop_pins(tx: Transaction, before: int, most: int) -> int:
    """Removes pins of the dead. Those of the living count as new: a later look passes them."""
    dropped = 0
    for key in tx.execute(_OLD_PINS, (before, most)).fetchall():
        manifest, holder, token = key
        query = f"SELECT 1 FROM job WHERE id = ? AND token = ? AND state IN {OWNED_LIST}"
        of = "manifest = ? AND holder = ? AND token = ?"
        if token and tx.execute(query, (holder, token)).fetchone() is not None:
            tx.execute(f"UPDATE manifest_pin SET at = ? WHERE {of}", (tx.now, *key))
            continue
        tx.execute(f"DELETE FROM manifest_pin WHERE {of}", key)
        tx.execute("UPDATE manifest SET loose = 1 WHERE sha256 = ?", (manifest,))
        dropped += 1
    return dropped


def _forget(tx: Transaction, manifest: bytes, most: int) -> int:
    """Keeps a manifest that is needed, or removes it; answers how many listings went.

    If it lists more than so many, the rest goes later.
    """
    needed = tx.execute(
        """SELECT EXISTS (SELECT 1 FROM fileset_version WHERE manifest = ?1)
            OR EXISTS (SELECT 1 FROM manifest_pin WHERE manifest = ?1)
            OR EXISTS (SELECT 1 FROM checkpoint WHERE manifest = ?1)
            OR EXISTS (SELECT 1 FROM log_part WHERE archive = ?1)""",
        (manifest,),
    ).fetchone()[0]
    if needed:
        tx.execute("UPDATE manifest SET loose = 0 WHERE sha256 = ?", (manifest,))
        return 0
    gone = tx.execute(
        """DELETE FROM manifest_blob WHERE manifest = ?1 AND blob IN (
            SELECT blob FROM manifest_blob WHERE manifest = ?1 ORDER BY blob LIMIT ?2
        ) RETURNING blob, size""",
        (manifest, most),
    ).fetchall()
    tx.connection.executemany(
        "UPDATE blob SET loose = 1 WHERE sha256 = ?", [(blob,) for blob, _ in gone]
    )
    if len(gone) < most:
        tx.execute("DELETE FROM manifest WHERE sha256 = ?", (manifest,))
    else:
        query = "UPDATE manifest SET total_bytes = total_bytes - ? WHERE sha256 = ?"
        tx.execute(query, (sum(size for _, size in gone), manifest))
    return len(gone)


def doom_blobs(tx: Transaction, older_than_s: float, most: int = 1000) -> list[BlobRef]:
    """Dooms blobs of no manifest that nobody has touched for so long."""
    before = _before(tx, older_than_s)
    while rows := tx.execute(_LOOSE_BLOBS, (before, most)).fetchall():
        doomed = [BlobRef(sha256, size) for sha256, size in rows if not _is_listed(tx, sha256)]
        keys = [(sha256,) for sha256, _ in rows]
        tx.connection.executemany("UPDATE blob SET loose = 0 WHERE sha256 = ?", keys)
        tx.connection.executemany(
            "UPDATE blob SET state = ?, touched_at = ? WHERE sha256 = ?",
            [(BlobState.DOOMED.value, tx.now, blob.sha256) for blob in doomed],
        )
        if doomed:
            return doomed
    return []


def _is_listed(tx: Snapshot, sha256: bytes) -> bool:
    query = "SELECT 1 FROM manifest_blob WHERE blob = ? LIMIT 1"
    return tx.execute(query, (sha256,)).fetchone() is not None


def doomed_blobs(tx: Snapshot, older_than_s: float, most: int = 1000) -> list[StoredBlob]:
    """Blobs that were doomed so long ago, with the generations whose bytes can go."""
    query = """SELECT sha256, size, generation FROM blob
        WHERE state = 2 AND touched_at <= ? ORDER BY touched_at LIMIT ?"""
    return [StoredBlob(*row) for row in tx.execute(query, (_before(tx, older_than_s), most))]


def forget_blobs(tx: Transaction, gone: Sequence[Needed]) -> int:
    """The bytes of these doomed blobs are gone; answers how many nobody pinned meanwhile."""
    query = "DELETE FROM blob WHERE sha256 = ? AND generation = ? AND state = 2"
    return sum(tx.execute(query, (one.sha256, one.generation)).rowcount for one in gone)


def unused_bytes(tx: Snapshot) -> tuple[int, int]:
    """How many blobs nothing needs, and their bytes."""
    count, size = tx.execute(
        """SELECT count(*), coalesce(sum(size), 0) FROM blob AS b
        WHERE b.state <> 0 AND NOT EXISTS (
            SELECT 1 FROM manifest_blob AS m WHERE m.blob = b.sha256 AND (
                EXISTS (SELECT 1 FROM fileset_version AS v WHERE v.manifest = m.manifest)
                OR EXISTS (SELECT 1 FROM manifest_pin AS p WHERE p.manifest = m.manifest)
                OR EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.manifest = m.manifest)
                OR EXISTS (SELECT 1 FROM log_part AS l WHERE l.archive = m.manifest)
            )
        )"""
    ).fetchone()
    return count, size


def bind_folder(tx: Transaction, folder: str) -> str:
    """The id of the place where blobs lie; the first that asks sets it."""
    query = "UPDATE file_place SET folder = coalesce(folder, ?) RETURNING folder"
    bound: str = tx.execute(query, (clean(folder),)).fetchone()[0]
    return bound
