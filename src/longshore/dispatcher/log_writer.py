"""Writes log entries to the store. The end of an attempt waits until its entries are written.

While the store is away, entries are kept up to a bound. Past it the oldest are dropped, and leave a
gap between the numbers of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from longshore.core.throttle import Throttle
from longshore.errors import StoreUnavailable
from longshore.model.job import LogEntry
from longshore.ports import Store

log = logging.getLogger("longshore.dispatcher")

MOST_ENTRIES = 50_000
MOST_BYTES = 256 * 1024 * 1024
ENTRIES_PER_WRITE = 2_000
BYTES_PER_WRITE = 16 * 1024 * 1024
LONGEST_PAUSE_S = 1.0


class LogWriter:
    """Writes entries in the order in which they came, some at a time, each once."""

    def __init__(self, store: Store, on_outage: Callable[[StoreUnavailable], None]) -> None:
        self._store = store
        self._on_outage = on_outage
        self._entries: deque[LogEntry] = deque()
        self._bytes = 0
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closing = False
        self._loss = Throttle()
        self.unwritten: dict[int, int] = {}
        """How many entries the store does not have yet, by token."""

    def add(self, entries: Sequence[LogEntry]) -> None:
        """Log entries came."""
        for entry in entries:
            self._entries.append(entry)
            self._bytes += len(entry.data)
            self.unwritten[entry.token] = self.unwritten.get(entry.token, 0) + 1
        surplus = self._surplus()
        if surplus:
            self._remove(surplus)
            self._tell_of_loss(surplus)
        if self._writing is None and self._entries and not self._closing:
            self._writing = asyncio.create_task(self._write())

    def after(self, token: int, act: Callable[[], None]) -> None:
        """Calls `act` once the entries of this attempt are written."""
        if token in self.unwritten:
            self._waiting.setdefault(token, []).append(act)
        else:
            act()

    async def _write(self) -> None:
        pause_s = 0.05
        while self._entries:
            if await self._write_some():
                pause_s = 0.05
            elif self._closing:
                break
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._writing = None

    async def _write_some(self) -> bool:
        """One transaction; False if the store was away."""
        some = self._some()
        try:
            await self._store.log(some)
        except StoreUnavailable as error:
            self._entries.extendleft(reversed(some))
            self._on_outage(error)
            return False
        except Exception:
            # The store will never take these entries: the ends that wait for them must go on.
            log.exception("%d log entries could not be written", len(some))
        self._settle(some)
        return True

    def _some(self) -> list[LogEntry]:
        """The entries to write next, at least one."""
        some: list[LogEntry] = []
        room = BYTES_PER_WRITE
        while self._entries and len(some) < ENTRIES_PER_WRITE:
            room -= len(self._entries[0].data)
            if some and room < 0:
                break
            some.append(self._entries.popleft())
        return some

    def _surplus(self) -> int:
        """How many of the oldest entries to drop."""
        count = max(0, len(self._entries) - MOST_ENTRIES)
        too_many = self._bytes - MOST_BYTES
        if too_many <= 0:
            return count
        for place, entry in enumerate(self._entries):
            if place >= count and too_many <= 0:
                return place
            too_many -= len(entry.data)
        return len(self._entries)

    def _tell_of_loss(self, count: int) -> None:
        lost = self._loss.count(asyncio.get_running_loop().time(), count)
        if lost:
            log.warning("the store does not keep up: %d log entries were dropped", lost)

    def _remove(self, count: int) -> None:
        self._settle([self._entries.popleft() for _ in range(count)])

    def _settle(self, entries: Sequence[LogEntry]) -> None:
        """These entries are written or dropped: ends that waited for the last of them go on."""
        for entry in entries:
            self._bytes -= len(entry.data)
            left = self.unwritten[entry.token] - 1
            if left:
                self.unwritten[entry.token] = left
                continue
            del self.unwritten[entry.token]
            for act in self._waiting.pop(entry.token, ()):
                act()

    async def close(self) -> None:
        """Writes what is left, if the store takes it.

        If it does not, the ends that wait are dropped too. No ACK went out for them, so their
        worker sends ends and entries again, to another dispatcher.
        """
        self._closing = True
        if self._writing is not None:
            await self._writing
