"""Notices which of the streamed jobs have changed, by one request for up to a thousand of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from longshore.client.connection import Connection, in_parts
from longshore.core.lifecycle import OWNED
from longshore.core.limits import MAX_REQUEST_JOBS
from longshore.errors import LongshoreError
from longshore.gateway.asking import asked_by, asking
from longshore.gateway.changes import Changes
from longshore.model.job import Job, JobFilter

_Mark = tuple[object, ...]
_Place = tuple[bytes | None, UUID]
"""The token of those who watch, and their job."""


def _mark(job: Job) -> _Mark:
    """What is different after every change of a job."""
    said = (job.progress, job.step) if job.state in OWNED else ()
    return (job.state, job.token, job.round, job.attempt, job.run_at, *said)


class JobChanges:
    """The jobs that streams tell of, each as it was last seen."""

    def __init__(self, connection: Connection, changes: Changes) -> None:
        self._connection = connection
        self._changes = changes
        self._seen: dict[_Place, tuple[_Mark, asyncio.Future[None]]] = {}
        self._came = asyncio.Event()
        """Set when there is a job to look at that may have changed already."""
        self._looking: asyncio.Task[None] | None = None

    async def until_changed(self, job: Job) -> None:
        """Returns once the job is not as it was any more, or is gone.

        One caller for each job and token.
        """
        changed = asyncio.get_running_loop().create_future()
        place = (asking(), job.id)
        self._seen[place] = (_mark(job), changed)
        self._came.set()
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
        loop = asyncio.get_running_loop()
        try:
            with self._changes.looking():
                while self._seen:
                    number, began_at = self._changes.number, loop.time()
                    self._came.clear()
                    await self._look_once()
                    await self._changes.rest(loop.time() - began_at)
                    await self._until_needed(number)
        finally:
            self._looking = None

    async def _until_needed(self, number: int) -> None:
        """Until there was a change after this number, or another job to look at."""
        either = [
            asyncio.ensure_future(self._changes.after(number)),
            asyncio.ensure_future(self._came.wait()),
        ]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()

    async def _look_once(self) -> None:
        ids = [*dict.fromkeys(id for _, id in self._seen)]
        for part in in_parts(ids, MAX_REQUEST_JOBS):
            # A dispatcher that does not answer now is asked again.
            with suppress(LongshoreError):
                await self._compare(part)

    async def _compare(self, ids: Sequence[UUID]) -> None:
        """Wakes those whose job has changed."""
        page = await self._connection.jobs(JobFilter(ids=tuple(ids), limit=len(ids)))
        found, asked = {job.id: _mark(job) for job in page.jobs}, frozenset(ids)
        for (_, id), (mark, changed) in self._seen.items():
            if id in asked and not changed.done() and found.get(id) != mark:
                changed.set_result(None)
