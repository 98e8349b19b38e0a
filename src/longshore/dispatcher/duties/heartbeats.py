"""Heartbeats: writes to the store which workers sent something, and how busy their machines are."""

from __future__ import annotations

from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.roster import Roster
from longshore.wire.dispatcher_side import FullSession


class Heartbeats:
    """Writes heartbeats of the full workers."""

    def __init__(self, environment: Environment, roster: Roster) -> None:
        self._environment = environment
        self._roster = roster
        self._written_at = float("-inf")

    async def write(self) -> None:
        """Writes which workers sent something since the last time, and their machines' load."""
        since, self._written_at = self._written_at, self._environment.clock.now()
        beats = {
            one.worker: one.stats
            for one in self._roster
            if isinstance(one, FullSession) and one.heard_at >= since
        }
        if beats:
            await self._environment.store.beat(self._environment.id, beats)
