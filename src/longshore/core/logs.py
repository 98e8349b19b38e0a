"""How a job's log is read: the entries that the store kept, and a note where some are missing.

A worker numbers the entries of each attempt from 1. So a gap between two numbers says that entries
got lost on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import structs

from longshore.model.job import Job, LogEntry, LogKind
from longshore.model.log import NOTE, STEP, KeptEntry, Line, LogLine, LogPage, unpack_line
from longshore.model.log_archive import LogPart

MOST_ENTRIES = 1_000
MOST_PAGE_BYTES = 4 * 1024 * 1024
MOST_LINE_BYTES = 1024 * 1024
MOST_STEP_BYTES = 16 * 1024
"""For a step or a progress: lists of many jobs show both."""


def fits(entry: LogEntry) -> bool:
    """Whether a log entry is short enough to keep."""
    most = MOST_LINE_BYTES if entry.kind is LogKind.TEXT else MOST_STEP_BYTES
    return len(entry.data) <= most


def page(
    entries: Sequence[KeptEntry],
    most: int,
    job: Job,
    after: tuple[int, int],
    attempt: int | None,
    parts: Sequence[LogPart] = (),
) -> LogPage:
    """A page for one message, from what a store answered when asked for `most` entries.

    `parts` are those in the file store, read after the entries. An entry that is in one of them,
    and not removed from the store yet, is left out.
    """
    begin = max((after, *(part.up_to for part in parts)))
    fitting = _fitting(entries)
    kept = [one for one in fitting if (one.token, one.seq) > begin]
    return LogPage(
        lines=tuple(shown(kept, job, begin, attempt)),
        after=max((begin, *((one.token, one.seq) for one in fitting[-1:]))),
        more=len(entries) == most or len(fitting) < len(entries),
        state=job.state,
        attempt=job.attempt,
        archived=tuple(part for part in parts if part.up_to > after),
    )


def _fitting(entries: Sequence[KeptEntry]) -> Sequence[KeptEntry]:
    """As many entries as one message can carry."""
    total = 0
    for index, one in enumerate(entries):
        total += len(one.data)
        if index and total > MOST_PAGE_BYTES:
            return entries[:index]
    return entries


def shown(
    entries: Iterable[KeptEntry], job: Job, after: tuple[int, int], attempt: int | None
) -> Iterator[LogLine]:
    """The lines of entries that follow `after`; those of one attempt, if it is given."""
    token, seq = after
    read = [(entry, _line(entry)) for entry in entries]
    # Steps of other workers may not say their attempt's number; the lines around them do.
    numbers = {job.token: job.attempt} | {e.token: line.attempt for e, line in read if line.attempt}
    for entry, line in read:
        if entry.token != token:
            token, seq = entry.token, 0
        known = numbers.get(token)
        missing, seq = entry.seq - seq - 1, entry.seq
        if attempt is None or known == attempt:
            if missing > 0:
                yield _shown(entry, known, _lost(missing))
            if entry.kind is not LogKind.PROGRESS:
                yield _shown(entry, known, line)


def _line(entry: KeptEntry) -> Line:
    match entry.kind:
        case LogKind.TEXT:
            return unpack_line(entry.data)
        case LogKind.STEP:
            return structs.replace(unpack_line(entry.data), stream=STEP)
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


def _lost(missing: int) -> Line:
    what = "1 entry was lost" if missing == 1 else f"{missing:,} entries were lost"
    return Line(f"{what} on the way from the worker", NOTE)


def _time(unix_s: float) -> datetime | None:
    """A worker's time; None if it sent none, or one that no calendar has."""
    try:
        return datetime.fromtimestamp(unix_s, UTC) if unix_s > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
