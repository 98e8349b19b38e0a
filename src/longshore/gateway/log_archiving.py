"""Moves old logs from the store to the files of a gateway, and reads them there.

The order is what keeps them: an archive is stored whole, then noted with its jobs, then their
entries are removed from the store. Whoever dies in between leaves an archive that nothing needs,
which is collected, or entries that are noted already, which the next look removes.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final
from uuid import UUID, uuid4

from msgspec import structs

from longshore.client.connection import Connection
from longshore.core.log_archives import (
    PART_BYTES,
    ReadLog,
    not_read,
    packed,
    unpacked,
    wanted,
)
from longshore.errors import LongshoreError, NotFound, Unavailable
from longshore.gateway.file_keeping import FileKeeping
from longshore.model.fileset import BlobRef, PinVerdict, StoredBlob
from longshore.model.log import LogLine, LogPage
from longshore.model.log_archive import LogPart, OldLog, Place

log = logging.getLogger("longshore.gateway")

LOGS_PER_LOOK: Final = 500
ARCHIVE_BYTES: Final = 16 * 1024 * 1024
"""An archive is closed when the text in it has so many bytes."""


class LogArchiver:
    """Archives the logs that dispatchers name."""

    def __init__(
        self, keeping: FileKeeping, connection: Connection, new_id: Callable[[], UUID] = uuid4
    ) -> None:
        self._keeping = keeping
        self._connection = connection
        self._new_id = new_id

    async def archive_all(self) -> float:
        """Archives all logs that are old by now; answers after how long to look again."""
        after = b""
        while True:
            found = await self._connection.files.old_logs(after, LOGS_PER_LOOK)
            waiting = deque(found.logs)
            while waiting:
                await self._archive(await self._read_some(waiting))
            after = found.next
            if not after:
                return found.pause_s

    async def _read_some(self, waiting: deque[OldLog]) -> list[ReadLog]:
        """Reads logs until they fill an archive. Of a long one, the rest waits on."""
        read, size = list[ReadLog](), 0
        while waiting and size < ARCHIVE_BYTES:
            old = waiting.popleft()
            try:
                part, count, is_over = await self._read_part(old)
            except NotFound:
                continue  # the job was removed meanwhile
            read.append(part)
            size += count
            if not is_over:
                waiting.appendleft(structs.replace(old, after=part.up_to))
                return read
        return read

    async def _read_part(self, old: OldLog) -> tuple[ReadLog, int, bool]:
        """Some lines of a log, how many bytes of text they have, and whether it ends with them."""
        lines, size, after, more = list[LogLine](), 0, old.after, True
        while more and size < PART_BYTES:
            page = await self._connection.logs(old.job, after=after)
            if page.archived:
                return ReadLog(old, old.after, ()), 0, True  # another gateway was faster
            own = [line for line in page.lines if line.token <= old.token]
            lines += own
            size += sum(len(line.text) for line in own)
            after = min(page.after, (old.token, 2**63 - 1))
            more = page.more and page.after[0] <= old.token
        return ReadLog(old, after, lines), size, not more

    async def _archive(self, read: Sequence[ReadLog]) -> None:
        """Archived, then noted, then removed from the store."""
        files = self._connection.files
        data, parts = await self._keeping.in_thread(
            packed, [one for one in read if one.up_to > one.log.after]
        )
        if parts:
            upload, archive = self._new_id(), BlobRef(hashlib.sha256(data).digest(), len(data))
            await self._store(upload, archive, data)
            noted = await files.note_archived(upload, archive.sha256, parts)
            log.info("archived the logs of %d jobs: %s", len(noted), archive.sha256.hex())
        await files.drop_archived([one.log.job for one in read])

    async def _store(self, upload: UUID, archive: BlobRef, data: bytes) -> None:
        """Stores an archive as a manifest that lists nothing but itself."""
        files = self._connection.files
        pinned = await files.pin(archive, (), upload=upload)
        _check(pinned.verdict)
        for needed in pinned.needed:
            await self._keeping.in_thread(self._write, upload, archive, needed.generation, data)
            stored = StoredBlob(archive.sha256, archive.size, needed.generation)
            _check(await files.note_stored([stored], upload=upload))
        _check(await files.seal(archive.sha256, 0, upload=upload))

    def _write(self, upload: UUID, archive: BlobRef, generation: int, data: bytes) -> None:
        blobs = self._keeping.blobs
        with closing(blobs.upload(upload.hex, archive.sha256, archive.size, generation)) as file:
            file.write(data)
            file.finish()


def _check(verdict: PinVerdict) -> None:
    if verdict is not PinVerdict.DONE:
        raise Unavailable(f"an archive of logs could not be stored ({verdict}); it is tried again")


# reading


async def read_log(
    connection: Connection,
    keeping: FileKeeping | None,
    ref: UUID | int,
    attempt: int | None,
    after: Place,
) -> LogPage:
    """A page of a job's log. What lies in the file store comes from there, a part at a time."""
    page = await connection.logs(ref, attempt=attempt, after=after)
    if not page.archived:
        return page
    part = page.archived[0]
    lines: tuple[LogLine, ...]
    try:
        lines = wanted(await _read(keeping, part), after, attempt)
    except LongshoreError as error:
        lines = (not_read(part, str(error)),)
    return structs.replace(page, lines=lines, after=part.up_to, more=True, archived=())


async def _read(keeping: FileKeeping | None, part: LogPart) -> list[LogLine]:
    if keeping is None:
        raise Unavailable("this gateway keeps no files; ask another, or set `files` for it")
    if keeping.why_not:
        raise Unavailable(keeping.why_not)
    return await keeping.in_thread(_read_now, keeping, part)


def _read_now(keeping: FileKeeping, part: LogPart) -> list[LogLine]:
    blobs, key = keeping.blobs, (part.archive, part.generation)
    size = blobs.size(*key)
    if size is None:
        raise NotFound(f"the archive {part.archive.hex()} is not at this gateway's `files`")
    chunks = blobs.read(*key, size, part.start, part.start + part.size)
    return unpacked(b"".join(chunks), part)
