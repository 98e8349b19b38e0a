"""Schedules over HTTP: make, list, show, preview, pause, trigger, backfill, remove."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from starlette.responses import Response

from longshore.client.schedule_document import ScheduleDocument
from longshore.client.schedule_json import (
    fire_json,
    preview_json,
    previewed,
    schedule_json,
    view_json,
)
from longshore.core.schedule_limits import MAX_NOTE_CHARS
from longshore.errors import NotFound
from longshore.gateway.ids import new_id
from longshore.gateway.operation import Call, answer

MAX_PREVIEWED: Final = 1000


class PutQuery(Struct, frozen=True):
    """How to make a schedule."""

    replace: bool = False
    """Change the one of that name."""


class SchedulesQuery(Struct, frozen=True):
    """Which schedules to list."""

    after: str = ""
    """Only names after this one: the cursor."""
    app: str | None = None
    """Only those that this app declares."""
    limit: Annotated[int, Meta(ge=1)] = 50


class ScheduleQuery(Struct, frozen=True):
    """How much to show of a schedule."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    """How many fires."""


class PreviewQuery(Struct, frozen=True):
    """How many times to show."""

    count: Annotated[int, Meta(ge=1, le=MAX_PREVIEWED)] = 10


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a schedule is paused."""

    note: Annotated[str, Meta(max_length=MAX_NOTE_CHARS)] = ""


class BackfillBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Which times to backfill: all of this span."""

    first: Annotated[datetime, Meta(tz=True)]
    last: Annotated[datetime, Meta(tz=True)]
    dry_run: bool = False
    """Queue nothing; say which times it would be."""


class ShownFire(Struct, frozen=True):
    """What became of a nominal time, or of `count` in a row up to `last_at`."""

    nominal_at: datetime
    last_at: datetime
    count: int
    fate: str
    why: str
    decided_at: datetime | None
    job: str | None
    group: str | None
    pending: bool
    """Whether the submit, which was decided, is still to be made."""
    outcome: str | None
    ended_at: datetime | None


class ShownSchedule(Struct, frozen=True, kw_only=True):
    """A schedule."""

    id: str
    name: str
    app: str
    """The app that declares it; empty if it was made by hand."""
    by: str
    specs: list[dict[str, Any]]
    exclude: list[str]
    starts_at: datetime | None
    ends_at: datetime | None
    jitter_s: float
    rules: dict[str, Any]
    job: dict[str, Any] | None
    group: dict[str, Any] | None
    paused: bool
    paused_at: datetime | None
    paused_by: str
    note: str
    failures: int
    last_success_at: datetime | None
    decided_to: datetime
    next_look_at: datetime | None
    created_at: datetime


class WholeSchedule(ShownSchedule, frozen=True, kw_only=True):
    """A schedule with its newest fires, and what it waits for in words."""

    why: str
    fires: list[ShownFire]


class ScheduleList(Struct, frozen=True):
    """A page of schedules by name; `next` is the cursor of the page after it."""

    schedules: list[ShownSchedule]
    next: str | None


class NominalTime(Struct, frozen=True):
    """A time to come: as an instant, and as clocks show it in the zone of the first spec."""

    nominal_at: datetime
    local: str


class Preview(Struct, frozen=True):
    """The next times of a schedule."""

    times: list[NominalTime]


class Backfilled(Struct, frozen=True):
    """The times that are queued."""

    fires: list[ShownFire]


class ScheduleRemoved(Struct, frozen=True):
    """A schedule that is gone."""

    name: str
    removed: bool


async def put(call: Call) -> Response:
    """Makes a schedule."""
    document = await call.body(ScheduleDocument)
    terms = await call.gateway.kinds.terms_of(kind for kind in document.kinds() if kind)
    new = document.new(new_id, terms)
    made = await call.connection.schedules.put(new, replace=call.query(PutQuery).replace)
    return answer(schedule_json(made), 201 if made.version == 1 else 200)


async def list_schedules(call: Call) -> Response:
    """Lists schedules by name."""
    query = call.query(SchedulesQuery)
    limit = min(query.limit, call.settings.max_page)
    found = await call.connection.schedules.list(query.after, limit, query.app)
    after = found[-1].new.name if len(found) == limit else None
    return answer({"schedules": [schedule_json(one) for one in found], "next": after})


async def show(call: Call) -> Response:
    """Shows a schedule, and what became of its last times."""
    limit = call.query(ScheduleQuery).limit
    return answer(view_json(await call.connection.schedules.show(call.name("name"), limit)))


async def preview(call: Call) -> Response:
    """Shows the next times of a schedule."""
    view = await call.connection.schedules.show(call.name("name"), 1)
    times = previewed(view.schedule, view.now, call.query(PreviewQuery).count)
    return answer({"times": preview_json(times)})


async def pause(call: Call) -> Response:
    """Lets a schedule skip its times."""
    note = (await call.body(PauseBody)).note
    made = await call.connection.schedules.pause(call.name("name"), True, note)
    return answer(schedule_json(made))


async def resume(call: Call) -> Response:
    """Lets a paused schedule go on."""
    made = await call.connection.schedules.pause(call.name("name"), False)
    return answer(schedule_json(made))


async def trigger(call: Call) -> Response:
    """Submits what a schedule submits, now."""
    return answer(fire_json(await call.connection.schedules.trigger(call.name("name"))))


async def backfill(call: Call) -> Response:
    """Submits, one after the other, what the times of a span did not submit."""
    span = await call.body(BackfillBody)
    made = await call.connection.schedules.backfill(
        call.name("name"), span.first, span.last, dry_run=span.dry_run
    )
    return answer({"fires": [fire_json(fire) for fire in made]})


async def remove(call: Call) -> Response:
    """Removes a schedule."""
    name = call.name("name")
    if not await call.connection.schedules.remove(name):
        raise NotFound(f"there is no schedule '{name}'")
    return answer({"name": name, "removed": True})
