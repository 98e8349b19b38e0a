"""Submits calls while later ones are still being described.

Calls go in chunks, each a message. `CHUNKS_IN_FLIGHT` chunks may be under way, and one more is
described meanwhile, so an iterable is pulled only as fast as a dispatcher accepts. Of an accepted
job only its record remains (`client/handles.py`).

`SubmitStream` does everything but wait. `submit_all` and `submit_all_async` wait, and pull the
iterable in the caller's own thread or on its event loop. A list that fits into one chunk needs no
stream: one coroutine sends it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, contextmanager
from typing import Any, Generic, Self, TypeVar

from longshore.client import connection
from longshore.client.clients import Clients
from longshore.client.connection import wire_size
from longshore.client.handles import Handles, JobRecords
from longshore.client.kind import Call, check_call, check_calls
from longshore.client.progress import SubmitProgress
from longshore.client.tracing import sending
from longshore.errors import from_code
from longshore.wire.messages import SubmitAnswer

R = TypeVar("R")
F = TypeVar("F", bound="concurrent.futures.Future[None] | asyncio.Task[None]")


class Submitting(Generic[R]):
    """The account of one `submit_many`: what was sent, what was accepted, what was refused."""

    def __init__(self, access: Clients, calls: object, *, strict: bool, progress: bool) -> None:
        self.records: JobRecords[R] = JobRecords(access)
        self.progress = SubmitProgress(calls, wanted=progress)
        self.accepted = 0
        self._access = access
        self._strict = strict
        self._refused = 0
        self._first_refused: tuple[int, SubmitAnswer] | None = None

    def send(self, chunk: Sequence[Call[R]]) -> Coroutine[Any, Any, None]:
        """Sends a chunk, whose jobs have their places from now on, and takes its answers."""
        return self._send(chunk, self.records.reserve(chunk))

    async def _send(self, chunk: Sequence[Call[R]], start: int) -> None:
        with sending([call.submission for call in chunk]) as jobs:
            answers = await self._access.connection().submit(jobs, self._strict)
        self.records.fill(start, answers)
        for at, (call, answer) in enumerate(zip(chunk, answers, strict=True), start):
            if answer.code:
                self._refuse(at, answer)
            else:
                call.keep_id()
                self.accepted += 1
        self.progress.advance(len(chunk))

    def _refuse(self, at: int, answer: SubmitAnswer) -> None:
        self._refused += 1
        if self._first_refused is None or at < self._first_refused[0]:
            self._first_refused = (at, answer)

    def handles(self) -> Handles[R]:
        """The handles of all jobs; raises if some were refused."""
        if self._first_refused is None:
            return Handles(self.records)
        first, sent = self._first_refused[1], len(self.records)
        message = first.message
        if sent > 1:
            message += f" ({self._refused:,} of {sent:,} jobs were refused, the others accepted)"
        raise from_code(first.code, message)


class SubmitStream(Generic[R, F]):
    """Cuts what is pulled into chunks, and starts to send each once there is room for it."""

    def __init__(
        self, submitting: Submitting[R], start: Callable[[Coroutine[Any, Any, None]], F]
    ) -> None:
        self._submitting = submitting
        self._start = start
        self._under_way: deque[F] = deque()
        self._chunk: list[Call[R]] = []
        self._bytes = 0
        self._broken: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Gives up what is still under way; raises what the iterable raised, if it did."""
        self._submitting.progress.close()
        for future in self._under_way:
            if not future.cancel() and not future.cancelled():
                future.exception()  # so that asyncio does not report it as never retrieved
        if self._broken is not None and isinstance(error, Exception | None):
            if sent := len(self._submitting.records):
                known = f"{self._submitting.accepted:,} are known to be accepted"
                self._broken.add_note(f"Of {sent:,} jobs sent before this, {known}.")
            raise self._broken

    # pulling

    def chunks(self, calls: Iterable[Call[R]]) -> Iterator[list[Call[R]]]:
        """The calls in chunks, except for the last chunk. It ends where the iterable raises."""
        with self._pulling():
            for call in calls:
                if full := self._add(call):
                    yield full

    async def chunks_async(
        self, calls: Iterable[Call[R]] | AsyncIterable[Call[R]]
    ) -> AsyncGenerator[list[Call[R]], None]:
        """What `chunks` yields, also of an asynchronous iterable."""
        if not isinstance(calls, AsyncIterable):
            for full in self.chunks(calls):
                yield full
            return
        with self._pulling():
            async for call in calls:
                if full := self._add(call):
                    yield full

    @contextmanager
    def _pulling(self) -> Iterator[None]:
        """Keeps what the iterable raises until the chunks under way are answered."""
        try:
            yield
        except Exception as error:
            self._broken = error
            self._chunk = []

    def _add(self, call: Call[R]) -> list[Call[R]]:
        """Adds a call; returns a chunk if one is complete now."""
        check_call(call)
        more = wire_size(call.submission)
        full = self._cut() if self._bytes + more > connection.MAX_CHUNK_BYTES else []
        self._chunk.append(call)
        self._bytes += more
        return self._cut() if len(self._chunk) == connection.MAX_CHUNK_JOBS else full

    def _cut(self) -> list[Call[R]]:
        chunk, self._chunk, self._bytes = self._chunk, [], 0
        return chunk

    # sending

    def send(self, chunk: list[Call[R]]) -> Iterator[F]:
        """Starts to send a chunk. What it yields must be waited for first."""
        if len(self._under_way) == connection.CHUNKS_IN_FLIGHT:
            yield self._under_way.popleft()
        self._under_way.append(self._start(self._submitting.send(chunk)))

    def finish(self) -> Iterator[F]:
        """Sends the last chunk; yields all that must be waited for."""
        if chunk := self._cut():
            yield from self.send(chunk)
        while self._under_way:
            yield self._under_way.popleft()


