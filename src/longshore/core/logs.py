"""How a job's log is read: what was kept, and where something is missing.

Whoever says something numbers it from 1, attempt by attempt. So what got lost on its way needs no
book-keeping: it is a gap between two numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from longshore.model.job import Job, LogKind
from longshore.model.log import NOTE, STEP, KeptEntry, Line, LogLine, unpack_line


def shown(
    entries: Iterable[KeptEntry], job: Job, after: tuple[int, int], attempt: int | None
) -> Iterator[LogLine]:
    """The lines of a page of entries that begins behind `after`, of one attempt if it is given."""
    token, seq = after
    known: int | None = None
    for entry in entries:
        if entry.token != token:
            token, seq, known = entry.token, 0, None
        line = _line(entry)
        known = line.attempt or known or (job.attempt if token == job.token else None)
        missing, seq = entry.seq - seq - 1, entry.seq
        if attempt is None or known == attempt:
            if missing > 0:
                yield _lost(entry, known, missing)
            if entry.kind is not LogKind.PROGRESS:
                yield _shown(entry, known, line)


def _line(entry: KeptEntry) -> Line:
    match entry.kind:
        case LogKind.TEXT:
            return unpack_line(entry.data)
        case LogKind.STEP:
            return Line(entry.data.decode("utf-8", "backslashreplace"), STEP)
        case LogKind.PROGRESS:
            return Line("")


def _shown(entry: KeptEntry, attempt: int | None, line: Line) -> LogLine:
    return LogLine(
        token=entry.token,
        seq=entry.seq,
        attempt=attempt,
        at=_time(line.said_at) or entry.at,
        stream=line.stream,
        level=line.level,
        logger=line.logger,
        text=line.text,
    )


def _lost(entry: KeptEntry, attempt: int | None, missing: int) -> LogLine:
    what = "1 entry was lost" if missing == 1 else f"{missing:,} entries were lost"
    return LogLine(
        token=entry.token,
        seq=entry.seq,
        attempt=attempt,
        at=entry.at,
        stream=NOTE,
        text=f"{what} on the way from the worker",
    )


def _time(unix_s: float) -> datetime | None:
    """A worker's time; None if it said none, or one that no calendar has."""
    try:
        return datetime.fromtimestamp(unix_s, UTC) if unix_s > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
