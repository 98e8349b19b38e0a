"""What the engine needs of a store for schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from longshore.model.job import Refused
from longshore.model.schedule import (
    Decision,
    DueSchedules,
    Examined,
    Fire,
    FireResult,
    NewSchedule,
    PendingFire,
    Schedule,
)


class ScheduleStore(Protocol):
    """The verbs of a store about schedules and their fires."""

    async def put_schedule(self, new: NewSchedule, *, replace: bool = False) -> Schedule | Refused:
        """Makes a schedule, or changes the one of that name (`core.schedules.put`)."""

    async def remove_schedule(self, name: str, app: str | None = None) -> bool:
        """Removes a schedule and its fires, if it is the app's (any, if none is given).

        What it submitted stays.
        """

    async def pause_schedule(
        self, name: str, paused: bool, by: str, note: str = ""
    ) -> Schedule | None:
        """Pauses or resumes a schedule; None if there is none. A repeat changes nothing."""

    async def schedule(self, name: str) -> Examined | None:
        """A schedule with its fires that are not settled."""

    async def schedules(
        self, after: str = "", most: int = 100, app: str | None = None
    ) -> list[Schedule]:
        """Schedules by name, from the first after `after` on; those of one app, if given."""

    async def fires(
        self, schedule: UUID, before: datetime | None = None, most: int = 20
    ) -> list[Fire]:
        """Fires of a schedule that begin before this time, newest first."""

    async def fires_between(self, schedule: UUID, first: datetime, last: datetime) -> list[Fire]:
        """Fires of a schedule that stand for times in this span, oldest first."""

    async def fire_of(self, subject: UUID) -> Fire | None:
        """The fire that submitted this job or group, as long as it is kept."""

    async def due_schedules(self, most: int = 500) -> DueSchedules:
        """Schedules that are to be looked at, the most overdue first."""

    async def record_fires(self, decisions: Sequence[Decision]) -> list[bool]:
        """Writes what was decided; answers for each whether it counts.

        One does not if its schedule has another version by now: somebody else was faster, or it is
        gone. Old fires are removed, except those that are not settled.
        """

    async def pending_fires(self, older_than_s: float, most: int = 500) -> list[PendingFire]:
        """Submits that were decided so long ago and are still to be made, oldest first."""

    async def fires_submitted(self, results: Sequence[FireResult]) -> None:
        """These submits were made, or refused: a refused one is skipped. A repeat does nothing."""
