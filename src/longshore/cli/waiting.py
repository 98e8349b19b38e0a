"""Waiting for a job, with what it is doing shown meanwhile on standard error."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from longshore.cli.show import console, note, progress, visible
from longshore.client.connection import Connection
from longshore.model.job import Ended, Job
from longshore.wire.messages import SubmitAnswer

LOOK_S = 0.5
SAY_S = 10.0


async def wait_for(
    connection: Connection, answer: SubmitAnswer, kind: str, within_s: float | None
) -> Ended | None:
    """A job's outcome; None if it did not end within the time allowed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (float("inf") if within_s is None else within_s)
    with (_Live if sys.stderr.isatty() else _Lines)(answer.number, kind) as view:
        while True:
            left_s = max(0.0, deadline - loop.time())
            ended = await connection.wait([answer.id], min(left_s, LOOK_S))
            if ended or left_s <= LOOK_S:
                return ended[0] if ended else None
            view.show(await connection.job(answer.id))


class _Lines:
    """Says one line when state or step changed: for logs and pipes.

    Progress alone is said now and then, every `SAY_S`.
    """

    def __init__(self, number: int, kind: str) -> None:
        self._last: tuple[str, str] | None = None
        self._said_at = float("-inf")
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            note(f"job {self._number} goes on; `longshore job {self._number}` shows it")

    def show(self, job: Job) -> None:
        """Says where the job is, if that is news."""
        now = asyncio.get_running_loop().time()
        where = (job.state.value, job.step or "")
        far = progress(job.progress)
        if where != self._last or (far and now >= self._said_at + SAY_S):
            self._last, self._said_at = where, now
            note(f"job {job.number}: {' '.join(filter(None, (*where, far)))}")


class _Live(_Lines):
    """Redraws one line: a bar if the job says how far it is, a clock in any case."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number, kind)
        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console(stderr=True),
            transient=True,
        )
        self._task = self._rich.add_task(visible(f"job {number} {kind}"), total=None)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._rich.stop()
        super().__exit__(kind, error, traceback)

    def show(self, job: Job) -> None:
        """Redraws the line."""
        said = job.progress
        words = (f"job {job.number} {job.kind} {job.state.value}", job.step or "")
        text = said.text if said else ""
        self._rich.update(
            self._task,
            description=visible(" · ".join(filter(None, (*words, text)))),
            completed=said.done if said else None,
            total=said.total if said else None,
        )
