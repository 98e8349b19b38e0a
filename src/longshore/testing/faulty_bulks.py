"""The verbs of `FaultyStore` about bulks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from longshore.model.bulk import BulkAdvance, BulkPage, BulkRun, NewBulk
from longshore.model.job import Refused
from longshore.ports import Store

Answer = TypeVar("Answer")


class FaultyBulks:
    """Calls the store, with faults."""

    store: Store

    @abstractmethod
    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to one call of a verb, or the fault in its place."""

    async def put_bulk(self, new: NewBulk, most: int) -> BulkRun | Refused:
        return await self._call("put_bulk", lambda: self.store.put_bulk(new, most))

    async def bulk(self, ref: UUID | int) -> BulkRun | None:
        return await self._call("bulk", lambda: self.store.bulk(ref))

    async def bulks(self, before: int | None = None, most: int = 50) -> list[BulkRun]:
        return await self._call("bulks", lambda: self.store.bulks(before, most))

    async def running_bulks(self) -> list[BulkRun]:
        return await self._call("running_bulks", self.store.running_bulks)

    async def stop_bulk(self, ref: UUID | int, by: str = "") -> BulkRun | None:
        return await self._call("stop_bulk", lambda: self.store.stop_bulk(ref, by))

    async def advance_bulk(self, page: BulkPage) -> BulkAdvance | None:
        return await self._call("advance_bulk", lambda: self.store.advance_bulk(page))
