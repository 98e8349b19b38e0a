"""Notices which of the streamed jobs have changed, by one request for up to a thousand of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from longshore.client.connection import Connection, in_parts
from longshore.core.lifecycle import OWNED
from longshore.core.limits import MAX_REQUEST_JOBS
from longshore.errors import LongshoreError
from longshore.gateway.asking import asked_by, asking
from longshore.gateway.pace import Pace
from longshore.model.job import Job, JobFilter

_SHARE: Final = 20
"""A look that took a second is followed by a pause of so many, at least."""

_Mark = tuple[object, ...]
_Place = tuple[bytes | None, UUID]
"""The token of those who watch, and their job."""


def _mark(job: Job) -> _Mark:
    """What is different after every change of a job."""
    said = (job.progress, job.step) if job.state in OWNED else ()
    return (job.state, job.token, job.round, job.attempt, job.run_at, *said)


class JobChanges:
    """The jobs that streams tell of, each as it was last seen."""

    def __init__(self, connection: Connection, pace: Pace) -> None:
        self._connection = connection
        self._pace = pace
        self._seen: dict[_Place, tuple[_Mark, asyncio.Future[None]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def until_changed(self, job: Job) -> None:
        """Returns once the job is not as it was any more, or is gone.

        One caller for each job and token.
        """
        changed = asyncio.get_running_loop().create_future()
        place = (asking(), job.id)
        self._seen[place] = (_mark(job), changed)
        if self._looking is None:
            # It looks for all: whoever hears of a change asks for it with its own token.
            with asked_by(None):
                self._looking = asyncio.create_task(self._look())
        try:
            await changed
        finally:
            del self._seen[place]

    async def _look(self) -> None:
        """Looks until there is nothing to look at."""
        try:
            is_news, took_s = True, 0.0
            while self._seen:
                await asyncio.sleep(max(self._pace.pause_s(is_news=is_news), _SHARE * took_s))
                began_at = asyncio.get_running_loop().time()
                is_news = await self._look_once()
                took_s = asyncio.get_running_loop().time() - began_at
        finally:
            self._looking = None

    async def _look_once(self) -> bool:
        ids = [*dict.fromkeys(id for _, id in self._seen)]
        news = [await self._compare(part) for part in in_parts(ids, MAX_REQUEST_JOBS)]
        return any(news)

    async def _compare(self, ids: Sequence[UUID]) -> bool:
        """Wakes those whose job has changed; answers whether any has."""
        try:
            page = await self._connection.jobs(JobFilter(ids=tuple(ids), limit=len(ids)))
        except LongshoreError:
            return False  # a dispatcher that does not answer now is asked again
        found = {job.id: _mark(job) for job in page.jobs}
        is_news, asked = False, frozenset(ids)
        for (_, id), (mark, changed) in self._seen.items():
            if id in asked and not changed.done() and found.get(id) != mark:
                changed.set_result(None)
                is_news = True
        return is_news
