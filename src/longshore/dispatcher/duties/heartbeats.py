"""Heartbeats: which workers were heard of lately, and how busy their machines are."""

from __future__ import annotations

from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.roster import Roster
from longshore.wire.dispatcher_side import FullSession


class Heartbeats:
    """Writes down who was heard of since the last time."""

    def __init__(self, environment: Environment, roster: Roster) -> None:
        self._environment = environment
        self._roster = roster
        self._written_at = float("-inf")

    async def write(self) -> None:
        """Writes down who was heard of lately, and how busy their machines are."""
        since, self._written_at = self._written_at, self._environment.clock.now()
        beats = {
            one.worker: one.stats
            for one in self._roster
            if isinstance(one, FullSession) and one.heard_at >= since
        }
        if beats:
            await self._environment.store.beat(self._environment.id, beats)
