"""Sends many messages to actors while later ones are still being described.

Theory. Messages to one actor must arrive in the order in which they are given. So each actor
belongs to one of a few streams, by its name, and a stream has at most one chunk under way: the next
leaves when the last is answered. A dispatcher stores the messages of one request in one
transaction, so what a full mailbox refuses of a chunk is its end, and is sent again in order.

`SendStreams` does everything but wait. `send_all` and `send_all_async` wait, and pull the iterable
in the caller's own thread or on its event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator, Sequence
from math import inf
from typing import Any, Final, Generic, Self, TypeVar, cast
from uuid import UUID
from zlib import crc32

from longshore.client import connection
from longshore.client.clients import Clients
from longshore.core.limits import check_timeout
from longshore.errors import InvalidInput, WrongState, from_code
from longshore.model.actor import Message
from longshore.wire.actor_messages import SendAnswer

STREAMS: Final = 16
"""More streams put more messages to the same actor into a chunk, and so into one turn."""
LOOK_AGAIN_S: Final = 0.05
"""How long a chunk waits before it asks again whether a full mailbox has room."""
ROOM_S: Final = 30.0
"""How long a full mailbox may stay full unless `send_many` says otherwise."""

F = TypeVar("F", bound="concurrent.futures.Future[None] | asyncio.Task[None]")


class MessageCall:
    """A message to an actor that is described, and not sent yet."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message

    def __repr__(self) -> str:
        one = self.message
        return f"<message '{one.name}' to {one.type} '{one.key}', not sent>"

    @property
    def id(self) -> UUID:
        """The id of the message."""
        return self.message.id


