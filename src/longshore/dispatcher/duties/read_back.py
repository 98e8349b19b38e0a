"""Read back: what the store has placed on sessions whose claim was answered by nobody."""

from __future__ import annotations

import asyncio

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.pump import Pump, by_session
from longshore.ports import Store


class ReadBack:
    """Clears up doubts about what was given to whom (see `pump.py`)."""

    def __init__(
        self, store: Store, scheduler: Scheduler, pump: Pump, attendant: Attendant
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._pump = pump
        self._attendant = attendant
        self._lock = asyncio.Lock()

    async def read(self) -> None:
        """Reads what doubted sessions own, and gives it to their workers."""
        # One at a time: what was read before a seat was doubted must not clear that doubt up.
        if self._lock.locked():
            return
        async with self._lock:
            seats = self._scheduler.uncertain()
            if not seats or not self._pump.is_certain:
                return
            placed = by_session(await self._store.placed(seats))
            self._scheduler.confirm(seats)
        for seat, claimed in placed.items():
            self._attendant.give(seat, claimed)
        self._pump.wake()
