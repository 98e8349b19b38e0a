"""Bulks: does the next page of each that runs.

Any number of dispatchers do so: each page counts once. One that was too late leaves the bulk to
the faster one for a while.
"""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.bulk_service import BulkService, Turn

YIELD_S: Final = 1.0
"""So long a dispatcher leaves bulks to another one that was faster."""
HELD_S: Final = 0.2
"""So long it leaves jobs alone that other transactions hold."""


async def do_bulks(bulks: BulkService, alarm: Alarm) -> None:
    """Does a page of each bulk that runs, and sets the alarm for the next."""
    for turn in await bulks.look():
        match turn:
            case Turn.AGAIN:
                alarm.set_in(0)
            case Turn.HELD:
                alarm.set_in(HELD_S)
            case Turn.LATE:
                alarm.set_in(YIELD_S)
            case Turn.OVER:
                pass
