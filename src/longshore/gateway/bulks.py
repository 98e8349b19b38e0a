"""Bulks over HTTP: count what an action would do, begin it, look at it, cancel it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, structs
from starlette.responses import Response

from longshore.client.bulk_json import bulk_json, plan_json
from longshore.client.searching import searched
from longshore.core.access import Right
from longshore.core.bulks import check_bulk
from longshore.core.limits import MAX_PRIORITY, MAX_SEARCH_CHARS, MIN_PRIORITY
from longshore.gateway.ids import new_id
from longshore.gateway.models import Name, Number
from longshore.gateway.operation import Call, Operation, answer
from longshore.model.bulk import BulkAction, NewBulk
from longshore.model.job import JobFilter

PLAN_LOOKS: Final = 20
"""A plan over HTTP counts so many thousand jobs, and says so if there are more."""


class NewBulkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do to all jobs that a search finds."""

    query: Annotated[str, Meta(min_length=1, max_length=MAX_SEARCH_CHARS)]
    """The search, as `GET /dispatcher/jobs/?q=` takes it."""
    action: BulkAction
    priority: Annotated[int, Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)] | None = None
    """The new priority, for the action `priority`."""
    queue: Name | None = None
    """The queue to move to, for the action `move`."""
    plan: bool = False
    """Only count what it would do."""
    expected: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """How many jobs a plan counted: how far it is then goes by that."""


class BulksQuery(Struct, frozen=True):
    """Which bulks to list."""

    before: Number | None = None
    """Only bulks with a lower number: the cursor."""
    limit: Annotated[int, Meta(ge=1)] = 50


class LeftJobs(Struct, frozen=True):
    """Jobs that were left as they were, and why; `jobs` has the numbers of a few."""

    why: str
    count: int
    jobs: list[int]


class _Asked(Struct, frozen=True, kw_only=True):
    action: BulkAction
    priority: int | None
    queue: str | None
    query: str


class ShownPlan(_Asked, frozen=True, kw_only=True):
    """What a bulk would do. Unless it is `complete`, there are more jobs than it counted."""

    plan: bool
    matched: int
    complete: bool
    would: int
    """To how many of these the action can be done."""
    states: dict[str, int]
    refused: list[LeftJobs]


class ShownBulk(_Asked, frozen=True, kw_only=True):
    """A bulk, and how far it is."""

    id: str
    number: int
    state: str
    by: str
    created_at: datetime
    ended_at: datetime | None
    stopped_by: str
    progress: float
    """From 0 to 1."""
    expected: int
    matched: int
    """The jobs that matched when their turn came."""
    done: int
    refused: list[LeftJobs]


class BulkList(Struct, frozen=True):
    """A page of bulks, newest first; `next` is the cursor of the page after it."""

    bulks: list[ShownBulk]
    next: int | None


async def start(call: Call) -> Response:
    """Begins a bulk, or counts what it would do."""
    body = await call.body(NewBulkBody)
    wanted = await searched(call.connection, body.query, datetime.now(UTC), None, 1)
    new = NewBulk(
        new_id(msgspec.json.encode(body)),
        body.action,
        structs.replace(wanted, limit=JobFilter().limit),
        priority=body.priority,
        queue=body.queue,
        expected=body.expected,
    )
    check_bulk(new)
    if body.plan:
        return answer(plan_json(new, await call.connection.bulks.plan(new, PLAN_LOOKS)))
    return answer(bulk_json(await call.connection.bulks.start(new)), 201)


async def list_bulks(call: Call) -> Response:
    """Lists bulks, newest first."""
    query = call.query(BulksQuery)
    limit = min(query.limit, call.settings.max_page)
    found = await call.connection.bulks.list(query.before, limit)
    after = found[-1].number if len(found) == limit else None
    document: dict[str, Any] = {"bulks": [bulk_json(one) for one in found], "next": after}
    return answer(document, headers=None if after is None else call.next_link(before=after))


async def show(call: Call) -> Response:
    """Shows a bulk, and how far it is."""
    return answer(bulk_json(await call.connection.bulks.show(call.ref("bulk"))))


async def stop(call: Call) -> Response:
    """Cancels a bulk."""
    return answer(bulk_json(await call.connection.bulks.stop(call.ref("bulk"))))


BULK_OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/dispatcher/bulk/",
        id="start_bulk",
        needs=Right.SUBMIT,
        summary="Do something to all jobs that a search finds, or count what it would do.",
        do=start,
        body=NewBulkBody,
        answers={201: ShownBulk, 200: ShownPlan},
    ),
    Operation(
        method="GET",
        path="/dispatcher/bulk/",
        id="list_bulks",
        needs=Right.READ,
        summary="List bulks, newest first.",
        do=list_bulks,
        query=BulksQuery,
        answers={200: BulkList},
    ),
    Operation(
        method="GET",
        path="/dispatcher/bulk/{id}",
        id="show_bulk",
        needs=Right.READ,
        summary="Show a bulk, and how far it is.",
        do=show,
        answers={200: ShownBulk},
    ),
    Operation(
        method="DELETE",
        path="/dispatcher/bulk/{id}",
        id="stop_bulk",
        needs=Right.SUBMIT,
        summary="Cancel a bulk. What it did stays done.",
        do=stop,
        answers={200: ShownBulk},
    ),
)
