"""Lost workers: finds workers of this dispatcher that fell silent or whose process ended."""

from __future__ import annotations

import asyncio
from typing import Final

from longshore.core.leases import lease_for
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.losses import Losses
from longshore.ports import HasEnded

ENDED: Final = "its process ended"


async def find_lost(environment: Environment, losses: Losses, has_ended: HasEnded) -> None:
    """Declares workers lost that fell silent or whose process ended."""
    asked_at, lease_s = environment.clock.now(), environment.settings.lease_s
    # A dispatcher that was busy or asleep must first read what its workers sent meanwhile.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for session in losses.roster:
        if session.is_lost(asked_at, lease_s):
            silent_s = lease_for(session.info, lease_s)
            await losses.lose_silent(session, f"not heard of for {silent_s:g} s")
        elif has_ended(session.info.process):
            await losses.lose_silent(session, ENDED)
