"""`Handle`: a submitted job, and what can be asked of it.

The work is done in methods that end in `_async`, for coroutines. `blocking` makes of each the
method without the suffix.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from longshore.client.clients import Clients, blocking
from longshore.client.connection import all_of, in_parts
from longshore.client.logs import read_logs
from longshore.client.outcomes import MAX_IDS, REQUESTS_IN_FLIGHT, look_for, pruned
from longshore.core.group_words import shown_state
from longshore.core.limits import check_timeout
from longshore.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobUnsuccessful,
    LongshoreError,
    NotFinished,
    NotFound,
)
from longshore.model.job import CancelVerdict, Ended, Job, JobState, RetryVerdict
from longshore.model.log import LogLine

R = TypeVar("R")

Unpack = Callable[[bytes | None], R]
"""Turns a stored result into what the function returned."""

_WHY_WITHIN_S = 1.0
LOOK_EVERY_S = 5.0
"""How often a wait for many jobs checks that one of them still exists."""


class Handle(Generic[R]):
    """One job. `existing` says that its unique key led to a job submitted earlier.

    Made from an id alone, it has no `number` (0) and no `kind` ("") until something is asked of it.
    """

    def __init__(
        self,
        access: Clients,
        id: UUID,
        number: int,
        kind: str,
        unpack: Unpack[R],
        *,
        existing: bool = False,
        stored: bool = True,
        known: dict[UUID, Ended] | None = None,
        called: str = "",
        in_group: bool = False,
    ) -> None:
        self.id = id
        self.number = number
        self.kind = kind
        self.existing = existing
        self._access = access.acting()
        self._called = called
        self._unpack = unpack
        self._unpacker: Callable[[Job], Unpack[R]] | None = None
        # Handles that are made on demand share the outcomes that one of them has learnt.
        self._known = {} if known is None else known
        self._in_group = in_group
        # An enqueued job may be missing until its transaction is committed.
        self._stored = stored

    @classmethod
    def of_id(
        cls,
        access: Clients,
        id: UUID,
        unpacker: Callable[[Job], Unpack[R]],
        known: dict[UUID, Ended] | None = None,
    ) -> Handle[R]:
        """The handle of a job known only by its id."""
        handle = cls(access, id, 0, "", _not_looked_at, known=known)
        handle._unpacker = unpacker
        return handle

    def __repr__(self) -> str:
        return f"<Handle of {self._name}{f' {self.id}' if self.number else ''}>"

    @property
    def _name(self) -> str:
        if self._called:
            return f"job {self._called}"
        return f"job {self.number} ({self.kind})" if self.number else f"job {self.id}"

    @property
    def _ended(self) -> Ended | None:
        return self._known.get(self.id)

    @_ended.setter
    def _ended(self, ended: Ended | None) -> None:
        if ended is None:
            self._known.pop(self.id, None)
        else:
            self._known[self.id] = ended

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # looking

    async def job_async(self) -> Job:
        """Everything that the store knows of the job."""
        job = await self._access.connection().job(self.id)
        self._in_group = job.group is not None
        if self._unpacker is not None:
            self.number, self.kind, self._unpack = job.number, job.kind, self._unpacker(job)
            self._unpacker = None
        return job

    job = blocking(job_async)

    async def status_async(self) -> JobState:
        """The state of the job; a map or a sub-group is running until all of it has ended."""
        return shown_state(await self.job_async())

    status = blocking(status_async)

    async def why_async(self) -> str:
        """Why the job is where it is, in words."""
        return (await self._access.connection().why(self.id)).why

    why = blocking(why_async)

    async def logs_async(self, attempt: int | None = None) -> list[LogLine]:
        """The lines that the job printed and logged so far, in all its attempts or in one."""
        return [line async for line in read_logs(self._access.connection(), self.id, attempt)]

    logs = blocking(logs_async)

    # waiting

    async def wait_async(self, timeout_s: float | None = None) -> JobState:
        """Waits for the state in which the job ends; raises `NotFinished` if it takes too long."""
        return (await self._end(timeout_s)).state

    wait = blocking(wait_async)

    async def result_async(self, timeout_s: float | None = None) -> R:
        """Waits for what the job returns.

        Raises `JobFailed` or `JobCancelled` if it ends otherwise, `NotFinished` if it does not end
        within `timeout_s`.
        """
        ended = await self._end(timeout_s)
        if ended.state is not JobState.SUCCEEDED:
            raise unsuccessful(self._name, ended)
        return self._unpack(ended.result)

    result = blocking(result_async)

    async def _end(self, timeout_s: float | None) -> Ended:
        check_timeout("timeout_s", timeout_s)
        if self._unpacker is not None:
            await self.job_async()
        if self._ended is not None:
            return self._ended
        ended = await self._access.outcomes().ended(self.id, timeout_s, stored=self._stored)
        if ended is None:
            raise await self._not_finished(timeout_s)
        if not self._in_group:
            # Of a job of a group it asks again: a retry of the group may open a new round.
            self._ended = ended
        return ended

    async def _not_finished(self, timeout_s: float | None) -> LongshoreError:
        """The error for a job that has not ended in time; it says why, if that is known quickly."""
        try:
            reason = f": {await asyncio.wait_for(self.why_async(), _WHY_WITHIN_S)}"
        except NotFound:
            return pruned(self.id) if self._stored else self._not_committed(timeout_s)
        except (LongshoreError, TimeoutError):
            reason = ""
        return NotFinished(
            f"{self._name} has not ended within {timeout_s:g} s{reason}; "
            "it goes on, and can be waited for again"
        )

    def _not_committed(self, timeout_s: float | None) -> NotFinished:
        return NotFinished(
            f"{self._name} is not there after {timeout_s:g} s: the transaction "
            "that enqueued it has not been committed, or was rolled back; if it is committed, wait "
            "again, and if it was rolled back, enqueue the job again"
        )

    # changing

    async def cancel_async(self) -> CancelVerdict:
        """Cancels the job; the verdict says what that did."""
        answer = (await self._access.connection().cancel((self.id,)))[0]
        if answer.verdict is CancelVerdict.NOT_FOUND:
            raise self._not_found()
        return answer.verdict

    cancel = blocking(cancel_async)

    async def retry_async(self) -> RetryVerdict:
        """Runs the job again if it ended without success; the verdict says what that did."""
        answer = (await self._access.connection().retry((self.id,)))[0]
        if answer.verdict is RetryVerdict.NOT_FOUND:
            raise self._not_found()
        self._ended = None
        return answer.verdict

    retry = blocking(retry_async)

    def _not_found(self) -> NotFound:
        return NotFound(f"there is no job {self.id} (any more)")


def _not_looked_at(data: bytes | None) -> NoReturn:
    raise AssertionError("a result was unpacked before its job was looked at")


def unsuccessful(who: str, ended: Ended) -> JobUnsuccessful:
    """The error for a job that ended without success."""
    error = ended.error
    what = "" if error is None else f": {f'{error.type}: ' if error.type else ''}{error.message}"
    if ended.state is JobState.CANCELLED:
        return JobCancelled(f"{who} was cancelled{what}")
    said = "failed" if ended.state is JobState.FAILED else f"ended as {ended.state.value}"
    if error is None:
        return JobFailed(f"{who} {said}", reason=ended.state.value)
    return JobFailed(
        f"{who} {said}{what}",
        reason=error.reason.value,
        type=error.type,
        traceback=error.traceback,
    )


def handles_of(handles: Iterable[Handle[R]]) -> list[Handle[R]]:
    """A list of the handles; raises `InvalidInput` for anything else."""
    if not isinstance(handles, Iterable):
        raise InvalidInput(f"{handles!r} is not a list of handles; give a list, like [handle]")
    found = list(handles)
    for handle in found:
        if not isinstance(handle, Handle):
            raise InvalidInput(
                f"{handle!r} is not a handle; give what submit(…), or app.handle(…) for an id or a "
                "number, gives"
            )
    return found


async def as_ended_async(
    access: Clients, handles: Iterable[Handle[R]], timeout_s: float | None
) -> AsyncGenerator[Handle[R], None]:
    """The handles in the order in which their jobs end, each with its outcome."""
    check_timeout("timeout_s", timeout_s)
    waiting: dict[UUID, list[Handle[R]]] = {}
    for handle in handles:
        waiting.setdefault(handle.id, []).append(handle)
    outcomes = access.outcomes()
    expected = {
        job: outcomes.expect(job, stored=all(handle._stored for handle in same))
        for job, same in waiting.items()
    }
    arrived: asyncio.Queue[asyncio.Future[Ended]] = asyncio.Queue()
    for outcome in expected.values():
        outcome.add_done_callback(arrived.put_nowait)
    until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    try:
        while waiting:
            for ended in await _next_ended(arrived, until) or await _last_look(access, waiting):
                for handle in waiting.pop(ended.id, ()):
                    handle._ended = ended
                    yield handle
    finally:
        for job, outcome in expected.items():
            outcomes.release(job, outcome)


class Awaited(NamedTuple):
    """Jobs that are waited for together."""

    ids: Sequence[UUID]
    uncommitted: Collection[UUID]
    """Jobs that may be missing until the transaction that enqueued them is committed."""
    learn: Callable[[Mapping[UUID, Ended]], object]
    """Tells the handles how their jobs ended."""


def awaited(handles: Sequence[Handle[Any]]) -> Awaited:
    """The jobs of these handles."""

    def learn(ended: Mapping[UUID, Ended]) -> None:
        for handle in handles:
            handle._ended = ended[handle.id]

    return Awaited([handle.id for handle in handles], _uncommitted(handles), learn)


def _uncommitted(handles: Iterable[Handle[Any]]) -> set[UUID]:
    return {handle.id for handle in handles if not handle._stored}


async def all_ended_async(
    access: Clients, waited: Awaited, timeout_s: float | None
) -> list[JobState]:
    """The states the jobs ended in, in the order given, asked for some at a time."""
    check_timeout("timeout_s", timeout_s)
    loop = asyncio.get_running_loop()
    until = float("inf") if timeout_s is None else loop.time() + timeout_s
    jobs = list(dict.fromkeys(waited.ids))
    room = asyncio.Semaphore(REQUESTS_IN_FLIGHT)

    async def ask(some: Sequence[UUID]) -> list[Ended]:
        connection, found, missing = access.connection(), list[Ended](), list(some)
        async with room:
            while missing:
                left_s = max(0.0, until - loop.time())
                found += await connection.wait(missing, min(left_s, LOOK_EVERY_S), every=True)
                known = {one.id for one in found}
                missing = [job for job in some if job not in known]
                if left_s <= LOOK_EVERY_S:
                    break
                for job in missing[:1]:
                    if job not in waited.uncommitted:
                        await look_for(connection, job)
        return found

    found = await all_of(ask(part) for part in in_parts(jobs, MAX_IDS))
    ended = {one.id: one for part in found for one in part}
    if len(ended) < len(jobs):
        raise _not_finished([job for job in jobs if job not in ended], waited.uncommitted)
    waited.learn(ended)
    return [ended[job].state for job in waited.ids]


async def _next_ended(
    arrived: asyncio.Queue[asyncio.Future[Ended]], until: float | None
) -> tuple[Ended, ...]:
    try:
        async with asyncio.timeout_at(until):
            outcome = await arrived.get()
    except TimeoutError:
        return ()
    return (outcome.result(),)


async def _last_look(
    access: Clients, waiting: Mapping[UUID, Sequence[Handle[Any]]]
) -> tuple[Ended, ...]:
    """When the time is up, the jobs that have ended; raises `NotFinished` if none has."""
    found = await access.connection().wait(tuple(waiting), 0)
    if not found:
        handles = itertools.chain.from_iterable(waiting.values())
        raise _not_finished(waiting, _uncommitted(handles))
    return found


def _not_finished(jobs: Collection[UUID], uncommitted: Collection[UUID]) -> NotFinished:
    if len(jobs) == 1:
        who, rest = "1 job has", "it goes on, and can be waited for again"
    else:
        who, rest = f"{len(jobs):,} jobs have", "they go on, and can be waited for again"
    enqueued = sum(job in uncommitted for job in jobs)
    if enqueued:
        # It does not ask which of them: there may be many.
        rest = (
            f"what was enqueued ({enqueued:,} of {len(jobs):,}) is not there if its transaction "
            f"was rolled back or has not been committed; otherwise {rest}"
        )
    return NotFinished(f"{who} not ended within the time given; {rest}")
