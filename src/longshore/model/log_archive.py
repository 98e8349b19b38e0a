"""Logs in the file store: which lines of which jobs lie there, and where.

An archive is a blob that holds the logs of many jobs, one after the other: each is a gzip member of
JSON lines. The store knows it as a manifest that lists nothing but itself, so it is pinned, sealed
and collected as filesets are. A `LogPart` says where in an archive some lines of a job are. The
parts of a job follow each other: a part begins where the one before it ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

Place = tuple[int, int]
"""A place in a job's log: the token of an attempt, and the number of an entry."""
BEGIN: Final[Place] = (0, 0)


class NewLogPart(Struct, frozen=True, kw_only=True):
    """Lines of a job that an archive holds: those past `after`, up to and with `up_to`."""

    job: UUID
    after: Place
    up_to: Place
    lines: int
    start: int
    """The first of its bytes in the archive."""
    size: int
    """How many bytes it has there."""


class LogPart(Struct, frozen=True, kw_only=True):
    """Lines of a job's log that lie in the file store."""

    up_to: Place
    lines: int
    archive: bytes
    """The blob that holds them."""
    generation: int
    start: int
    size: int
    archived_at: datetime


class OldLog(Struct, frozen=True):
    """A log that is to be archived: the entries up to those of `token`, past `after`."""

    job: UUID
    token: int
    after: Place


class OldLogs(Struct, frozen=True):
    """Some logs to archive. The next look begins at `next`; if that is empty, this was the last."""

    logs: tuple[OldLog, ...] = ()
    next: bytes = b""
