"""Reads a job's log, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from longshore.client.connection import Connection, Ref
from longshore.core.lifecycle import TERMINAL
from longshore.model.log import LogLine, LogPage

FOLLOW_S = 0.3
"""How often a log that is followed is read again."""


async def read_logs(
    connection: Connection, ref: Ref, attempt: int | None = None, *, follow: bool = False
) -> AsyncGenerator[LogLine, None]:
    """The lines so far; with `follow` also later ones, until the job or the attempt ends."""
    after = (0, 0)
    while True:
        page = await connection.logs(ref, attempt=attempt, after=after)
        after = page.after
        for line in page.lines:
            yield line
        if not page.more:
            if not follow or _is_over(page, attempt):
                return
            await asyncio.sleep(FOLLOW_S)


def _is_over(page: LogPage, attempt: int | None) -> bool:
    return page.state in TERMINAL or (attempt is not None and page.attempt > attempt)
