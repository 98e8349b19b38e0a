"""Logs in the file store, as the SQLite store knows them (see `model.log_archive`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from longshore.model.fileset import BlobState
from longshore.model.job import LogKind
from longshore.model.log_archive import LogPart, NewLogPart, OldLog, OldLogs, Place
from longshore.store.rows import LARGEST_INT, earlier, moment
from longshore.store.sqlite.sql import Bulk
from longshore.store.sqlite.transaction import Snapshot, Transaction

FARTHEST_S: Final = 1e9

_LAST: Final = "ORDER BY token DESC, seq DESC LIMIT 1"

# Goes from job to job in the key of the log, and reads one entry of each.
_OLD: Final = f"""
WITH RECURSIVE found (job) AS (
    SELECT * FROM (SELECT job FROM log WHERE job > ?1 ORDER BY job LIMIT 1)
    UNION ALL
    SELECT (SELECT job FROM log WHERE log.job > found.job ORDER BY log.job LIMIT 1) FROM found
    WHERE found.job IS NOT NULL
    LIMIT ?2
)
SELECT found.job, job.id, job.token,
    coalesce((SELECT token FROM log_part AS p WHERE p.job = found.job {_LAST}), 0) AS at_token,
    coalesce((SELECT seq FROM log_part AS p WHERE p.job = found.job {_LAST}), 0) AS at_seq
FROM found LEFT JOIN job ON job.number = found.job
    AND job.ended_at <= ?3 AND job.actor_id IS NULL
WHERE found.job IS NOT NULL ORDER BY found.job"""

# What a crash left of a log that is archived counts too, except for what stays (see `_DROP`).
_IS_LEFT: Final = f"""
SELECT 1 FROM log WHERE job = ?1 AND (
    (token, seq) > (?2, ?3) OR token < ?4 OR kind = {LogKind.TEXT:d}) LIMIT 1"""

_LAST_PART: Final = f"SELECT token, seq FROM log_part WHERE job = ? {_LAST}"

# The last step and progress of the last attempt stay: lists and `longshore job` show them.
_DROP: Final = f"""
DELETE FROM log WHERE job = ?1 AND (token, seq) <= (?2, ?3) AND NOT (
    kind <> {LogKind.TEXT:d} AND token = ?4 AND seq = (
        SELECT max(seq) FROM log AS newest INDEXED BY log_newest
        WHERE newest.kind <> 0 AND newest.job = log.job AND newest.token = log.token
            AND newest.kind = log.kind))"""

_PARTS: Final = f"""
SELECT p.token, p.seq, p.lines, p.archive, b.generation, p.start, p.size, p.at
FROM log_part AS p JOIN blob AS b ON b.sha256 = p.archive AND b.state = {BlobState.STORED.value}
WHERE p.job = (SELECT number FROM job WHERE id = ?) ORDER BY p.token, p.seq"""

DROP_PARTS: Final = Bulk(
    """DELETE FROM log_part WHERE job IN (SELECT column1 FROM {rows})""",
    1,
)
LOOSEN_ARCHIVES: Final = Bulk(
    """UPDATE manifest SET loose = 1 WHERE sha256 IN (
        SELECT archive FROM log_part WHERE job IN (SELECT column1 FROM {rows}))""",
    1,
)


def old_logs(tx: Snapshot, older_than_s: float, after: bytes, most: int) -> OldLogs:
    """Logs of jobs that ended so long ago, of the next `most` jobs that have a log."""
    begin = int.from_bytes(after[:8], "big", signed=True) if after else 0
    before = earlier(tx.now, min(older_than_s, FARTHEST_S)) or 0
    rows = tx.execute(_OLD, (begin, min(most, LARGEST_INT), before)).fetchall()
    logs = tuple(
        OldLog(UUID(bytes=id), token, (at_token, at_seq))
        for number, id, token, at_token, at_seq in rows
        if id is not None
        and tx.execute(_IS_LEFT, (number, at_token, at_seq, token)).fetchone() is not None
    )
    is_last = len(rows) < most
    return OldLogs(logs, b"" if is_last else rows[-1][0].to_bytes(8, "big"))


def note_archived(
    tx: Transaction, upload: UUID, archive: bytes, parts: Sequence[NewLogPart]
) -> list[UUID]:
    """Parts of logs lie in an archive that an upload has sealed; answers of which jobs."""
    query = "SELECT sealed FROM manifest_pin WHERE manifest = ? AND holder = ? AND token = 0"
    pinned = tx.execute(query, (archive, upload.bytes)).fetchone()
    if pinned is None or not pinned[0]:
        return []
    return [part.job for part in parts if _note(tx, archive, part)]


def _note(tx: Transaction, archive: bytes, part: NewLogPart) -> bool:
    found = _numbered(tx, part.job)
    if found is None or _up_to(tx, found[0]) != part.after or part.up_to <= part.after:
        return False
    row = (found[0], *part.up_to, part.lines, archive, part.start, part.size, tx.now)
    tx.execute("INSERT INTO log_part VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return True


def drop_archived(tx: Transaction, jobs: Sequence[UUID]) -> int:
    """Removes the entries of these jobs that are noted as archived; answers how many."""
    count = 0
    for found in (_numbered(tx, job) for job in jobs):
        if found is not None:
            number, token = found
            count += tx.execute(_DROP, (number, *_up_to(tx, number), token)).rowcount
    return count


def log_parts(tx: Snapshot, job: UUID) -> list[LogPart]:
    """Which lines of a job lie in the file store, and where, in order."""
    return [
        LogPart(
            up_to=(token, seq),
            lines=lines,
            archive=archive,
            generation=generation,
            start=start,
            size=size,
            archived_at=moment(at),
        )
        for token, seq, lines, archive, generation, start, size, at in tx.execute(
            _PARTS, (job.bytes,)
        )
    ]


def _numbered(tx: Snapshot, job: UUID) -> tuple[int, int] | None:
    found: tuple[int, int] | None = tx.execute(
        "SELECT number, token FROM job WHERE id = ?", (job.bytes,)
    ).fetchone()
    return found


def _up_to(tx: Snapshot, number: int) -> Place:
    found = tx.execute(_LAST_PART, (number,)).fetchone()
    return (0, 0) if found is None else (found[0], found[1])
