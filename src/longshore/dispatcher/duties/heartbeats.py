"""Heartbeats: which workers were heard of lately, and how busy their machines are."""

from __future__ import annotations

from uuid import UUID

from longshore.dispatcher.roster import Roster
from longshore.ports import Clock, Store
from longshore.wire.dispatcher_side import FullAttendance


class Heartbeats:
    """Writes down who was heard of since the last time."""

    def __init__(self, store: Store, dispatcher: UUID, clock: Clock, roster: Roster) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._clock = clock
        self._roster = roster
        self._written_at = float("-inf")

    async def write(self) -> None:
        """Writes down who was heard of lately, and how busy their machines are."""
        since, self._written_at = self._written_at, self._clock.now()
        beats = {
            one.info.id: one.stats
            for one in self._roster
            if isinstance(one, FullAttendance) and one.heard_at >= since
        }
        if beats:
            await self._store.beat(self._dispatcher, beats)
