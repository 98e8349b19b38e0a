"""Drains: workers of this dispatcher that somebody, anywhere, told to leave."""

from __future__ import annotations

from uuid import UUID

from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.pump import Pump
from longshore.dispatcher.roster import Roster
from longshore.ports import Store


class Drains:
    """Tells workers to leave that are to drain, and writes down who drains by itself."""

    def __init__(
        self, store: Store, dispatcher: UUID, roster: Roster, pump: Pump, attendant: Attendant
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._roster = roster
        self._scheduler = roster.scheduler
        self._pump = pump
        self._attendant = attendant

    async def find(self) -> None:
        """Brings the workers and the store to say the same."""
        if not len(self._roster):
            return
        draining = frozenset(await self._store.draining(self._dispatcher))
        if self._attendant.heed_drains(draining):
            self._scheduler.lanes.mark_all()
            self._pump.wake()
        for attendance in self._roster:
            # One that drains by itself said so, and the store may have been away just then.
            if attendance.draining and attendance.info.id not in draining:
                await self._store.set_draining(attendance.info.id, True)
