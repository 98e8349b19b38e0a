"""The bar that `submit_many(…, progress=True)` draws on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Sized
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

AFTER_S: Final = 0.5
"""A bar appears only if submitting takes longer than this."""


class SubmitProgress:
    """Counts answered jobs. It draws a bar only if it is wanted and a terminal is there."""

    def __init__(self, calls: object, *, wanted: bool) -> None:
        self._is_shown = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._total = len(calls) if isinstance(calls, Sized) else None
        self._begun_at = time.monotonic()
        self._count = 0
        self._bar: Progress | None = None

    def advance(self, jobs: int) -> None:
        """So many more jobs have an answer."""
        self._count += jobs
        if not self._is_shown:
            return
        if self._bar is None and time.monotonic() - self._begun_at >= AFTER_S:
            self._bar = _started(self._total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._count)

    def close(self) -> None:
        """Draws the bar for the last time."""
        if self._bar is not None:
            self._bar.stop()


def _started(total: int | None) -> Progress:
    # Imported here: most programs that submit jobs draw nothing.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = ("submitting", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(
        *columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False
    )
    bar.add_task("submitting", total=total)
    bar.start()
    return bar
