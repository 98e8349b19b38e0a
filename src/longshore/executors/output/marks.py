"""Marks each line that jobs print to the worker's own output with the number of its job."""

from __future__ import annotations

import threading
from typing import AnyStr
from weakref import WeakSet

from longshore.executors.output.attempt_log import AttemptLog


class LineMarks:
    """The marks of one stream, on which many attempts may print at once.

    Text is passed on as it comes, not when its line is whole: a progress bar moves on. If an
    attempt prints while the line of another is open, that line is ended first. Hold `lock` from
    `marked` until its answer is written.
    """

    def __init__(self) -> None:
        # A signal's handler may print while its thread holds the lock.
        self.lock = threading.RLock()
        self._open: AttemptLog | None = None
        """The attempt whose line has no end yet."""
        self._cut: WeakSet[AttemptLog] = WeakSet()
        """Attempts whose open line was ended by another: the end that they print is there."""

    def forget_line(self) -> None:
        """Other code has printed: what comes next begins with a mark."""
        self._open = None

    def marked(self, attempt: AttemptLog, number: int, given: AnyStr) -> list[AnyStr]:
        """What to write for the text or the bytes that an attempt prints.

        The end of another's line is a piece of its own: a stream passes on all of a piece that has
        an end in it, and an open line is better kept until it is whole.
        """
        mark, end = _mark(number, given)
        if attempt in self._cut and given:
            self._cut.discard(attempt)
            given = given.removeprefix(end)
        if not given:
            return []
        pieces = []
        if self._open is not None and self._open is not attempt:
            self._cut.add(self._open)
            pieces.append(end)
        is_whole = given.endswith(end)
        text = given.removesuffix(end).replace(end, end + mark) + end * is_whole
        pieces.append(text if self._open is attempt else mark + text)
        self._open = None if is_whole else attempt
        return pieces


def _mark(number: int, like: AnyStr) -> tuple[AnyStr, AnyStr]:
    """The mark and the end of a line, of the type that is printed."""
    mark = f"[{number}] "
    if isinstance(like, str):
        return mark, "\n"
    return mark.encode(), b"\n"
