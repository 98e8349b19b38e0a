"""What one attempt prints and logs, made into lines and held to its bounds.

Printing is never held up. Pieces are gathered until a line is whole. Lines past the bounds are only
counted, and the last of them kept: the end of a long output says the most. Any thread and any
signal handler may call it: no locks; each thread gathers its own lines.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

from longshore.executors.text import bounded, bounded_middle
from longshore.model.log import LOGGED, NOTE, Line, LogLimits

LAST_LINES = 100
"""How many lines past the bounds are kept all the same: the newest."""

LEAST_LINE_BYTES = 64
MOST_NAME_BYTES = 256

_CUT = "…".encode()


class Gathered(NamedTuple):
    """A whole line, still in bytes: it becomes text later, where no job waits for it."""

    at: float
    stream: str
    data: bytes
    level: str = ""
    logger: str = ""

    def line(self, attempt: int) -> Line:
        """The line as it is sent."""
        text = self.data.decode("utf-8", "backslashreplace")
        return Line(text, self.stream, self.level, self.logger, self.at, attempt)


class LineQuota:
    """One attempt's lines, waiting to be told."""

    def __init__(self, limits: LogLimits) -> None:
        self._limits = limits
        self.line_bytes = max(limits.line_bytes, LEAST_LINE_BYTES)
        self._pieces: dict[tuple[int, str], bytes] = {}
        self._ready: deque[Gathered] = deque()
        self._last: deque[Gathered] = deque(maxlen=LAST_LINES)
        self._count = 0
        self._bytes = 0
        self._over = 0

    def write(self, stream: str, data: bytes) -> bool:
        """Adds what was printed; answers whether there is news to tell."""
        if b"\n" not in data:
            if data:
                self._gather(stream, data)
            return False
        # One line more than there is room for: what is behind it is past the bounds for certain.
        *lines, rest = data.split(b"\n", max(0, self._limits.entries - self._count) + 1)
        key = threading.get_ident(), stream
        piece = self._pieces.pop(key, None)
        if piece is not None:
            lines[0] = self._joined(piece, lines[0])
        now = time.time()
        is_news = False
        for line in lines:
            is_news = self._keep(Gathered(now, stream, self._tidy(line))) or is_news
        if b"\n" in rest:
            rest = self._count_past(now, stream, rest)
        if rest:
            self._gather(stream, rest)
        return is_news

    def _count_past(self, now: float, stream: str, data: bytes) -> bytes:
        """Counts lines past the bounds, and looks only at the last of them; answers the rest."""
        *lines, rest = data.rsplit(b"\n", LAST_LINES + 1)
        if len(lines) > LAST_LINES:
            self._over += lines.pop(0).count(b"\n") + 1
        for line in lines:
            self._keep(Gathered(now, stream, self._tidy(line)))
        return rest

    def log(self, level: str, logger: str, text: str) -> bool:
        """Adds a record; answers whether there is news to tell."""
        data = bounded_middle(text, self.line_bytes).encode()
        # Names are the job's own words too: of any length, and not always text that can be sent.
        names = bounded(level, MOST_NAME_BYTES), bounded(logger, MOST_NAME_BYTES)
        return self._keep(Gathered(time.time(), LOGGED, data, *names))

    def take(self) -> list[Gathered]:
        """The lines that were not told yet."""
        taken = []
        while self._ready:
            taken.append(self._ready.popleft())
        return taken

    def end(self) -> None:
        """Takes lines without an end as whole, and says how many lines were left out.

        What comes after that is counted anew, so that nothing is said twice.
        """
        pieces, self._pieces = self._pieces, {}
        for (_, stream), piece in list(pieces.items()):
            self._keep(Gathered(time.time(), stream, self._tidy(piece)))
        over, self._over = self._over, 0
        if over:
            last = list(self._last)
            self._last.clear()
            self._ready.append(_left_out(over, last, self._limits))
            self._ready.extend(last)

    def _keep(self, line: Gathered) -> bool:
        limits = self._limits
        if self._over or self._count >= limits.entries or self._bytes >= limits.bytes:
            self._over += 1
            self._last.append(line)
            return False
        self._count += 1
        self._bytes += len(line.data)
        self._ready.append(line)
        return True

    def _gather(self, stream: str, data: bytes) -> None:
        key = threading.get_ident(), stream
        self._pieces[key] = self._joined(self._pieces.get(key, b""), data)

    def _joined(self, piece: bytes, data: bytes) -> bytes:
        """Gathers of a long line only so much as shows that it is too long."""
        room = self.line_bytes + 1 - len(piece)
        piece += data[: max(0, room)]
        # What comes after a carriage return is written over what came before it.
        return piece[piece.rfind(b"\r", 0, -1) + 1 :]

    def _tidy(self, line: bytes) -> bytes:
        """A line as a terminal would show it, and no longer than it may be."""
        if b"\r" in line:
            line = line.rstrip(b"\r").rpartition(b"\r")[2]
        limit = self.line_bytes
        return line if len(line) <= limit else _cut(line, limit - len(_CUT)) + _CUT


def _cut(line: bytes, length: int) -> bytes:
    """The beginning of a line, without half a character at its end."""
    begins = range(max(0, length - 3), length + 1)
    end = max((at for at in begins if line[at] & 0xC0 != 0x80), default=length)
    return line[:end]


def _left_out(over: int, last: list[Gathered], limits: LogLimits) -> Gathered:
    left_out = over - len(last)
    text = (
        f"{left_out:,} lines were left out: an attempt's log is kept up to {limits.entries:,} "
        f"entries (log_entries) or {limits.bytes:,} bytes (log_bytes); the last {len(last)} follow"
    )
    at = last[0].at if last else time.time()
    return Gathered(at, NOTE, text.encode(), "WARNING")
