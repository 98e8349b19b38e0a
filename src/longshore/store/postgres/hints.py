"""Hints between processes: by NOTIFY, or by a glance at a sequence where listening is impossible.

A hint is never part of the transaction it tells of: NOTIFY locks the whole database until the
commit. It is sent afterwards, together with the other hints of the same `PAUSE_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final
from uuid import uuid4

from longshore.ports import Hint
from longshore.store.postgres.address import Address, Connection, connect

CHANNEL: Final = "longshore"
PAUSE_S: Final = 0.02
RUMOUR_S: Final = 0.1
"""How often others are told of what only those who look at it wait for."""
POLL_S: Final = 0.5
PING_S: Final = 10.0
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0


class Sender:
    """Tells others, at most once in `pause_s`. A hint that cannot be sent is lost."""

    def __init__(
        self, send: Callable[[str], Awaitable[None]], name: str = "", pause_s: float = PAUSE_S
    ) -> None:
        self.name = name or uuid4().hex
        self._send = send
        self._pause_s = pause_s
        self._pending: set[Hint] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def tell(self, *hints: Hint) -> None:
        """Others will hear of this soon."""
        self._pending.update(hints)
        if self._pending and self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._pending:
                words = " ".join([self.name, *sorted(self._pending)])
                self._pending.clear()
                with suppress(Exception):
                    await self._send(
                        "BEGIN; SET LOCAL synchronous_commit = off; "
                        f"SELECT pg_notify('{CHANNEL}', '{words}'); COMMIT"
                    )
                await asyncio.sleep(self._pause_s)
        finally:
            self._task = None

    async def close(self) -> None:
        """Sends what is pending, and nothing after that."""
        self._closed = True
        if self._task is not None:
            await self._task


class _Watcher:
    """The hints for one caller of `watch`. One told twice before the caller looks counts once."""

    def __init__(self) -> None:
        self._pending: dict[Hint | None, None] = {}
        self._some = asyncio.Event()

    def tell(self, hints: Iterable[Hint | None]) -> None:
        """Hands hints to the caller; None ends its `watch`."""
        self._pending.update(dict.fromkeys(hints))
        if self._pending:
            self._some.set()

    async def next(self) -> Hint | None:
        await self._some.wait()
        hint = next(iter(self._pending))
        del self._pending[hint]
        if not self._pending:
            self._some.clear()
        return hint


class Listener:
    """Hears what others tell, as long as there is a watcher.

    With an address it listens there. Without one it asks `glance` for a number that changes
    whenever a job does.
    """

    def __init__(
        self,
        own_name: str,
        address: Address | None,
        glance: Callable[[], Awaitable[int]],
        timeout_s: float,
    ) -> None:
        self._own_name = own_name
        self._address = address
        self._glance = glance
        self._timeout_s = timeout_s
        self._retry_s = FIRST_RETRY_S
        self._watchers: list[_Watcher] = []
        self._task: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncIterator[Hint]:
        """Hints, until the store is closed."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            while (hint := await watcher.next()) is not None:
                yield hint
        finally:
            self._watchers.remove(watcher)
            if not self._watchers:
                await self._stop()

    async def close(self) -> None:
        """Ends every `watch`."""
        for watcher in self._watchers:
            watcher.tell([None])
        await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _tell(self, hints: Iterable[Hint]) -> None:
        for watcher in self._watchers:
            watcher.tell(hints)

    async def _run(self) -> None:
        while True:
            # A hint is not worth an error, whatever is wrong with the connection: try again.
            with suppress(Exception):
                await (self._listen(self._address) if self._address else self._poll())
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)

    async def _poll(self) -> None:
        seen = await self._glance()
        while True:
            await asyncio.sleep(POLL_S)
            found = await self._glance()
            if found != seen:
                self._tell(Hint)
            seen = found

    async def _listen(self, address: Address) -> None:
        """Listens until the connection is lost."""
        connection = await connect(
            address, timeout_s=self._timeout_s, command_timeout=self._timeout_s
        )
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._heard)
            self._retry_s = FIRST_RETRY_S
            # Something may have been told while nobody listened.
            self._tell(Hint)
            await self._until_lost(connection, lost)
        finally:
            connection.terminate()

    async def _until_lost(self, connection: Connection, lost: asyncio.Event) -> None:
        while not lost.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await lost.wait()
            except TimeoutError:
                await connection.execute("SELECT 1")

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        name, *words = str(payload).split()
        if name != self._own_name:
            self._tell([hint for hint in Hint if hint.value in words])
