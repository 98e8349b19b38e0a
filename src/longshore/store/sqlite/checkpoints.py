"""Checkpoints in the SQLite store (the rules are those of `store.postgres.checkpoints`)."""

from __future__ import annotations

from uuid import UUID

from longshore.core.checkpoints import is_news, next_checkpoint
from longshore.model.checkpoint import Checkpoint, NewCheckpoint
from longshore.model.fileset import Holder
from longshore.store.rows import LARGEST_INT, moment
from longshore.store.sqlite.files import round_of
from longshore.store.sqlite.states import LIVE_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

_OF_THE_DEAD = f"""SELECT job, manifest FROM checkpoint AS c WHERE NOT EXISTS (
    SELECT 1 FROM job AS j WHERE j.id = c.job AND j.round = c.round AND j.state IN {LIVE_LIST}
) LIMIT ?"""


def save_checkpoint(tx: Transaction, holder: Holder, made: NewCheckpoint) -> Checkpoint | None:
    """Keeps what an attempt has sealed as the checkpoint of its job; None if it has not."""
    round = round_of(tx, holder)
    query = """SELECT 1 FROM manifest_pin
        WHERE manifest = ? AND holder = ? AND token = ? AND sealed = 1"""
    pinned = tx.execute(query, (made.manifest, holder.id.bytes, holder.token)).fetchone()
    if not round or pinned is None:
        return None
    query = "SELECT token, sequence FROM checkpoint WHERE job = ? AND round = ?"
    found = tx.execute(query, (holder.id.bytes, round)).fetchone()
    known = None if found is None else _of_round(tx, holder.id, round)
    is_same = found is not None and found[0] == holder.token
    if known is not None and is_same and not is_news(found[1], made):
        return known
    kept = next_checkpoint(known, made, moment(tx.now), by_same_attempt=is_same)
    _let_go(tx, holder.id.bytes, kept.manifest)
    tx.execute(
        "INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            holder.id.bytes,
            round,
            holder.token,
            min(made.sequence, LARGEST_INT),
            kept.manifest,
            min(kept.files, LARGEST_INT),
            min(kept.total_bytes, LARGEST_INT),
            kept.number,
            kept.idle,
            tx.now,
        ),
    )
    return kept


def _let_go(tx: Transaction, job: bytes, but: bytes) -> None:
    """Has a collection look at what the job's checkpoint leads to so far."""
    query = """UPDATE manifest SET loose = 1
        WHERE sha256 = (SELECT manifest FROM checkpoint WHERE job = ?) AND sha256 <> ?"""
    tx.execute(query, (job, but))


def checkpoint(tx: Snapshot, job: UUID) -> Checkpoint | None:
    """What the next attempt at a job begins with; None if it has ended, or has none."""
    query = f"SELECT round FROM job WHERE id = ? AND state IN {LIVE_LIST}"
    found = tx.execute(query, (job.bytes,)).fetchone()
    return None if found is None else _of_round(tx, job, found[0])


def _of_round(tx: Snapshot, job: UUID, round: int) -> Checkpoint | None:
    row = tx.execute(
        """SELECT manifest, files, total_bytes, saved_at, number, idle FROM checkpoint
        WHERE job = ? AND round = ?""",
        (job.bytes, round),
    ).fetchone()
    if row is None:
        return None
    manifest, files, total_bytes, saved_at, number, idle = row
    return Checkpoint(
        manifest=manifest,
        files=files,
        total_bytes=total_bytes,
        saved_at=moment(saved_at),
        number=number,
        idle=idle,
    )


def has_dead(tx: Snapshot) -> bool:
    """Whether there are checkpoints of jobs that have ended."""
    return tx.execute(_OF_THE_DEAD, (1,)).fetchone() is not None


def drop_dead(tx: Transaction, most: int) -> int:
    """Drops checkpoints of jobs that have ended, or of an earlier round; answers how many."""
    rows = tx.execute(_OF_THE_DEAD, (most,)).fetchall()
    for job, manifest in rows:
        tx.execute("DELETE FROM checkpoint WHERE job = ?", (job,))
        tx.execute("UPDATE manifest SET loose = 1 WHERE sha256 = ?", (manifest,))
    return len(rows)
