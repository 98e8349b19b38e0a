"""The part of `MemoryStore` that knows which logs lie in the file store."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from longshore.core.lifecycle import TERMINAL
from longshore.model.fileset import Holder
from longshore.model.job import LogKind
from longshore.model.log_archive import BEGIN, LogPart, NewLogPart, OldLog, OldLogs, Place
from longshore.testing.memory_files import MemoryFiles


class MemoryLogArchives(MemoryFiles):
    """The verbs about logs in the file store."""

    async def old_logs(self, older_than_s: float, after: bytes, most: int) -> OldLogs:
        with_logs = sorted({job for job, _, _ in self._logs if job.bytes > after})
        looked_at = with_logs[:most]
        logs = tuple(
            OldLog(job, self._jobs[job].job.token, self._archived_up_to(job))
            for job in looked_at
            if self._is_old(job, older_than_s) and self._left_of(job)
        )
        return OldLogs(logs, b"" if len(looked_at) < most else looked_at[-1].bytes)

    def _is_old(self, job: UUID, older_than_s: float) -> bool:
        row = self._jobs.get(job)
        if row is None or row.state not in TERMINAL or row.job.ended_at is None:
            return False
        return (
            row.actor is None and (self._utc() - row.job.ended_at).total_seconds() >= older_than_s
        )

    def _left_of(self, job: UUID) -> list[Place]:
        """The entries of a job that are to be archived, or to be dropped."""
        last, up_to = self._jobs[job].job.token, self._archived_up_to(job)
        return [
            (token, seq)
            for (id, token, seq), entry in self._logs.items()
            if id == job and ((token, seq) > up_to or token < last or entry.kind is LogKind.TEXT)
        ]

    def _archived_up_to(self, job: UUID) -> Place:
        parts = self._files.log_parts.get(job)
        return parts[-1].up_to if parts else BEGIN

    async def note_archived(
        self, upload: UUID, archive: bytes, parts: Sequence[NewLogPart]
    ) -> list[UUID]:
        listing = self._files.manifests.get(archive)
        if listing is None or not listing.pins.get(Holder(upload)):
            return []
        return [part.job for part in parts if self._note_part(archive, part)]

    def _note_part(self, archive: bytes, part: NewLogPart) -> bool:
        if part.job not in self._jobs or self._archived_up_to(part.job) != part.after:
            return False
        if part.up_to <= part.after:
            return False
        made = LogPart(
            up_to=part.up_to,
            lines=part.lines,
            archive=archive,
            generation=self._files.blobs[archive].generation,
            start=part.start,
            size=part.size,
            archived_at=self._utc(),
        )
        self._files.log_parts.setdefault(part.job, []).append(made)
        return True

    async def drop_archived(self, jobs: Sequence[UUID]) -> int:
        gone = {
            key
            for key, entry in self._logs.items()
            if key[0] in jobs
            and key[0] in self._jobs
            and key[1:] <= self._archived_up_to(key[0])
            and not self._stays(key, entry.kind)
        }
        self._logs = {key: entry for key, entry in self._logs.items() if key not in gone}
        return len(gone)

    def _stays(self, key: tuple[UUID, int, int], kind: LogKind) -> bool:
        """Whether it is the last step or progress of the last attempt, which lists show."""
        job, token, seq = key
        if kind is LogKind.TEXT or token != self._jobs[job].job.token:
            return False
        return seq == max(
            n for (id, t, n), one in self._logs.items() if (id, t, one.kind) == (job, token, kind)
        )

    async def log_parts(self, job: UUID) -> list[LogPart]:
        return list(self._files.log_parts.get(job, ())) if job in self._jobs else []
