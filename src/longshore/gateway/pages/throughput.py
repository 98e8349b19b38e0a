"""How many jobs end in a second, over the last minutes.

Theory. The store counts jobs by state, and pruning takes ended jobs out of these counts again. So
what ended in a time is what came in (the newest number tells) less what the number of live jobs
grew by. A retry by hand makes a job live again without a new number: then the rate falls short.

The gateway counts while somebody has the overview open. While nothing changes it asks for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

from longshore.client.connection import Connection
from longshore.core.job_query import LIVE
from longshore.errors import LongshoreError
from longshore.gateway.asking import asked_by
from longshore.gateway.changes import Changes
from longshore.model.job import JobFilter

EVERY_S: Final = 5.0
KEPT: Final = 121
"""How many samples are kept: ten minutes."""


class Sample(NamedTuple):
    """What was there at a time, and how many changes the gateway had heard of before."""

    at: float
    newest: int
    live: int
    changes: int = -1


class Throughput:
    """Samples of the store's counts, taken as long as somebody asks for them."""

    def __init__(self, connection: Connection, changes: Changes, idle_s: float) -> None:
        self._connection = connection
        self._changes = changes
        self._kept_up_s = 2 * max(idle_s, EVERY_S)
        """So long nobody has asked when it stops: open pages ask every `idle_s` at least."""
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def rates(self) -> tuple[float, ...]:
        """How many jobs ended in a second, one number for each pair of samples, oldest first."""
        self._asked_at = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._samples.clear()
            with asked_by(None):
                self._task = asyncio.create_task(self._run())
        return tuple(rate(one, two) for one, two in pairwise(self._samples))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        with self._changes.looking():
            while loop.time() - self._asked_at < self._kept_up_s:
                try:
                    self._samples.append(await self._sample())
                except LongshoreError:
                    self._samples.clear()  # what happens meanwhile nobody knows
                await asyncio.sleep(EVERY_S)

    async def _sample(self) -> Sample:
        number, now = self._changes.number, asyncio.get_running_loop().time()
        if self._samples and self._samples[-1].changes == number:
            return self._samples[-1]._replace(at=now)
        queues = await self._connection.queues()
        newest = (await self._connection.jobs(JobFilter(limit=1))).jobs
        live = sum(one.counts.get(state.value, 0) for one in queues for state in LIVE)
        return Sample(now, newest[0].number if newest else 0, live, number)


def rate(one: Sample, two: Sample) -> float:
    """How many jobs ended in a second between two samples."""
    ended = (two.newest - one.newest) - (two.live - one.live)
    return round(max(0.0, ended / max(1e-3, two.at - one.at)), 2)
