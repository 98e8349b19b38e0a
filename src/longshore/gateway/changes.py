"""Waits for changes in what dispatchers know, by one request for all who look.

Theory. Nothing is looked at until something has changed. One task asks a dispatcher to answer when
it has (AWAITCHANGE), as long as anybody looks; each answer wakes all looks. It asks again after
`stream_poll_s`, so that changes which come together cost one look. A hint between dispatchers may
get lost, and silence is no change. So each look happens again after `stream_idle_poll_s` anyhow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from longshore.client.connection import Connection
from longshore.config import GatewaySettings
from longshore.errors import LongshoreError
from longshore.gateway.asking import asked_by
from longshore.wire.messages import ChangeMark

WAIT_S: Final = 5.0
"""How long one request waits. A dispatcher that died is left after that, and a little more."""
UNTOLD_S: Final = 1.0
"""How often looks happen while no dispatcher tells of changes."""
MOST_LOOKS: Final = 40
"""About so many looks happen in a second, however many addresses are open."""


class Changes:
    """Wakes those who look, as long as there are any."""

    def __init__(self, connection: Connection, settings: GatewaySettings) -> None:
        self._connection = connection
        self._poll_s = settings.stream_poll_s
        self._idle_s = settings.stream_idle_poll_s
        self._task: asyncio.Task[None] | None = None
        self._next = asyncio.Event()
        self.number = 0
        """How many changes this gateway has heard of."""
        self.lookers = 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Somebody looks: from now on changes are waited for, until nobody looks any more."""
        self.lookers += 1
        if self._task is None:
            with asked_by(None):
                self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self.lookers -= 1
            if not self.lookers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def after(self, number: int, wait_s: float | None = None) -> None:
        """Returns once there was a change after this number, or after `wait_s`."""
        if number == self.number:
            longest_s = self._idle_s if wait_s is None else min(wait_s, self._idle_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(longest_s):
                    await self._next.wait()

    async def rest(self, took_s: float) -> None:
        """The pause after a look: longer if that took long (a large group), or if many look."""
        await asyncio.sleep(max(self._poll_s, 4 * took_s, self.lookers / MOST_LOOKS))

    async def _run(self) -> None:
        seen: ChangeMark | None = None
        while True:
            pause_s = self._poll_s
            try:
                before, seen = seen, await self._connection.next_change(seen, WAIT_S)
            except LongshoreError:
                # No dispatcher answers, or it is an older one.
                before, seen, pause_s = seen, None, max(UNTOLD_S, self._poll_s)
            if seen is None or seen != before:
                self._wake()
            await asyncio.sleep(pause_s)

    def _wake(self) -> None:
        self.number += 1
        self._next.set()
        self._next = asyncio.Event()
