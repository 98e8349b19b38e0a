"""What a program prints: kept for its job's log, its last lines for an error, and shown."""

from __future__ import annotations

import contextlib
import sys
from typing import Final, TextIO

from longshore.executors.output.attempt_log import AttemptLog
from longshore.executors.output.marks import LineMarks
from longshore.executors.text import bounded_middle
from longshore.model.log import STDERR, STDOUT, LogLimits

LAST_LINES: Final = 20
LAST_BYTES: Final = 4 * 1024


class Echo:
    """The worker's own output, to which programs print too, with the number of the job."""

    def __init__(self) -> None:
        # Those of the process itself: what is printed on `sys.stdout` is caught for jobs.
        self._streams: dict[str, TextIO | None] = {STDOUT: sys.__stdout__, STDERR: sys.__stderr__}
        self._marks = {STDOUT: LineMarks(), STDERR: LineMarks()}

    def write(self, stream: str, attempt: AttemptLog, number: int, data: bytes) -> None:
        """Prints. No program fails because its worker's output is gone."""
        real, marks = self._streams.get(stream), self._marks[stream]
        if real is None:
            return
        with contextlib.suppress(OSError, ValueError), marks.lock:
            for piece in marks.marked(attempt, number, data):
                real.buffer.write(piece)
            real.buffer.flush()


class ProgramOutput:
    """Takes the bytes that one program prints, of any kind and in any amount."""

    def __init__(
        self, log: AttemptLog, number: int, limits: LogLimits, echo: Echo | None = None
    ) -> None:
        self._log = log
        self._number = number
        self._echo = echo if limits.echo else None
        self._echo_bytes = limits.bytes
        self._last = bytearray()

    def write(self, stream: str, data: bytes) -> None:
        """Adds what was printed on a stream (`STDOUT` or `STDERR`)."""
        self._log.printed(stream, data)
        self._last += data[-LAST_BYTES:]
        if len(self._last) > 2 * LAST_BYTES:
            del self._last[:-LAST_BYTES]
        if self._echo is not None and self._echo_bytes > 0:
            self._echo.write(stream, self._log, self._number, data[: self._echo_bytes])
            self._echo_bytes -= len(data)

    def last_lines(self) -> str:
        """The last lines, of both streams as they came, within `LAST_BYTES`."""
        data = bytes(self._last[-LAST_BYTES:])
        text = data.decode("utf-8", "backslashreplace").replace("\0", "\\x00").rstrip("\n")
        return bounded_middle("\n".join(text.split("\n")[-LAST_LINES:]), LAST_BYTES)
