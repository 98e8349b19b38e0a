"""Streams of server-sent events: a job's changes, a group's, a log, the queues.

Dispatchers say that something has changed, not what (`changes`): then the gateway looks. All
streams of one thing share one look, and all streamed jobs one request (`job_changes`). The events
follow from what is seen.
Events have ids, and a client that comes back sends the last one it got (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from longshore.client.connection import Connection
from longshore.config import GatewaySettings
from longshore.errors import LongshoreError, Unavailable
from longshore.gateway.asking import asking
from longshore.gateway.changes import Changes
from longshore.gateway.job_changes import JobChanges
from longshore.gateway.problems import problem

T = TypeVar("T")

EVENT_STREAM: Final = "text/event-stream"
END: Final = "end"
"""The last event of a stream, and its id: who comes back with it gets 204, and stays away."""


class Event(msgspec.Struct, frozen=True):
    """One event of a stream. Without an id it cannot be resumed behind."""

    name: str
    data: Any
    id: str = ""

    def encoded(self) -> bytes:
        """The event as it is sent."""
        head = f"id: {self.id}\n" if self.id else ""
        return (
            f"{head}event: {self.name}\ndata: ".encode() + msgspec.json.encode(self.data) + b"\n\n"
        )


Events = AsyncGenerator[Event, None]


class _Watch(Generic[T]):
    """One thing that is looked at again and again, and those who wait for news of it."""

    def __init__(
        self,
        look: Callable[[], Awaitable[T]],
        until_changed: Callable[[T], Awaitable[None]] | None,
        again_s: Callable[[], float | None],
    ) -> None:
        self._look = look
        self._until_changed = until_changed
        self._again_s = again_s
        self._changed = asyncio.Condition()
        self.seen: T | LongshoreError | None = None
        self.number = 0
        self.watchers = 0
        self.task: asyncio.Task[None]

    async def run(self, changes: Changes, longest_s: float | None = None) -> None:
        """Looks until it is cancelled, whenever something has changed.

        With `until_changed` it looks each `longest_s`, too.
        """
        loop = asyncio.get_running_loop()
        # `until_changed` counts as one who looks for all that use it.
        with changes.looking() if self._until_changed is None else nullcontext():
            while True:
                number, began_at = changes.number, loop.time()
                seen = await self._seen()
                if seen != self.seen:
                    await self._tell(seen)
                if self._until_changed is not None and not isinstance(seen, LongshoreError):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._until_changed(seen), longest_s)
                    continue
                await changes.rest(loop.time() - began_at)
                await changes.after(number, self._again_s())

    async def _seen(self) -> T | LongshoreError:
        try:
            return await self._look()
        except LongshoreError as error:
            # Whoever looks on has seen it already, and hears of it again once a dispatcher answers.
            is_known = isinstance(error, Unavailable) and self.seen is not None
            return self.seen if is_known and self.seen is not None else error

    async def _tell(self, seen: T | LongshoreError) -> None:
        async with self._changed:
            self.seen = seen
            self.number += 1
            self._changed.notify_all()

    async def after(self, number: int) -> tuple[int, T]:
        """What was seen after so many changes, and its number. Raises if it cannot be seen."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.number > number)
        if isinstance(self.seen, LongshoreError):
            raise self.seen
        assert self.seen is not None
        return self.number, self.seen


class Streams:
    """All open streams of a gateway."""

    def __init__(
        self, connection: Connection, settings: GatewaySettings, closing: asyncio.Event
    ) -> None:
        self.connection = connection
        self._settings = settings
        self._closing = closing
        self._open = 0
        self._watches: dict[Hashable, _Watch[Any]] = {}
        self.changes = Changes(connection, settings)
        self.job_changes = JobChanges(connection, self.changes)

    @property
    def open(self) -> int:
        """How many streams are open now."""
        return self._open

    def answer(self, events: Events) -> Response:
        """An answer that streams these events."""
        most = self._settings.max_streams
        if self._open >= most:
            raise Unavailable(f"too many streams are open (max_streams: {most:,}); try again")
        return StreamingResponse(self._bytes(events), media_type=EVENT_STREAM)

    async def _bytes(self, events: Events) -> AsyncGenerator[bytes, None]:
        """The events as they are sent, with comments while there are none."""
        stopping = asyncio.ensure_future(self._closing.wait())
        coming: asyncio.Future[Event | None] | None = None
        self._open += 1
        try:
            yield b": longshore\n\n"
            while True:
                coming = coming or asyncio.ensure_future(anext(events, None))
                ping_s = self._settings.stream_ping_s
                either: list[asyncio.Future[Any]] = [coming, stopping]
                await asyncio.wait(either, timeout=ping_s, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    return
                if not coming.done():
                    yield b": still here\n\n"
                    continue
                event, coming = _result(coming), None
                if event is None:
                    return
                yield event.encoded()
        finally:
            self._open -= 1
            stopping.cancel()
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await coming
            await events.aclose()

    async def news(
        self,
        key: Hashable,
        look: Callable[[], Awaitable[T]],
        until_changed: Callable[[T], Awaitable[None]] | None = None,
        again_s: Callable[[], float | None] = lambda: None,
    ) -> AsyncGenerator[T, None]:
        """What a look sees, and again whenever it sees something else.

        It looks again when `until_changed` returns; without that when anything has changed, or
        after `again_s` of the last look, if that says when it has to.
        """
        # What one token's holder sees, another's may not.
        with self._watching((asking(), key), look, until_changed, again_s) as watch:
            number = 0
            while True:
                number, seen = await watch.after(number)
                yield seen

    @contextmanager
    def _watching(
        self,
        key: Hashable,
        look: Callable[[], Awaitable[T]],
        until_changed: Callable[[T], Awaitable[None]] | None,
        again_s: Callable[[], float | None],
    ) -> Iterator[_Watch[T]]:
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch(look, until_changed, again_s)
            # A token may be revoked although nothing changes.
            longest_s = None if asking() is None else self._settings.stream_idle_poll_s
            watch.task = asyncio.create_task(watch.run(self.changes, longest_s))
        watch.watchers += 1
        try:
            yield watch
        finally:
            watch.watchers -= 1
            if watch.watchers == 0:
                watch.task.cancel()
                del self._watches[key]


def _result(coming: asyncio.Future[Event | None]) -> Event | None:
    """The next event; an error is one too, and the last."""
    try:
        return coming.result()
    except LongshoreError as error:
        return Event("error", problem(error))
