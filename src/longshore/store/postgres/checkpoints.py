"""Checkpoints in the PostgreSQL store.

Theory. A checkpoint is a row that leads from a job to a manifest, as a version leads from a fileset
to one. An attempt saves it while its token counts: its job is locked, shared, as for a pin. So a
collection that sees the token gone sees the checkpoint, too: a manifest is held by the pin of the
attempt, or by the checkpoint, at any moment. A newer checkpoint, and a collection that finds the
job ended, mark as `loose` what they let go. Locks: the job, its checkpoint, then manifests and pins
(see `files_sql`).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.checkpoints import is_news, next_checkpoint
from longshore.model.checkpoint import Checkpoint, NewCheckpoint
from longshore.model.fileset import Holder
from longshore.store.postgres import files_sql as sql
from longshore.store.postgres.connections import Again, ConnectionPool, Transaction
from longshore.store.postgres.states import ENDED
from longshore.store.rows import INT64, LARGEST_INT

_HOLD: Final = "SELECT * FROM longshore.checkpoint WHERE job = $1 FOR UPDATE"
_INSERT: Final = """
INSERT INTO longshore.checkpoint (
    job, round, token, sequence, manifest, files, total_bytes, number, idle, saved_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now())
ON CONFLICT DO NOTHING RETURNING saved_at
"""
_REPLACE: Final = """
UPDATE longshore.checkpoint SET round = $2, token = $3, sequence = $4, manifest = $5, files = $6,
    total_bytes = $7, number = $8, idle = $9, saved_at = now()
WHERE job = $1 RETURNING saved_at
"""
CHECKPOINT_OF: Final = f"""
SELECT c.* FROM longshore.checkpoint AS c
JOIN longshore.job AS j ON j.id = c.job AND j.round = c.round AND j.state < {ENDED}
WHERE c.job = $1
"""
_NOT_LIVE: Final = f"""NOT EXISTS (
    SELECT FROM longshore.job AS j WHERE j.id = c.job AND j.round = c.round AND j.state < {ENDED}
)"""
_HOLD_DEAD: Final = f"""
SELECT c.job FROM longshore.checkpoint AS c WHERE {_NOT_LIVE}
ORDER BY c.job LIMIT $1 FOR UPDATE OF c SKIP LOCKED
"""
_DROP_DEAD: Final = f"""
DELETE FROM longshore.checkpoint AS c WHERE c.job = ANY ($1::uuid[]) AND {_NOT_LIVE}
RETURNING c.manifest
"""


class PostgresCheckpoints:
    """The verbs about checkpoints."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def save_checkpoint(self, holder: Holder, made: NewCheckpoint) -> Checkpoint | None:
        """Keeps what an attempt has sealed as the checkpoint of its job; None if it has not."""
        if holder.token not in INT64:
            return None
        return await self._keeping.run(lambda tx: _save(tx, holder, made))

    async def checkpoint(self, job: UUID) -> Checkpoint | None:
        """What the next attempt at a job begins with; None if it has ended, or has none."""
        rows = await self._reading.fetch(CHECKPOINT_OF, job)
        return read_checkpoint(rows[0]) if rows else None


async def _save(tx: Transaction, holder: Holder, made: NewCheckpoint) -> Checkpoint | None:
    alive = await tx.fetch(sql.HOLD_ATTEMPT, holder.id, holder.token)
    if not alive:
        return None
    round: int = alive[0]["round"]
    rows = await tx.fetch(_HOLD, holder.id)
    of_round = [row for row in rows if row["round"] == round]
    known = read_checkpoint(of_round[0]) if of_round else None
    is_same = bool(of_round) and of_round[0]["token"] == holder.token
    if known is not None and is_same and not is_news(of_round[0]["sequence"], made):
        tx.rest_on_found()
        return known
    let_go = [row["manifest"] for row in rows if row["manifest"] != made.manifest]
    await tx.fetch(sql.HOLD_MANIFESTS, sorted({*let_go, made.manifest}))
    pins = await tx.fetch(sql.HOLD_PIN, made.manifest, holder.id, holder.token)
    if not pins or not pins[0]["sealed"]:
        return None
    await tx.fetch(sql.LOOSEN, let_go)
    now = await tx.fetch("SELECT now() AS now")
    kept = next_checkpoint(known, made, now[0]["now"], by_same_attempt=is_same)
    columns = (
        min(made.sequence, LARGEST_INT),
        kept.manifest,
        min(kept.files, LARGEST_INT),
        min(kept.total_bytes, LARGEST_INT),
        kept.number,
        kept.idle,
    )
    statement = _REPLACE if rows else _INSERT
    if not await tx.fetch(statement, holder.id, round, holder.token, *columns):
        raise Again  # the same attempt has just saved its first
    return kept


async def drop_dead(tx: Transaction, most: int) -> int:
    """Drops checkpoints of jobs that have ended, or of an earlier round; answers how many."""
    held = await tx.fetch(_HOLD_DEAD, most)
    if not held:
        return 0
    # A later statement: it sees a job that was retried, and saved, while this one waited.
    rows = await tx.fetch(_DROP_DEAD, [row["job"] for row in held])
    await _loosen(tx, {row["manifest"] for row in rows})
    return len(rows)


async def _loosen(tx: Transaction, manifests: set[bytes]) -> None:
    await tx.fetch(sql.HOLD_MANIFESTS, sorted(manifests))
    await tx.fetch(sql.LOOSEN, list(manifests))


def read_checkpoint(row: asyncpg.Record) -> Checkpoint:
    """The checkpoint in a row."""
    return Checkpoint(
        manifest=row["manifest"],
        files=row["files"],
        total_bytes=row["total_bytes"],
        saved_at=row["saved_at"],
        number=row["number"],
        idle=row["idle"],
    )
