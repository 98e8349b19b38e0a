"""Logs in the file store, as the PostgreSQL store knows them (see `model.log_archive`).

Locks: jobs first, by id, then the pin of the archive, as `files_sql` says. Who notes a part holds
its job, so that of two gateways that archived the same entries only one is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from longshore.model.fileset import BlobState
from longshore.model.job import LogKind
from longshore.model.log_archive import LogPart, NewLogPart, OldLog, OldLogs
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.files_sql import HOLD_PIN
from longshore.store.postgres.states import ENDED
from longshore.store.rows import LARGEST_INT

FARTHEST_S: Final = 1e9
_FIRST: Final = UUID(int=0)

# Goes from job to job in the key of the log, and reads one entry of each. What a crash left of a
# log that is archived counts too, except for what stays (see `_DROP`).
_OLD: Final = f"""
WITH RECURSIVE found AS (
    (SELECT job FROM longshore.log WHERE job > $1 ORDER BY job LIMIT 1)
    UNION ALL
    SELECT (SELECT l.job FROM longshore.log AS l WHERE l.job > f.job ORDER BY l.job LIMIT 1)
    FROM found AS f WHERE f.job IS NOT NULL
),
looked_at AS MATERIALIZED (
    SELECT job FROM found WHERE job IS NOT NULL LIMIT $2
)
SELECT i.job, j.token, coalesce(p.token, 0) AS at_token, coalesce(p.seq, 0) AS at_seq,
    j.id IS NOT NULL AND EXISTS (
        SELECT FROM longshore.log AS l WHERE l.job = i.job AND (
            (l.token, l.seq) > (coalesce(p.token, 0), coalesce(p.seq, 0))
            OR l.token < j.token OR l.kind = {LogKind.TEXT:d}
        )
    ) AS is_old
FROM looked_at AS i
LEFT JOIN LATERAL (
    SELECT id, token FROM longshore.job
    WHERE id = i.job AND state >= {ENDED} AND actor_id IS NULL
        AND ended_at <= now() - make_interval(secs => $3)
    OFFSET 0
) AS j ON true
LEFT JOIN LATERAL (
    SELECT token, seq FROM longshore.log_part WHERE job = i.job
    ORDER BY token DESC, seq DESC LIMIT 1
) AS p ON true
ORDER BY i.job
"""

_HOLD_JOBS: Final = """
SELECT id FROM longshore.job WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

_NOTE: Final = """
INSERT INTO longshore.log_part (job, token, seq, lines, archive, start, size)
SELECT i.job, i.token, i.seq, i.lines, $1, i.start, i.size
FROM unnest(
    $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[]
) AS i (job, after_token, after_seq, token, seq, lines, start, size)
LEFT JOIN LATERAL (
    SELECT token, seq FROM longshore.log_part WHERE job = i.job
    ORDER BY token DESC, seq DESC LIMIT 1
) AS p ON true
WHERE i.job = ANY ($10::uuid[]) AND (i.token, i.seq) > (i.after_token, i.after_seq)
    AND (coalesce(p.token, 0), coalesce(p.seq, 0)) = (i.after_token, i.after_seq)
RETURNING job
"""

# The last step and progress of the last attempt stay: lists and `longshore job` show them.
_DROP: Final = f"""
DELETE FROM longshore.log AS l
USING unnest($1::uuid[]) AS i (job)
CROSS JOIN LATERAL (
    SELECT token FROM longshore.job WHERE id = i.job OFFSET 0
) AS j
CROSS JOIN LATERAL (
    SELECT token, seq FROM longshore.log_part WHERE job = i.job
    ORDER BY token DESC, seq DESC LIMIT 1
) AS p
WHERE l.job = i.job AND (l.token, l.seq) <= (p.token, p.seq) AND NOT (
    l.kind <> {LogKind.TEXT:d} AND l.token = j.token AND l.seq = (
        SELECT max(n.seq) FROM longshore.log AS n
        WHERE n.job = l.job AND n.token = l.token AND n.kind = l.kind
    )
)
RETURNING 1
"""

_PARTS: Final = f"""
SELECT p.token, p.seq, p.lines, p.archive, b.generation, p.start, p.size, p.at
FROM longshore.log_part AS p
JOIN longshore.blob AS b ON b.sha256 = p.archive AND b.state = {BlobState.STORED.value}
WHERE p.job = $1 ORDER BY p.token, p.seq
"""


class PostgresLogArchives:
    """The verbs about logs in the file store."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def old_logs(self, older_than_s: float, after: bytes, most: int) -> OldLogs:
        """Logs of jobs that ended so long ago, of the next `most` jobs that have a log."""
        begin = UUID(bytes=after[:16].ljust(16, b"\0")) if after else _FIRST
        values = begin, min(most, LARGEST_INT), min(older_than_s, FARTHEST_S)
        rows = await self._reading.fetch(_OLD, *values)
        logs = tuple(
            OldLog(row["job"], row["token"], (row["at_token"], row["at_seq"]))
            for row in rows
            if row["is_old"]
        )
        return OldLogs(logs, b"" if len(rows) < most else rows[-1]["job"].bytes)

    async def note_archived(
        self, upload: UUID, archive: bytes, parts: Sequence[NewLogPart]
    ) -> list[UUID]:
        """Parts of logs lie in an archive that an upload has sealed; answers of which jobs."""
        columns = list(zip(*(_columns(part) for part in parts), strict=True))

        async def work(tx: Transaction) -> list[UUID]:
            held = await tx.fetch(_HOLD_JOBS, columns[0])
            pins = await tx.fetch(HOLD_PIN, archive, upload, 0)
            if not pins or not pins[0]["sealed"]:
                return []
            # A later statement: it sees what whoever held the jobs before has noted.
            rows = await tx.fetch(_NOTE, archive, *columns, [row["id"] for row in held])
            return [row["job"] for row in rows]

        return await self._keeping.run(work) if parts else []

    async def drop_archived(self, jobs: Sequence[UUID]) -> int:
        """Removes the entries of these jobs that are noted as archived; answers how many."""
        return len(await self._keeping.fetch(_DROP, sorted(set(jobs)))) if jobs else 0

    async def log_parts(self, job: UUID) -> list[LogPart]:
        """Which lines of a job lie in the file store, and where, in order."""
        return [
            LogPart(
                up_to=(token, seq),
                lines=lines,
                archive=bytes(archive),
                generation=generation,
                start=start,
                size=size,
                archived_at=at,
            )
            for token, seq, lines, archive, generation, start, size, at in (
                await self._reading.fetch(_PARTS, job)
            )
        ]


def _columns(part: NewLogPart) -> tuple[UUID, int, int, int, int, int, int, int]:
    return (part.job, *part.after, *part.up_to, part.lines, part.start, part.size)
