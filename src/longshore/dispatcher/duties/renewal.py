"""Renewal: says in the store that this dispatcher lives."""

from __future__ import annotations

from uuid import UUID

from longshore.dispatcher.plain import PlainAttendant
from longshore.dispatcher.pulse import Pulse
from longshore.dispatcher.roster import Roster
from longshore.ports import Clock, Store


class Renewal:
    """Renews the dispatcher's own lease, and starts over if it came too late."""

    def __init__(
        self,
        store: Store,
        dispatcher: UUID,
        name: str,
        *,
        clock: Clock,
        pulse: Pulse,
        roster: Roster,
        plain: PlainAttendant,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._name = name
        self._clock = clock
        self._pulse = pulse
        self._roster = roster
        self._plain = plain

    async def renew(self) -> None:
        """Says in the store that this dispatcher lives."""
        sent_at = self._clock.now()
        await self._store.renew(self._dispatcher, self._name)
        if self._pulse.has_lapsed():
            # They come back by themselves, in sessions that nobody has declared lost.
            self._plain.start_over()
            self._roster.clear()
        self._pulse.renewed(sent_at)
