"""The requests of clients about schedules (see `messages`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from longshore.model.schedule import Fire, NewSchedule, Schedule, ScheduleView, Synced
from longshore.wire.actor_messages import Numbered


class PutSchedule(Numbered, frozen=True):
    """Make a schedule; with `replace`, change the one of that name."""

    id: UUID
    new: NewSchedule
    replace: bool = False


class SyncSchedules(Numbered, frozen=True):
    """Make the schedules of an app those that it declares now.

    Those that it declared before and does not any more are removed; no others are touched.
    """

    id: UUID
    app: str
    schedules: tuple[NewSchedule, ...] = ()


class PauseSchedule(Numbered, frozen=True):
    """Pause a schedule, or resume it: while it is paused, its times are skipped."""

    id: UUID
    name: str
    paused: bool
    note: str = ""


class TriggerSchedule(Numbered, frozen=True):
    """Submit what a schedule submits now, whatever runs."""

    id: UUID
    name: str


class BackfillSchedule(Numbered, frozen=True):
    """Submit, one after the other, what the times of a span did not submit.

    With `dry_run`, only say which times these are.
    """

    id: UUID
    name: str
    first: datetime
    last: datetime
    dry_run: bool = False


class RemoveSchedule(Numbered, frozen=True):
    """Remove a schedule. What it submitted stays."""

    id: UUID
    name: str


class ShowSchedule(Numbered, frozen=True):
    """One schedule, with its newest fires and what it waits for."""

    name: str
    most: int = 20


class ListSchedules(Numbered, frozen=True):
    """Schedules by name, after this one; those of one app, if given."""

    after: str = ""
    most: int = 100
    app: str | None = None


ScheduleRequest = (
    PutSchedule
    | SyncSchedules
    | PauseSchedule
    | TriggerSchedule
    | BackfillSchedule
    | RemoveSchedule
    | ShowSchedule
    | ListSchedules
)

SCHEDULE_ANSWERS: Final[dict[type, Any]] = {
    PutSchedule: Schedule,
    SyncSchedules: Synced,
    PauseSchedule: Schedule,
    TriggerSchedule: Fire,
    BackfillSchedule: tuple[Fire, ...],
    RemoveSchedule: bool,
    ShowSchedule: ScheduleView,
    ListSchedules: tuple[Schedule, ...],
}
