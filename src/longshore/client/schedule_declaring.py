"""How an app declares schedules: `@app.schedule(…)` on a job, or on a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from longshore.client.clients import Clients
from longshore.client.group import GroupBuilder
from longshore.client.kind import Kind
from longshore.client.schedule_document import ScheduleDocument, as_document, seconds_of
from longshore.core.schedule_limits import check_schedule
from longshore.errors import AppError, LongshoreError
from longshore.model.group import GroupPart
from longshore.model.job import Submission
from longshore.model.schedule import Catchup, NewSchedule, Overlap, Synced

Scheduled = TypeVar("Scheduled")


class DeclaresSchedules:
    """The part of an app that declares schedules."""

    name: str
    _access: Clients
    _new_id: Callable[[], UUID]

    @cached_property
    def _schedules(self) -> dict[str, NewSchedule]:
        return {}

    @property
    def schedules(self) -> Sequence[NewSchedule]:
        """What `schedule` declared."""
        return tuple(self._schedules.values())

    def schedule(
        self,
        *,
        cron: str | Sequence[str] = (),
        every: float | timedelta | None = None,
        tz: str = "UTC",
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        exclude: Sequence[str] = (),
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        jitter: float | timedelta = 0,
        overlap: Overlap | str = Overlap.SKIP,
        catchup: Catchup | str = Catchup.LATEST,
        window: float | timedelta = 86_400,
        count: int = 100,
        grace: float | timedelta = 60,
        pause_after: int = 0,
    ) -> Callable[[Scheduled], Scheduled]:
        """Submits a job, or a group, at these times: put it above `@app.job`.

        It is called like the job unless it has a `name`; `args` are the arguments of the job. It
        begins when `longshore schedules sync` tells the dispatchers of it.
        """
        fields: dict[str, Any] = {
            "cron": cron if isinstance(cron, str) else list(cron),
            "every_s": 0.0 if every is None else seconds_of(every),
            "tz": tz,
            "exclude": list(exclude),
            "starts_at": starts_at,
            "ends_at": ends_at,
            "jitter_s": seconds_of(jitter),
            "overlap": str(overlap),
            "catchup": str(catchup),
            "window_s": seconds_of(window),
            "count": count,
            "grace_s": seconds_of(grace),
            "pause_after": pause_after,
        }

        def declare(what: Scheduled) -> Scheduled:
            job, group, own_name = self._submits(what, args)
            document = as_document({"name": name or own_name, **fields}, "@app.schedule")
            self._add_schedule(document, job, group)
            return what

        return declare

    def _submits(
        self, what: object, args: Mapping[str, Any] | None
    ) -> tuple[Submission | None, GroupPart | None, str]:
        if isinstance(what, Kind):
            return what.call(**(args or {})).submission, None, what.kind
        if isinstance(what, GroupBuilder):
            part = what.take_group(self._new_id(), ())
            return None, part, part.head.name
        raise AppError(
            f"@app.schedule takes a job or a group, not {what!r:.100}; put it above @app.job"
        )

    def _add_schedule(
        self, document: ScheduleDocument, job: Submission | None, group: GroupPart | None
    ) -> None:
        timing, rules = document.timing(), document.rules()
        new = NewSchedule(self._new_id(), document.name, timing, rules, job, group, self.name)
        try:
            check_schedule(new)
        except LongshoreError as error:
            raise AppError(str(error)) from None
        if new.name in self._schedules:
            raise AppError(
                f"the app '{self.name}' already has a schedule '{new.name}'; give one a name=…"
            )
        self._schedules[new.name] = new

    async def sync_schedules_async(self) -> Synced:
        """Tells the dispatchers which schedules the app declares; do so when you deploy it.

        What it declared before and does not any more is removed; what others made is not touched.
        """
        return await self._access.connection().schedules.sync(self.name, self.schedules)

    def sync_schedules(self) -> Synced:
        """Tells the dispatchers which schedules the app declares; do so when you deploy it.

        What it declared before and does not any more is removed; what others made is not touched.
        """
        return self._access.run(self.sync_schedules_async())
