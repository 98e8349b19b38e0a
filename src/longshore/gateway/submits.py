"""Gathers the jobs of small requests: dispatchers get those together that came together.

Many clients that submit one job each would otherwise be many messages, each with its own cost for
the gateway and the dispatcher. A request that comes alone goes at once. While `MOST_UNDER_WAY`
messages are, later requests wait for the first of these to be answered, and then go as one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from longshore.client.connection import MAX_CHUNK_BYTES, MAX_CHUNK_JOBS, Connection, wire_size
from longshore.gateway.asking import asked_by, asking
from longshore.model.job import Submission
from longshore.wire.messages import SubmitAnswer
from longshore.wire.portions import portions

MOST_UNDER_WAY: Final = 2
FEW_JOBS: Final = 20
"""A request with more jobs than this goes by itself."""
FEW_BYTES: Final = 64 * 1024


_Shared = tuple[bytes | None, bool]
"""The token that submits, and whether it is strict."""


class _Waiting(Struct, eq=False):
    """The jobs of one request, until they are answered."""

    jobs: Sequence[Submission]
    answered: asyncio.Future[Sequence[SubmitAnswer]]


class Submits:
    """Submits the jobs of requests."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[_Shared, deque[_Waiting]] = {}
        """By what all jobs of a message share."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_due = False

    async def submit(self, jobs: Sequence[Submission], strict: bool) -> Sequence[SubmitAnswer]:
        """What became of each job."""
        if len(jobs) > FEW_JOBS or sum(map(wire_size, jobs)) > FEW_BYTES:
            return await self._in_portions(jobs, strict)
        loop = asyncio.get_running_loop()
        one = _Waiting(jobs, loop.create_future())
        self._waiting.setdefault((asking(), strict), deque()).append(one)
        self._plan(loop)
        return await one.answered

    async def _in_portions(self, jobs: Sequence[Submission], strict: bool) -> list[SubmitAnswer]:
        answers: list[SubmitAnswer] = []
        for chunk in portions(jobs, wire_size, MAX_CHUNK_BYTES, MAX_CHUNK_JOBS):
            answers += await self._connection.submit(tuple(chunk), strict)
        return answers

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sends what waits, once all that the loop has at hand was read."""
        if self._waiting and not self._is_due and len(self._under_way) < MOST_UNDER_WAY:
            self._is_due = True
            loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        shared = next(iter(self._waiting))
        waiting = self._waiting.pop(shared)
        chosen = _first(waiting)
        if waiting:
            # Behind the others: who submits much does not keep them waiting.
            self._waiting[shared] = waiting
        token, strict = shared
        with asked_by(token):
            task = asyncio.get_running_loop().create_task(self._submit(chosen, strict))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        self._plan(asyncio.get_running_loop())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._plan(task.get_loop())

    async def _submit(self, chosen: list[_Waiting], strict: bool) -> None:
        try:
            jobs = tuple(job for one in chosen for job in one.jobs)
            answers = iter(await self._connection.submit(jobs, strict))
        except Exception as error:  # whatever it is: who waits must hear of it
            for one in chosen:
                _fail(one, error)
        else:
            for one in chosen:
                mine = list(islice(answers, len(one.jobs)))
                if not one.answered.done():
                    one.answered.set_result(mine)


def _first(waiting: deque[_Waiting]) -> list[_Waiting]:
    """Takes the requests that make one message."""
    chosen: list[_Waiting] = []
    room = MAX_CHUNK_JOBS
    while waiting and (room := room - len(waiting[0].jobs)) >= 0:
        chosen.append(waiting.popleft())
    return chosen


def _fail(one: _Waiting, error: Exception) -> None:
    if not one.answered.done():
        one.answered.set_exception(error)
