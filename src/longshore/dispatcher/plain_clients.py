"""Clients of the plain dialogue: one frame is a job, one frame is its result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from longshore.dispatcher.commits import Answer, Commits
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.tasks import Tasks
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.errors import InvalidInput, LongshoreError, StoreLost, Unavailable
from longshore.model.job import Ended, Options, Refused, Submission
from longshore.payload.values import within
from longshore.ports import Link
from longshore.wire import plain

log = logging.getLogger("longshore.dispatcher")

Answers = asyncio.Future[list[Answer]]


class PlainClients:
    """Submits what plain clients send, and answers each once with the outcome of its job."""

    def __init__(self, environment: Environment, commits: Commits, waiters: Waiters[Ended]) -> None:
        self._settings = environment.settings
        self._new_id = environment.new_id
        self._commits = commits
        self._waiters = waiters
        self._tasks = Tasks()

    def receive(self, link: Link, peer: bytes, frames: Sequence[bytes]) -> None:
        """Two frames came from a client of this link. Frames that are no job are dropped."""
        job = plain.only(frames)
        if not job:
            log.debug("dropped a plain message from client %s", peer.hex())
            return
        try:
            self._check(job)
        except LongshoreError as error:
            _send(link, peer, plain.refusal(error.code, str(error)))
            return
        self._accept(link, peer, job)

    def _accept(self, link: Link, peer: bytes, job: bytes) -> None:
        id = self._new_id()
        waiter: Waiter[Ended] = Waiter([id], every=True)
        self._waiters.add(waiter)
        submission = Submission(id, plain.KIND, job, options=Options(raw=True))
        # The task may wait for days, so it must not hold the job's bytes.
        work = self._answer(link, peer, id, waiter, self._commits.submit([submission]))
        self._tasks.start(work)

    def _check(self, job: bytes) -> None:
        if len(self._tasks) >= self._settings.max_plain_requests:
            limit = self._settings.max_plain_requests
            raise Unavailable(
                f"{limit:,} jobs of plain clients have not ended (max_plain_requests); try again"
            )
        self._commits.check_room(1, len(job))
        within(job, "the job", self._settings.max_value_bytes)
        if job == plain.PONG:
            raise InvalidInput("a worker would take a job that reads PONG for a PONG; change it")

    async def _answer(
        self, link: Link, peer: bytes, id: UUID, waiter: Waiter[Ended], submitted: Answers
    ) -> None:
        try:
            (answer,) = await submitted
            if isinstance(answer, Refused):
                frames = plain.refusal(answer.code, answer.message)
            else:
                await waiter.done.wait()
                frames = plain.outcome(waiter.ended[id])
        except StoreLost as error:
            frames = plain.refusal(error.code, str(error))
        finally:
            self._waiters.remove(waiter, [id])
        _send(link, peer, frames)

    async def close(self) -> None:
        """Stops waiting. The jobs go on without their clients."""
        await self._tasks.cancel()


def _send(link: Link, peer: bytes, frames: list[bytes]) -> None:
    if not link.send(peer, frames):
        log.debug("plain client %s is gone; its job's outcome stays in the store", peer.hex())
