"""Bulks: one action for every job that a search finds, done page by page."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.access import Scope
from longshore.model.job import JobFilter, JobState


class BulkAction(StrEnum):
    """What a bulk does to a job."""

    CANCEL = "cancel"
    RETRY = "retry"
    PRIORITY = "priority"
    MOVE = "move"
    DELETE = "delete"


class BulkState(StrEnum):
    """Where a bulk is."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class NewBulk(Struct, frozen=True, omit_defaults=True):
    """A bulk as it is asked for. `priority` and `queue` are what the actions of these names need.

    `wanted` has no page: a bulk sets `before` and `limit` itself. The dispatcher says `by` and
    `scope`: who asked, and to which jobs that reaches.
    """

    id: UUID
    action: BulkAction
    wanted: JobFilter = JobFilter()
    priority: int | None = None
    queue: str | None = None
    expected: int = 0
    """How many jobs a count found before, for a view of how far it is; 0 if nobody counted."""
    by: str = ""
    scope: Scope = Scope()


class Refusal(Struct, frozen=True):
    """Why jobs were left as they were, how many, and the numbers of a few of them."""

    why: str
    count: int
    examples: tuple[int, ...] = ()


class BulkRun(Struct, frozen=True, kw_only=True):
    """A bulk, and how far it came. It goes from the newest job to the oldest.

    Jobs with numbers past `last` came after it began. It has passed those from `cursor` on, except
    the jobs `left`, which other transactions held; with the cursor at 0 it has passed all.
    """

    new: NewBulk
    number: int
    version: int
    """Raised by each change, so that two dispatchers never do one page twice."""
    state: BulkState
    created_at: datetime
    ended_at: datetime | None = None
    stopped_by: str = ""
    last: int
    cursor: int
    left: tuple[UUID, ...] = ()
    matched: int = 0
    """The jobs that matched when their turn came: those that were `done`, and those refused."""
    done: int = 0
    refused: tuple[Refusal, ...] = ()


class BulkPage(Struct, frozen=True):
    """What the next transaction of a bulk is to look at, and where the cursor is after it."""

    bulk: UUID
    version: int
    jobs: tuple[UUID, ...]
    cursor: int


class BulkAdvance(Struct, frozen=True):
    """What a page did: the bulk after it, and what a dispatcher must see to."""

    bulk: BulkRun
    cancelled: tuple[UUID, ...] = ()
    cancelling: tuple[UUID, ...] = ()
    is_ready: bool = False
    """Whether jobs may be claimed that no claim saw where they are now."""


class BulkPlan(Struct, frozen=True, kw_only=True):
    """What a look at a part of a search counted: nothing was done.

    `go_on` is where the next look begins (`before` of its filter); None if this was the last.
    """

    matched: int
    would: int
    """How many of those the action would be done to."""
    states: dict[JobState, int]
    refused: tuple[Refusal, ...] = ()
    go_on: int | None = None
