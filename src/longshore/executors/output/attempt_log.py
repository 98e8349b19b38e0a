"""What an attempt says while it runs, told in portions.

A job may call `progress` a million times a second and is never held up. Between two tellings the
newest progress and the last few steps are kept, and what the job prints and logs up to its quota.
Any thread and any signal handler may call everything here: deques and flags only, no locks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from uuid import UUID

import msgspec

from longshore.executors.output.quota import Gathered, LineQuota
from longshore.model.job import LogEntry, LogKind, Progress
from longshore.model.log import STEP, Line, LogLimits, pack_line

TELL_EVERY_S = 0.05
STEPS_KEPT = 64

_encoder = msgspec.msgpack.Encoder()


class AttemptLog:
    """What one attempt says. It calls `wake` when there is news; the host then calls `take`."""

    def __init__(
        self,
        job: UUID,
        token: int,
        wake: Callable[[AttemptLog], None],
        *,
        attempt: int = 0,
        limits: LogLimits | None = None,
    ) -> None:
        self._job = job
        self._token = token
        self._attempt = attempt
        self._wake = wake
        self._woken = False
        self._seq = 0
        self._lines = LineQuota(limits or LogLimits())
        self._steps: deque[tuple[float, str]] = deque(maxlen=STEPS_KEPT)
        self._progress: deque[Progress] = deque(maxlen=1)

    def progress(self, progress: Progress) -> None:
        """Replaces the progress that was not told yet."""
        self._progress.append(progress)
        self._tell()

    def step(self, text: str) -> None:
        """Adds a step; of too many at once the oldest are dropped."""
        self._steps.append((time.time(), text))
        self._tell()

    def drop_untold(self) -> None:
        """Drops the steps, if nothing was told yet: the attempt ended before anybody could look."""
        if self._seq == 0:
            self._steps.clear()

    def printed(self, stream: str, data: bytes) -> None:
        """Adds what was printed; a line is told when it is whole."""
        if self._lines.write(stream, data):
            self._tell()

    def document(self, stream: str, text: str) -> None:
        """Adds a text in ASCII that must not be cut, in as many lines as it needs."""
        most = self._lines.line_bytes
        for at in range(0, len(text), most):
            self.printed(stream, text[at : at + most].encode("ascii") + b"\n")

    def logged(self, level: str, logger: str, text: str) -> None:
        """Adds a record of `logging`."""
        if self._lines.log(level, logger, text):
            self._tell()

    def end(self) -> None:
        """Ends the log: a line without an end is told as it is."""
        self._lines.end()

    def take(self) -> list[LogEntry]:
        """What was not told yet, numbered. Never called by two threads at once."""
        self._woken = False
        said: list[tuple[float, str] | Gathered] = [*self._lines.take()]
        while self._steps:
            said.append(self._steps.popleft())
        entries = [self._told(one) for one in sorted(said, key=lambda one: one[0])]
        while self._progress:
            data = _encoder.encode(self._progress.popleft())
            entries.append(self._entry(LogKind.PROGRESS, data))
        return entries

    def _told(self, said: tuple[float, str] | Gathered) -> LogEntry:
        if isinstance(said, Gathered):
            return self._entry(LogKind.TEXT, pack_line(said.line(self._attempt)))
        at, text = said
        line = Line(text, STEP, said_at=at, attempt=self._attempt)
        return self._entry(LogKind.STEP, pack_line(line))

    def _entry(self, kind: LogKind, data: bytes) -> LogEntry:
        self._seq += 1
        return LogEntry(self._job, self._token, self._seq, kind, data)

    def _tell(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake(self)
