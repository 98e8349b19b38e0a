"""What an archive of logs holds: gzip members of JSON lines, one for each part of a job's log.

The lines are what `longshore logs --json` prints, each with the id of its job: `zcat` shows all.
Equal lines make equal bytes, so two gateways that archive the same make one blob.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec import DecodeError, Struct, json

from longshore.errors import Damaged
from longshore.model.log import NOTE, LogLine
from longshore.model.log_archive import LogPart, NewLogPart, OldLog, Place

PART_BYTES: Final = 4 * 1024 * 1024
"""A part ends with the page in which its text has so many bytes."""
MOST_UNPACKED_BYTES: Final = 64 * PART_BYTES
_LEVEL: Final = 6


class ArchivedLine(LogLine, frozen=True, kw_only=True):
    """A line of a job's log in an archive."""

    job: UUID


class ReadLog(Struct, frozen=True):
    """A part of a log that was read from the store, and the place up to which it goes."""

    log: OldLog
    up_to: Place
    lines: Sequence[LogLine]


_encode = json.Encoder().encode_lines
_decode = json.Decoder(LogLine).decode_lines


def packed(read: Iterable[ReadLog]) -> tuple[bytes, list[NewLogPart]]:
    """An archive of parts of logs, and where each is in it."""
    archive = bytearray()
    parts = []
    for one in read:
        member = _member(one)
        part = NewLogPart(
            job=one.log.job,
            after=one.log.after,
            up_to=one.up_to,
            lines=len(one.lines),
            start=len(archive),
            size=len(member),
        )
        parts.append(part)
        archive += member
    return bytes(archive), parts


def _member(read: ReadLog) -> bytes:
    job = read.log.job
    lines = [
        ArchivedLine(
            job=job,
            token=line.token,
            seq=line.seq,
            attempt=line.attempt,
            at=line.at,
            stream=line.stream,
            level=line.level,
            logger=line.logger,
            text=line.text,
        )
        for line in read.lines
    ]
    return gzip.compress(_encode(lines), _LEVEL, mtime=0)


def unpacked(member: bytes, part: LogPart) -> list[LogLine]:
    """The lines of a part; raises `Damaged` if they are not whole."""
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(member, MOST_UNPACKED_BYTES)
        lines = _decode(text)
    except (zlib.error, DecodeError) as error:
        raise Damaged(f"the archive {part.archive.hex()} cannot be read: {error}") from None
    if not reader.eof or len(lines) != part.lines:
        raise Damaged(f"the archive {part.archive.hex()} is not whole; restore it from a backup")
    return lines


def wanted(lines: Iterable[LogLine], after: Place, attempt: int | None) -> tuple[LogLine, ...]:
    """The lines past a place; those of one attempt, if it is given."""
    return tuple(
        line for line in lines if (line.token, line.seq) > after and attempt in (None, line.attempt)
    )


def not_read(part: LogPart, why: str) -> LogLine:
    """A note in the place of lines that lie in the file store and cannot be read from here."""
    many = "1 line is" if part.lines == 1 else f"{part.lines:,} lines are"
    where = f"blob {part.archive.hex()}, bytes {part.start} to {part.start + part.size}"
    token, seq = part.up_to
    return LogLine(
        token=token,
        seq=seq,
        attempt=None,
        at=part.archived_at,
        stream=NOTE,
        text=f"{many} archived in the file store ({where}), and cannot be shown here: {why}",
    )
