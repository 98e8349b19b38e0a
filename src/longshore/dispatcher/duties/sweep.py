"""Sweep: jobs that no live worker owns, because a harvest died half-way."""

from __future__ import annotations

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.pump import Pump
from longshore.ports import Store


class Sweep:
    """Frees jobs that are owned by a worker that is not alive."""

    def __init__(self, store: Store, crash_limit: int, scheduler: Scheduler, pump: Pump) -> None:
        self._store = store
        self._crash_limit = crash_limit
        self._scheduler = scheduler
        self._pump = pump

    async def sweep(self) -> None:
        """Frees those there are."""
        harvested = await self._store.sweep(self._crash_limit)
        self._scheduler.lanes.mark_ready(harvested.lanes)
        if harvested.requeued:
            self._pump.wake()
