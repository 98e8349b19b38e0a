"""The requests of clients about bulks (see `messages`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from longshore.model.bulk import BulkPlan, BulkRun, NewBulk
from longshore.wire.actor_messages import Numbered


class PlanBulk(Numbered, frozen=True):
    """Count what a bulk would do to the next jobs of its search, and do nothing.

    `before` and `limit` of its filter say which look it is: a client asks until no more are left.
    """

    new: NewBulk


class StartBulk(Numbered, frozen=True):
    """Do one action to every job that a search finds now. Dispatchers do it page by page."""

    id: UUID
    new: NewBulk


class StopBulk(Numbered, frozen=True):
    """Cancel a bulk. What it did stays done."""

    id: UUID
    bulk: UUID | int


class ShowBulk(Numbered, frozen=True):
    """One bulk, and how far it is."""

    bulk: UUID | int


class ListBulks(Numbered, frozen=True):
    """Bulks with lower numbers than this, newest first."""

    before: int | None = None
    most: int = 50


BulkRequest = PlanBulk | StartBulk | StopBulk | ShowBulk | ListBulks

BULK_ANSWERS: Final[dict[type, Any]] = {
    PlanBulk: BulkPlan,
    StartBulk: BulkRun,
    StopBulk: BulkRun,
    ShowBulk: BulkRun,
    ListBulks: tuple[BulkRun, ...],
}
