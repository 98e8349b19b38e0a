"""The verbs of `FaultyStore` about schedules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar
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
from longshore.ports import Store

Answer = TypeVar("Answer")


class FaultySchedules:
    """Calls the store, with faults."""

    store: Store

    @abstractmethod
    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to one call of a verb, or the fault in its place."""

    async def put_schedule(self, new: NewSchedule, *, replace: bool = False) -> Schedule | Refused:
        return await self._call(
            "put_schedule", lambda: self.store.put_schedule(new, replace=replace)
        )

    async def remove_schedule(self, name: str, app: str | None = None) -> bool:
        return await self._call("remove_schedule", lambda: self.store.remove_schedule(name, app))

    async def pause_schedule(
        self, name: str, paused: bool, by: str, note: str = ""
    ) -> Schedule | None:
        return await self._call(
            "pause_schedule", lambda: self.store.pause_schedule(name, paused, by, note)
        )

    async def schedule(self, name: str) -> Examined | None:
        return await self._call("schedule", lambda: self.store.schedule(name))

    async def schedules(
        self, after: str = "", most: int = 100, app: str | None = None
    ) -> list[Schedule]:
        return await self._call("schedules", lambda: self.store.schedules(after, most, app))

    async def fires(
        self, schedule: UUID, before: datetime | None = None, most: int = 20
    ) -> list[Fire]:
        return await self._call("fires", lambda: self.store.fires(schedule, before, most))

    async def fires_between(self, schedule: UUID, first: datetime, last: datetime) -> list[Fire]:
        return await self._call(
            "fires_between", lambda: self.store.fires_between(schedule, first, last)
        )

    async def fire_of(self, subject: UUID) -> Fire | None:
        return await self._call("fire_of", lambda: self.store.fire_of(subject))

    async def due_schedules(self, most: int = 500) -> DueSchedules:
        return await self._call("due_schedules", lambda: self.store.due_schedules(most))

    async def record_fires(self, decisions: Sequence[Decision]) -> list[bool]:
        return await self._call("record_fires", lambda: self.store.record_fires(decisions))

    async def pending_fires(self, older_than_s: float, most: int = 500) -> list[PendingFire]:
        return await self._call(
            "pending_fires", lambda: self.store.pending_fires(older_than_s, most)
        )

    async def fires_submitted(self, results: Sequence[FireResult]) -> None:
        await self._call("fires_submitted", lambda: self.store.fires_submitted(results))
