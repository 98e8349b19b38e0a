"""What the engine needs of a store for bulks."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from longshore.model.bulk import BulkAdvance, BulkPage, BulkRun, NewBulk
from longshore.model.job import Refused


class BulkStore(Protocol):
    """The verbs of a store about bulks."""

    async def put_bulk(self, new: NewBulk, most: int) -> BulkRun | Refused:
        """Stores a bulk, which means the jobs there are now; a repeat answers what it stored.

        Refuses it if `most` are running.
        """

    async def bulk(self, ref: UUID | int) -> BulkRun | None:
        """One bulk, by its id or its number."""

    async def bulks(self, before: int | None = None, most: int = 50) -> list[BulkRun]:
        """Bulks with lower numbers than `before`, newest first."""

    async def running_bulks(self) -> list[BulkRun]:
        """The bulks that are not over, oldest first."""

    async def stop_bulk(self, ref: UUID | int, by: str = "") -> BulkRun | None:
        """Cancels a bulk: what it did stays done. None if there is none; a repeat does nothing."""

    async def advance_bulk(self, page: BulkPage) -> BulkAdvance | None:
        """Does the action to those jobs of a page that still match, and notes how far it is.

        None if the bulk is over, or has another version than the page: then nothing was done.
        """
