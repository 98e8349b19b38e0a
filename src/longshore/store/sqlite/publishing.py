"""The versions that ends publish, within the pump of the SQLite store."""

from __future__ import annotations

from uuid import UUID

from longshore.core.publishing import published, without_outputs
from longshore.model.ends import End
from longshore.model.fileset import NewVersion
from longshore.store.rows import LARGEST_INT, clean
from longshore.store.sqlite.transaction import Transaction


def checked_versions(tx: Transaction, end: End) -> End:
    """The end. One that brings what its attempt has not sealed publishes nothing."""
    query = """SELECT 1 FROM manifest_pin
        WHERE manifest = ? AND holder = ? AND token = ? AND sealed = 1"""
    missing = [
        made.fileset
        for made in published(end)
        if tx.execute(query, (made.manifest, end.job.bytes, end.token)).fetchone() is None
    ]
    return without_outputs(end, missing) if missing else end


def publish_versions(tx: Transaction, end: End) -> None:
    """Makes the versions of an end that has ended its job."""
    [round] = tx.execute("SELECT round FROM job WHERE id = ?", (end.job.bytes,)).fetchone()
    for made in {made.fileset: made for made in published(end)}.values():
        insert_version(tx, end.job, round, made, "")


def insert_version(tx: Transaction, maker: UUID, round: int, made: NewVersion, by: str) -> int:
    """Makes a version of a fileset; answers its number."""
    name = clean(made.fileset)
    version: int = tx.execute(
        """INSERT INTO fileset (name, latest) VALUES (?, 1)
        ON CONFLICT DO UPDATE SET latest = latest + 1 RETURNING latest""",
        (name,),
    ).fetchone()[0]
    tx.execute(
        "INSERT INTO fileset_version VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            name,
            version,
            made.manifest,
            maker.bytes,
            round,
            min(made.files, LARGEST_INT),
            min(made.total_bytes, LARGEST_INT),
            made.partial,
            tx.now,
            clean(by),
        ),
    )
    return version
