"""Waits for the outcomes of many jobs in few requests.

Many tasks may wait for a job each. One request asks for many ids, and after its answer the ids that
are left join the next request. The pause before that grows with the number of ids, so that a
dispatcher is asked for at most 20,000 ids a second: a single waiter hears at once, one of 10,000
within half a second. A dispatcher limits how many jobs a client may wait for; past `MOST_ASKED` the
ids take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from longshore.client.connection import Connection
from longshore.errors import LongshoreError, NotFound
from longshore.model.job import Ended

PACE_S = 1 / 20_000
MAX_IDS = 500
MOST_ASKED = 50_000
"""Half of what a dispatcher allows by default (`max_peer_waited_jobs`)."""
REQUESTS_IN_FLIGHT = 4


async def look_for(connection: Connection, job: UUID) -> None:
    """Raises `NotFound` if a stored job no longer exists."""
    try:
        await connection.job(job)
    except NotFound:
        raise pruned(job) from None


def pruned(job: UUID) -> NotFound:
    """The error for a stored job that no longer exists."""
    return NotFound(
        f"there is no job {job} any more: it was pruned before its outcome was asked for; "
        "keep jobs for longer (keep_succeeded_s, keep_failed_s, keep_most)"
    )


class _Expected:
    """A job that is waited for, and by how many waiters."""

    def __init__(self, outcome: asyncio.Future[Ended], stored: bool) -> None:
        self.outcome = outcome
        self.stored = stored
        self.waiters = 0


class Outcomes:
    """Waits for jobs on behalf of all tasks of one event loop."""

    def __init__(
        self, connection: Connection, *, pace_s: float = PACE_S, slice_s: float = 5.0
    ) -> None:
        self._connection = connection
        self._pace_s = pace_s
        self._slice_s = slice_s
        self._expected: dict[UUID, _Expected] = {}
        self._unasked: dict[UUID, None] = {}
        self._asked: set[UUID] = set()
        self._asked_at = float("-inf")
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._requests: set[asyncio.Task[None]] = set()

    async def ended(
        self, job: UUID, timeout_s: float | None, *, stored: bool = True
    ) -> Ended | None:
        """A job's outcome, or None if it does not end in time."""
        outcome = self.expect(job, stored=stored)
        try:
            await asyncio.wait((outcome,), timeout=timeout_s)
            if outcome.done():
                return outcome.result()
        finally:
            self.release(job, outcome)
        # A last look: the job may have ended since the last request.
        found = await self._connection.wait((job,), 0)
        return found[0] if found else None

    def expect(self, job: UUID, *, stored: bool = True) -> asyncio.Future[Ended]:
        """The future outcome of a job. Waiters share it: do not cancel it, but `release` it.

        It raises `NotFound` for a job that was `stored` and has been pruned.
        """
        expected = self._expected.get(job)
        if expected is None:
            future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
            expected = self._expected[job] = _Expected(future, stored)
            self._queue([job])
        expected.waiters += 1
        return expected.outcome

    def release(self, job: UUID, outcome: asyncio.Future[Ended]) -> None:
        """Ends the wait of one caller of `expect`."""
        expected = self._expected.get(job)
        if expected is not None and expected.outcome is outcome:
            expected.waiters -= 1
            if expected.waiters == 0:
                del self._expected[job]
                self._unasked.pop(job, None)

    def _queue(self, jobs: Sequence[UUID]) -> None:
        self._unasked.update((job, None) for job in jobs if job not in self._asked)
        if self._timer is None and self._unasked:
            loop = asyncio.get_running_loop()
            at = self._asked_at + self._pace_s * min(len(self._expected), MOST_ASKED)
            self._timer = loop.call_later(max(0.0, at - loop.time()), self._ask)

    def _ask(self) -> None:
        self._timer = None
        self._asked_at = asyncio.get_running_loop().time()
        jobs = list(islice(self._unasked, max(0, MOST_ASKED - len(self._asked))))
        for job in jobs:
            del self._unasked[job]
        self._asked.update(jobs)
        for start in range(0, len(jobs), MAX_IDS):
            task = asyncio.ensure_future(self._hear_of(jobs[start : start + MAX_IDS]))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    async def _hear_of(self, jobs: Sequence[UUID]) -> None:
        """Asks once; jobs that have not ended join the next request."""
        try:
            ended = await self._connection.wait(jobs, self._slice_s)
        except Exception as error:
            for job in jobs:
                self._fail(job, error)
            self._queue([])
            return
        finally:
            self._asked.difference_update(jobs)
        for outcome in ended:
            self._tell(outcome)
        if not ended:
            await self._look_for_one(jobs)
        self._queue([job for job in jobs if job in self._expected])

    async def _look_for_one(self, jobs: Sequence[UUID]) -> None:
        """Checks that one of the jobs, another one each time, still exists."""
        stored = [job for job in jobs if job in self._expected and self._expected[job].stored]
        if not stored:
            return
        self._looks += 1
        job = stored[self._looks % len(stored)]
        try:
            await look_for(self._connection, job)
        except NotFound as error:
            self._fail(job, error)
        except LongshoreError:
            return  # the next request meets this error too, and raises it

    def _tell(self, outcome: Ended) -> None:
        expected = self._expected.pop(outcome.id, None)
        if expected is not None:
            expected.outcome.set_result(outcome)

    def _fail(self, job: UUID, error: Exception) -> None:
        expected = self._expected.pop(job, None)
        if expected is not None:
            expected.outcome.set_exception(error)
            expected.outcome.exception()  # marks it as retrieved: there may be no waiter left
