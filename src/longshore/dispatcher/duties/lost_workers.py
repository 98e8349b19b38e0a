"""Lost workers: those that this dispatcher attends, and that fell silent or whose process ended."""

from __future__ import annotations

import asyncio
from typing import Final

from longshore.config import DispatcherSettings
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.roster import Roster
from longshore.ports import Clock, HasEnded

ENDED: Final = "its process ended"


class LostWorkers:
    """Finds the workers that are lost and has them declared so."""

    def __init__(
        self,
        settings: DispatcherSettings,
        clock: Clock,
        roster: Roster,
        attendant: Attendant,
        has_ended: HasEnded,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._roster = roster
        self._attendant = attendant
        self._has_ended = has_ended

    async def find(self) -> None:
        """Looks at every attended worker."""
        asked_at = self._clock.now()
        # A dispatcher that was itself held up must first read what its workers sent meanwhile.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for attendance in self._roster:
            if attendance.is_lost(asked_at, self._settings.lease_s):
                silence = f"not heard of for {self._settings.lease_s:g} s"
                await self._attendant.lose(attendance, silence)
            elif self._has_ended(attendance.info.process):
                await self._attendant.lose(attendance, ENDED)