def submit_all(
    access: Clients, calls: Iterable[Call[R]], *, strict: bool, progress: bool
) -> Handles[R]:
    """Submits all calls for a caller without an event loop, in whose thread it pulls them."""
    check_calls(calls)
    if isinstance(calls, list | tuple) and _is_one_chunk(calls):
        return access.run(_submit_chunk(access, calls, strict))
    submitting: Submitting[R] = Submitting(access, calls, strict=strict, progress=progress)
    with SubmitStream(submitting, access.start) as stream:
        for chunk in stream.chunks(calls):
            for future in stream.send(chunk):
                access.finish(future)
        for future in stream.finish():
            access.finish(future)
    return submitting.handles()


async def submit_all_async(
    access: Clients,
    calls: Iterable[Call[R]] | AsyncIterable[Call[R]],
    *,
    strict: bool,
    progress: bool,
) -> Handles[R]:
    """Submits all calls for a coroutine."""
    if not isinstance(calls, AsyncIterable):
        check_calls(calls)
    if isinstance(calls, list | tuple) and _is_one_chunk(calls):
        return await _submit_chunk(access, calls, strict)
    submitting: Submitting[R] = Submitting(access, calls, strict=strict, progress=progress)
    with SubmitStream(submitting, asyncio.create_task) as stream:
        async with aclosing(stream.chunks_async(calls)) as chunks:
            async for chunk in chunks:
                for task in stream.send(chunk):
                    await task
                await asyncio.sleep(0)  # it is sent before the next one is described
        for task in stream.finish():
            await task
    return submitting.handles()


async def _submit_chunk(access: Clients, calls: Sequence[Call[R]], strict: bool) -> Handles[R]:
    submitting: Submitting[R] = Submitting(access, calls, strict=strict, progress=False)
    await submitting.send(calls)
    return submitting.handles()


def _is_one_chunk(calls: Sequence[Call[R]]) -> bool:
    if not 0 < len(calls) <= connection.MAX_CHUNK_JOBS:
        return False
    return sum([wire_size(call.submission) for call in calls]) <= connection.MAX_CHUNK_BYTES
