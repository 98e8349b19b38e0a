"""What clients do to schedules: make them, pause, resume and trigger them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from longshore.client.connection import Connection
from longshore.client.schedule_requests import ScheduleRequests
from longshore.model.schedule import Schedule
from longshore.testing.simulation.actor_clients import patiently
from longshore.testing.simulation.schedule_plans import ScheduleAct, SchedulePlan


class OnSchedules(Protocol):
    """Is told what clients were told."""

    def made(self, schedule: Schedule) -> None:
        """A schedule was accepted."""

    def triggered(self, subject: UUID) -> None:
        """A run by hand was accepted."""


async def keep_schedule(
    plan: SchedulePlan, told: OnSchedules, note: Callable[[str], None], connection: Connection
) -> None:
    """Makes a schedule, and does to it what is to be done."""
    await asyncio.sleep(plan.at)
    note(f"makes the schedule {plan.new}")
    schedules = connection.schedules
    told.made(await patiently(lambda: schedules.put(plan.new)))
    for after_s, act in plan.acts:
        await asyncio.sleep(after_s)
        note(f"asks to {act} {plan.name}")
        await _do(schedules, plan.name, act, told)


async def _do(schedules: ScheduleRequests, name: str, act: ScheduleAct, told: OnSchedules) -> None:
    match act:
        case ScheduleAct.PAUSE | ScheduleAct.RESUME:
            paused = act is ScheduleAct.PAUSE
            await patiently(lambda: schedules.pause(name, paused, "by hand"))
        case ScheduleAct.TRIGGER:
            fire = await patiently(lambda: schedules.trigger(name))
            assert fire.subject is not None, "a trigger submits"
            told.triggered(fire.subject)
