"""Submits calls while later ones are still being described.

Calls go in chunks, each a message. `CHUNKS_IN_FLIGHT` chunks may be under way, and one more is
described meanwhile, so an iterable is pulled only as fast as a dispatcher accepts. Of an accepted
job only its record remains (`client/handles.py`).

`SubmitStream` keeps the account. Its two users, `submit_all` and `submit_all_async`, differ in how
they wait and in where the iterable is pulled: in the caller's own thread, or on its event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import aclosing
from typing import Generic, Protocol, Self, TypeVar

from longshore.client import connection
from longshore.client.clients import Clients, app_closed
from longshore.client.connection import wire_size
from longshore.client.handles import Handles, JobRecords
from longshore.client.kind import Call, check_call, check_calls
from longshore.client.progress import SubmitProgress
from longshore.errors import from_code
from longshore.wire.messages import SubmitAnswer

R = TypeVar("R")

Answers = tuple[SubmitAnswer, ...]


class _Future(Protocol):
    """What futures of threads and tasks of event loops have in common."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool: ...
    def result(self) -> Answers: ...
    def exception(self) -> BaseException | None: ...


F = TypeVar("F", bound=_Future)


class _Chunk(Generic[R]):
    """The calls that will make the next message."""

    def __init__(self) -> None:
        self._calls: list[Call[R]] = []
        self._bytes = 0

    def add(self, call: Call[R]) -> list[Call[R]]:
        """Adds a call; returns a chunk if one is complete now."""
        more = wire_size(call.submission)
        full = self.rest() if self._bytes + more > connection.MAX_CHUNK_BYTES else []
        self._calls.append(call)
        self._bytes += more
        return self.rest() if len(self._calls) == connection.MAX_CHUNK_JOBS else full

    def rest(self) -> list[Call[R]]:
        """Takes out the calls that it has."""
        calls, self._calls, self._bytes = self._calls, [], 0
        return calls


class SubmitStream(Generic[R, F]):
    """The account of one `submit_many`: what is under way, what was accepted, what was refused."""

    def __init__(self, access: Clients, progress: SubmitProgress) -> None:
        self.under_way: dict[F, tuple[int, list[Call[R]]]] = {}
        self._records: JobRecords[R] = JobRecords(access)
        self._progress = progress
        self._answered = 0
        self._refused = 0
        self._first_refused: tuple[int, SubmitAnswer] | None = None
        self._broken: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Gives up what is still under way."""
        self._progress.close()
        for answers in self.under_way:
            if not answers.cancel() and not answers.cancelled():
                answers.exception()  # so that asyncio does not report it as never retrieved

    # pulling

    def chunks(self, calls: Iterable[Call[R]]) -> Iterator[list[Call[R]]]:
        """The calls in chunks. If the iterable raises, `handles` raises that again."""
        chunk: _Chunk[R] = _Chunk()
        try:
            for call in calls:
                check_call(call)
                if full := chunk.add(call):
                    yield full
        except Exception as error:
            self._broken = error
            return
        if rest := chunk.rest():
            yield rest

    async def chunks_async(
        self, calls: Iterable[Call[R]] | AsyncIterable[Call[R]]
    ) -> AsyncGenerator[list[Call[R]], None]:
        """Does what `chunks` does, also for an asynchronous iterable."""
        if not isinstance(calls, AsyncIterable):
            for full in self.chunks(calls):
                yield full
            return
        chunk: _Chunk[R] = _Chunk()
        try:
            async for call in calls:
                check_call(call)
                if full := chunk.add(call):
                    yield full
        except Exception as error:
            self._broken = error
            return
        if rest := chunk.rest():
            yield rest

    # sending

    def sent(self, chunk: list[Call[R]], answers: F) -> None:
        """A chunk is under way."""
        self.under_way[answers] = (self._records.reserve(chunk), chunk)

    def take_answers(self) -> None:
        """Takes the answers that have come; raises if a chunk got none."""
        for answers in [one for one in self.under_way if one.done()]:
            start, chunk = self.under_way.pop(answers)
            error = app_closed() if answers.cancelled() else answers.exception()
            if error is not None:
                self._raise_broken()
                raise error
            self._take(start, chunk, answers.result())

    def _take(self, start: int, chunk: list[Call[R]], answers: Answers) -> None:
        self._records.fill(start, answers)
        for at, (call, answer) in enumerate(zip(chunk, answers, strict=True), start):
            if not answer.code:
                call.keep_id()
                continue
            self._refused += 1
            if self._first_refused is None or at < self._first_refused[0]:
                self._first_refused = (at, answer)
        self._answered += len(chunk)
        self._progress.advance(len(chunk))

    # ending

    def handles(self) -> Handles[R]:
        """The handles of all jobs; raises if the iterable did, or if some jobs were refused."""
        self._raise_broken()
        if self._first_refused is not None:
            raise self._refusal(self._first_refused[1])
        return Handles(self._records)

    def _raise_broken(self) -> None:
        """Raises what the iterable raised, with a note of what was accepted before."""
        if self._broken is None:
            return
        if sent := len(self._records):
            accepted = self._answered - self._refused
            self._broken.add_note(
                f"Of {sent:,} jobs sent before this, {accepted:,} are known to be accepted."
            )
        raise self._broken

    def _refusal(self, first: SubmitAnswer) -> Exception:
        message, sent = first.message, len(self._records)
        if sent > 1:
            message += f" ({self._refused:,} of {sent:,} jobs were refused, the others accepted)"
        return from_code(first.code, message)


def submit_all(
    access: Clients, calls: Iterable[Call[R]], *, strict: bool, progress: bool
) -> Handles[R]:
    """Submits all calls for a caller without an event loop, in whose thread it pulls them."""
    check_calls(calls)
    bar = SubmitProgress(calls, wanted=progress)
    stream: SubmitStream[R, concurrent.futures.Future[Answers]] = SubmitStream(access, bar)
    with stream:
        for chunk in stream.chunks(calls):
            _wait(stream, connection.CHUNKS_IN_FLIGHT - 1)
            stream.sent(chunk, access.start(_send(access, chunk, strict)))
        _wait(stream, 0)
        return stream.handles()


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
    bar = SubmitProgress(calls, wanted=progress)
    stream: SubmitStream[R, asyncio.Task[Answers]] = SubmitStream(access, bar)
    with stream:
        async with aclosing(stream.chunks_async(calls)) as chunks:
            async for chunk in chunks:
                await _wait_async(stream, connection.CHUNKS_IN_FLIGHT - 1)
                stream.sent(chunk, asyncio.create_task(_send(access, chunk, strict)))
                await asyncio.sleep(0)  # it is sent before the next one is described
        await _wait_async(stream, 0)
        return stream.handles()


async def _send(access: Clients, chunk: list[Call[R]], strict: bool) -> Answers:
    return await access.connection().submit([call.submission for call in chunk], strict)


def _wait(stream: SubmitStream[R, concurrent.futures.Future[Answers]], most: int) -> None:
    """Waits until at most so many chunks are under way."""
    stream.take_answers()
    while len(stream.under_way) > most:
        concurrent.futures.wait(stream.under_way, return_when=concurrent.futures.FIRST_COMPLETED)
        stream.take_answers()


async def _wait_async(stream: SubmitStream[R, asyncio.Task[Answers]], most: int) -> None:
    """Waits until at most so many chunks are under way."""
    stream.take_answers()
    while len(stream.under_way) > most:
        await asyncio.wait(stream.under_way, return_when=asyncio.FIRST_COMPLETED)
        stream.take_answers()
