"""Lost workers: those that this dispatcher attends, and that fell silent or whose process ended."""

from __future__ import annotations

import asyncio
from typing import Final

from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.roster import Roster
from longshore.ports import Clock, HasEnded

ENDED: Final = "its process ended"


async def find_lost(
    lease_s: float, clock: Clock, roster: Roster, attendant: Attendant, has_ended: HasEnded
) -> None:
    """Declares those attended workers lost that are."""
    asked_at = clock.now()
    # A dispatcher that was itself held up must first read what its workers sent meanwhile.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for attendance in roster:
        if attendance.is_lost(asked_at, lease_s):
            await attendant.lose(attendance, f"not heard of for {lease_s:g} s")
        elif has_ended(attendance.info.process):
            await attendant.lose(attendance, ENDED)
