"""What an attempt says while it runs, told in portions.

A job may call `progress` a million times a second and is never held up: of what it says between two
tellings the newest progress and the last few steps are kept. Everything here may be called from any
thread, and from a signal handler: deques and flags only, no locks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from uuid import UUID

import msgspec

from longshore.model.job import LogEntry, LogKind, Progress

TELL_EVERY_S = 0.05
STEPS_KEPT = 64

_encoder = msgspec.msgpack.Encoder()


class Voice:
    """One attempt's say. `wake` is called when there is news; somebody then calls `take`."""

    __slots__ = ("_job", "_progress", "_seq", "_steps", "_token", "_wake", "_woken")

    def __init__(self, job: UUID, token: int, wake: Callable[[Voice], None]) -> None:
        self._job = job
        self._token = token
        self._wake = wake
        self._woken = False
        self._seq = 0
        self._steps: deque[str] = deque(maxlen=STEPS_KEPT)
        self._progress: deque[Progress] = deque(maxlen=1)

    def progress(self, progress: Progress) -> None:
        """Replaces the progress that was not told yet."""
        self._progress.append(progress)
        self._tell()

    def step(self, text: str) -> None:
        """Adds a step; of too many at once the oldest are dropped."""
        self._steps.append(text)
        self._tell()

    def take(self) -> list[LogEntry]:
        """What was not told yet, numbered. Never called by two threads at once."""
        self._woken = False
        entries = []
        while self._steps:
            entries.append(self._entry(LogKind.STEP, self._steps.popleft().encode()))
        while self._progress:
            data = _encoder.encode(self._progress.popleft())
            entries.append(self._entry(LogKind.PROGRESS, data))
        return entries

    def _entry(self, kind: LogKind, data: bytes) -> LogEntry:
        self._seq += 1
        return LogEntry(self._job, self._token, self._seq, kind, data)

    def _tell(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake(self)
