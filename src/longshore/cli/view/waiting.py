"""Waits for a job, and meanwhile shows its state and its log on standard error.

Standard output is for the result only, so that `longshore submit … --wait > result.json` works.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from longshore.cli.view.show import Telling, console, progress, why_line
from longshore.client.connection import Connection
from longshore.client.logs import LogReader
from longshore.core.group_words import shown_state
from longshore.core.text import visible
from longshore.model.job import Ended, Job, JobState
from longshore.model.log import ENGINE, STEP
from longshore.run.ready import note
from longshore.wire.messages import SubmitAnswer

LOOK_S = 0.5
SAY_S = 10.0
STUCK_S = 2.0
_NUMBER = re.compile("[0-9][0-9,.]*")


async def wait_for(
    connection: Connection, answer: SubmitAnswer, kind: str, within_s: float | None
) -> Ended | None:
    """A job's outcome; None if it did not end within the time allowed.

    Its log is shown first: the whole log is stored by the time of the outcome.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (float("inf") if within_s is None else within_s)
    log, telling, reason = LogReader(connection, answer.id), Telling(), _Reason(connection)
    with (_Live if sys.stderr.isatty() else _Lines)(answer.number, kind) as view:
        while True:
            left_s = max(0.0, deadline - loop.time())
            ended = await connection.wait([answer.id], min(left_s, LOOK_S))
            async for line in log.news():
                # Steps may be many: only the last is shown, with the job.
                if line.stream not in (STEP, ENGINE):
                    view.say(telling.in_words(line))
            if ended or left_s <= LOOK_S:
                return ended[0] if ended else None
            job = await connection.job(answer.id)
            view.show(job)
            if words := await reason.news(job):
                view.say(words)


def bar_on_stderr() -> RichProgress:
    """A line on standard error that is redrawn: words, a bar and a clock."""
    return RichProgress(
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        ),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    )


class _Reason:
    """Why no worker has a job that has been ready for `STUCK_S`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._look_at: float | None = None
        self._last = ""

    async def news(self, job: Job) -> str:
        """The answer of `longshore why`, if more of it than a number has changed."""
        if job.state is not JobState.READY:
            self._look_at = None
            return ""
        now = asyncio.get_running_loop().time()
        if self._look_at is None:
            self._look_at = now + STUCK_S
        if now < self._look_at:
            return ""
        self._look_at = now + STUCK_S
        answer = await self._connection.why(job.id)
        if answer.state != JobState.READY.value:
            return ""
        said, self._last = self._last, _NUMBER.sub("", answer.why)
        return why_line(answer) if self._last != said else ""


class _Lines:
    """Prints a line when the state changes, and every `SAY_S` the progress: for logs and pipes."""

    def __init__(self, number: int, kind: str) -> None:
        self._last = ""
        self._said_at = float("-inf")
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            number = self._number
            note(
                f"job {number} goes on; `longshore cancel {number}` cancels it, "
                f"`longshore logs {number} --follow` shows what it says"
            )

    def say(self, words: str) -> None:
        """Shows a line of the job's log."""
        note(words)

    def show(self, job: Job) -> None:
        """Prints the state and the progress, if they are news."""
        now = asyncio.get_running_loop().time()
        state = shown_state(job).value
        far = " · ".join(filter(None, (progress(job.progress), job.step)))
        if state != self._last or (far and now >= self._said_at + SAY_S):
            self._last, self._said_at = state, now
            note(f"job {job.number}: {' '.join((state, *far.split()))}")


class _Live(_Lines):
    """Redraws one line under the log: a clock, and a bar if the job reports its progress."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number, kind)
        self._rich = bar_on_stderr()
        self._task = self._rich.add_task(visible(f"job {number} {kind}"), total=None)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._rich.stop()
        super().__exit__(kind)

    def say(self, words: str) -> None:
        """Shows a line of the job's log, above the bar."""
        self._rich.console.print(Text(visible(words)))

    def show(self, job: Job) -> None:
        """Redraws the line."""
        said = job.progress
        words = (f"job {job.number} {job.kind} {job.state.value}", job.step or "")
        text = said.text if said else ""
        described = " · ".join(filter(None, (*words, text)))
        self._rich.update(
            self._task,
            description=visible(" ".join(described.split())),
            completed=said.done if said else None,
            total=said.total if said else None,
        )
