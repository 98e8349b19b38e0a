"""Reads a job's log, page by page."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from longshore.client.archived_logs import read_archived
from longshore.client.connection import Connection, Ref
from longshore.core.lifecycle import TERMINAL
from longshore.model.job import Job
from longshore.model.log import STEP, LogLine, LogPage

FOLLOW_S = 0.3
"""How often a log that is followed is read again."""
MOST_STEPS = 20
"""How many steps are shown with a job."""


class LogReader:
    """Reads the log of a job, or of one attempt, from where the last reading ended."""

    def __init__(self, connection: Connection, ref: Ref, attempt: int | None = None) -> None:
        self._connection = connection
        self._ref = ref
        self._attempt = attempt
        self._after = (0, 0)
        self.is_over = False

    async def news(self) -> AsyncGenerator[LogLine, None]:
        """The lines since the last reading."""
        more = True
        while more:
            page = await self._connection.logs(self._ref, attempt=self._attempt, after=self._after)
            asked_after, self._after, more = self._after, page.after, page.more
            if page.archived:
                which = self._connection, self._ref, self._attempt
                async for line in read_archived(*which, asked_after, page.archived):
                    yield line
            for line in page.lines:
                yield line
            self.is_over = is_over(page, self._attempt)


class Steps:
    """The steps of a job's last attempt, read as far as they are there. Of very many, the last."""

    def __init__(self, ref: Ref) -> None:
        self._ref = ref
        self._reader: LogReader | None = None
        self.last: deque[LogLine] = deque(maxlen=MOST_STEPS)

    async def look(self, connection: Connection, job: Job) -> None:
        """Reads what the job said since the last look, if it tells steps."""
        if job.step is None:
            return
        if self._reader is None:
            self._reader = LogReader(connection, self._ref)
        async for line in self._reader.news():
            if self.last and self.last[-1].token != line.token:
                self.last.clear()
            if line.stream == STEP:
                self.last.append(line)


def is_over(page: LogPage, attempt: int | None) -> bool:
    """Whether nothing can follow after the last page: the job, or this attempt, has ended."""
    return page.state in TERMINAL or (attempt is not None and page.attempt > attempt)


async def read_logs(
    connection: Connection, ref: Ref, attempt: int | None = None, *, follow: bool = False
) -> AsyncGenerator[LogLine, None]:
    """The lines so far; with `follow` also later ones, until the job or the attempt ends."""
    reader = LogReader(connection, ref, attempt)
    while True:
        async for line in reader.news():
            yield line
        if reader.is_over or not follow:
            return
        await asyncio.sleep(FOLLOW_S)
