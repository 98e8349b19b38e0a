"""Schedules: decides what becomes of nominal times that are due, and submits.

The store's clock says what is due; the alarm only says when to ask. Any number of dispatchers do
so: the store takes each decision once.
"""

from __future__ import annotations

from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.schedule_service import ScheduleService


async def fire_schedules(schedules: ScheduleService, alarm: Alarm) -> None:
    """Looks at the schedules that are due, some at a time, and sets the alarm for the next."""
    next_s = await schedules.look()
    if next_s is not None:
        alarm.set_in(max(0.0, next_s))
