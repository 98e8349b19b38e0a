"""What clients ask of dispatchers about schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from longshore.model.schedule import Fire, NewSchedule, Schedule, ScheduleView, Synced
from longshore.wire import schedule_messages as s


class Exchange(Protocol):
    """Sends a request and gets the answer."""

    def __call__(self, request: s.ScheduleRequest, within_s: float = 0.0) -> Awaitable[Any]:
        """The answer."""


class ScheduleRequests:
    """The requests about schedules, each a method."""

    def __init__(
        self, exchange: Exchange, next_rid: Callable[[], int], new_id: Callable[[], UUID]
    ) -> None:
        self._exchange = exchange
        self._next_rid = next_rid
        self._new_id = new_id

    async def put(self, new: NewSchedule, *, replace: bool = False) -> Schedule:
        """Makes a schedule; with `replace`, changes the one of that name."""
        request = s.PutSchedule(self._next_rid(), self._new_id(), new, replace)
        answer: Schedule = await self._exchange(request)
        return answer

    async def sync(self, app: str, schedules: Sequence[NewSchedule]) -> Synced:
        """Makes the schedules of an app those that it declares now."""
        request = s.SyncSchedules(self._next_rid(), self._new_id(), app, tuple(schedules))
        answer: Synced = await self._exchange(request)
        return answer

    async def pause(self, name: str, paused: bool = True, note: str = "") -> Schedule:
        """Pauses a schedule, or resumes it."""
        request = s.PauseSchedule(self._next_rid(), self._new_id(), name, paused, note)
        answer: Schedule = await self._exchange(request)
        return answer

    async def trigger(self, name: str) -> Fire:
        """Submits what a schedule submits, now."""
        request = s.TriggerSchedule(self._next_rid(), self._new_id(), name)
        answer: Fire = await self._exchange(request)
        return answer

    async def backfill(
        self, name: str, first: datetime, last: datetime, *, dry_run: bool = False
    ) -> tuple[Fire, ...]:
        """Has the times of a span submitted that submitted nothing; answers those.

        With `dry_run`, it only says which they are.
        """
        request = s.BackfillSchedule(self._next_rid(), self._new_id(), name, first, last, dry_run)
        answer: tuple[Fire, ...] = await self._exchange(request)
        return answer

    async def remove(self, name: str) -> bool:
        """Removes a schedule; answers whether there was one."""
        request = s.RemoveSchedule(self._next_rid(), self._new_id(), name)
        answer: bool = await self._exchange(request)
        return answer

    async def show(self, name: str, most: int = 20) -> ScheduleView:
        """One schedule, with its newest fires."""
        answer: ScheduleView = await self._exchange(s.ShowSchedule(self._next_rid(), name, most))
        return answer

    async def list(
        self, after: str = "", most: int = 100, app: str | None = None
    ) -> tuple[Schedule, ...]:
        """Schedules by name, after this one; those of one app, if given."""
        request = s.ListSchedules(self._next_rid(), after, most, app)
        answer: tuple[Schedule, ...] = await self._exchange(request)
        return answer
