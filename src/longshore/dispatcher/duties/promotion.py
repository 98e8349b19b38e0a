"""Promotion: delayed jobs whose time has come."""

from __future__ import annotations

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.pulse import Alarm
from longshore.dispatcher.pump import Pump
from longshore.ports import Store


class Promotion:
    """Makes delayed jobs ready, and sets the alarm for the next ones."""

    def __init__(self, store: Store, scheduler: Scheduler, pump: Pump, due: Alarm) -> None:
        self._store = store
        self._scheduler = scheduler
        self._pump = pump
        self._due = due

    async def promote(self) -> None:
        """Makes those ready whose time has come."""
        promoted = await self._store.promote()
        if promoted.count:
            # Of lanes past the limit there may be any number: nothing of them is remembered here.
            self._scheduler.lanes.mark_ready(self._scheduler.lanes.known(promoted.lanes))
            self._pump.wake()
        if promoted.next_s is not None:
            self._due.set_in(max(0.0, promoted.next_s))