class Sending:
    """The account of one `send_many`: what was sent, what was accepted, what was refused."""

    def __init__(self, access: Clients, room_s: float | None) -> None:
        check_timeout("room_s", room_s)
        self.accepted = 0
        self.sent = 0
        self._access = access
        self._room_s = inf if room_s is None else room_s
        self._refused: list[tuple[int, SendAnswer]] = []

    def send(self, chunk: Sequence[tuple[int, Message]]) -> Coroutine[Any, Any, None]:
        """Sends a chunk, of messages with their places, until all of it is answered for good."""
        self.sent += len(chunk)
        return self._send(chunk)

    async def _send(self, chunk: Sequence[tuple[int, Message]]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._room_s
        while chunk:
            messages = tuple([message for _, message in chunk])
            answers = await self._access.connection().actors.send(messages)
            may_wait = loop.time() < until
            full = self._take(chunk, answers, may_wait=may_wait)
            if len(full) < len(chunk):
                until = loop.time() + self._room_s
            chunk = full
            if chunk:
                await asyncio.sleep(LOOK_AGAIN_S)

    def _take(
        self,
        chunk: Sequence[tuple[int, Message]],
        answers: Sequence[SendAnswer],
        *,
        may_wait: bool,
    ) -> list[tuple[int, Message]]:
        """Notes the answers; gives back the messages to send again, to mailboxes that are full."""
        again = []
        for item, answer in zip(chunk, answers, strict=True):
            if not answer.code:
                self.accepted += 1
            elif may_wait and answer.code == WrongState.code:
                again.append(item)
            else:
                self._refused.append((item[0], answer))
        return again

    def check(self) -> None:
        """Raises if some messages were refused."""
        if not self._refused:
            return
        _, first = min(self._refused, key=lambda one: one[0])
        message = first.message
        if self.sent > 1:
            refused = f"{len(self._refused):,} of {self.sent:,} messages were refused"
            message += f" ({refused}, the others accepted)"
        raise from_code(first.code, message)


class _Stream(Generic[F]):
    """The messages of some actors: a chunk that grows, and perhaps one under way."""

    def __init__(self) -> None:
        self.chunk: list[tuple[int, Message]] = []
        self.bytes = 0
        self.under_way: F | None = None


class SendStreams(Generic[F]):
    """Deals messages out to the streams, and starts to send the chunks that are full."""

    def __init__(
        self, sending: Sending, start: Callable[[Coroutine[Any, Any, None]], F], streams: int
    ) -> None:
        self._sending = sending
        self._start = start
        self._streams: list[_Stream[F]] = [_Stream() for _ in range(streams)]
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Gives up what is under way; says how much had been sent, if something was raised."""
        for stream in self._streams:
            future = stream.under_way
            if future is not None and not future.cancel() and not future.cancelled():
                future.exception()  # so that asyncio does not report it as never retrieved
        if isinstance(error, Exception) and self._sending.sent:
            known = f"{self._sending.accepted:,} are known to be accepted"
            error.add_note(f"Of {self._sending.sent:,} messages sent before this, {known}.")

    def add(self, call: object) -> Iterator[F]:
        """Takes a message. What it yields must be waited for first."""
        message = checked(call).message
        stream = self._streams[crc32(f"{message.type} {message.key}".encode()) % len(self._streams)]
        more = wire_size(message)
        if stream.bytes + more > connection.MAX_CHUNK_BYTES:
            yield from self._cut(stream)
        stream.chunk.append((self._count, message))
        stream.bytes += more
        self._count += 1
        if len(stream.chunk) == connection.MAX_CHUNK_JOBS:
            yield from self._cut(stream)

    def _cut(self, stream: _Stream[F]) -> Iterator[F]:
        """Sends the chunk of a stream, after the one that is under way."""
        if stream.under_way is not None:
            future, stream.under_way = stream.under_way, None
            yield future
        chunk, stream.chunk, stream.bytes = stream.chunk, [], 0
        if chunk:
            stream.under_way = self._start(self._sending.send(chunk))

    def finish(self) -> Iterator[F]:
        """Sends the last chunks; yields all that must be waited for."""
        for stream in self._streams:
            yield from self._cut(stream)
        for stream in self._streams:
            yield from self._cut(stream)


def send_all(access: Clients, calls: Iterable[MessageCall], room_s: float | None) -> None:
    """Sends all messages for a caller without an event loop, in whose thread it pulls them."""
    _check_calls(calls)
    sending = Sending(access, room_s)
    with SendStreams(sending, access.start, STREAMS) as streams:
        for call in calls:
            for future in streams.add(call):
                access.finish(future)
        for future in streams.finish():
            access.finish(future)
    sending.check()


async def send_all_async(
    access: Clients,
    calls: Iterable[MessageCall] | AsyncIterable[MessageCall],
    room_s: float | None,
) -> None:
    """Sends all messages for a coroutine."""
    sending = Sending(access, room_s)
    with SendStreams(sending, asyncio.create_task, STREAMS) as streams:
        if isinstance(calls, AsyncIterable):
            async for call in calls:
                await _wait_for(sending, streams.add(call))
        else:
            _check_calls(calls)
            for call in calls:
                await _wait_for(sending, streams.add(call))
        await _wait_for(sending, streams.finish())
    sending.check()


async def _wait_for(sending: Sending, tasks: Iterator[asyncio.Task[None]]) -> None:
    sent = sending.sent
    for task in tasks:
        await task
    if sending.sent > sent:
        await asyncio.sleep(0)  # a chunk is sent before the next one is described


def checked(call: object) -> MessageCall:
    """The described message; raises `InvalidInput` for anything else."""
    if isinstance(call, MessageCall):
        return call
    raise InvalidInput(
        f"{call!r} is no message to an actor; describe one, like ref.upgrade.call(plan='pro')"
    )


def message_calls(calls: object) -> list[MessageCall]:
    """A list of the calls; raises `InvalidInput` for anything else."""
    _check_calls(calls)
    return [checked(call) for call in cast("Iterable[object]", calls)]


def _check_calls(calls: object) -> None:
    if isinstance(calls, AsyncIterable):
        raise InvalidInput(f"{calls!r} is asynchronous; await send_many_async(…), which takes it")
    if not isinstance(calls, Iterable):
        raise InvalidInput(f"{calls!r} is not a list of messages; give [ref.upgrade.call(…)]")


def wire_size(message: Message) -> int:
    """A little more than a message's bytes on the wire."""
    return 128 + len(message.args) + 4 * (len(message.type) + len(message.key) + len(message.name))
