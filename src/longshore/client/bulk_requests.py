"""What clients ask of dispatchers about bulks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from msgspec import structs

from longshore.core.bulks import together
from longshore.model.bulk import BulkPlan, BulkRun, NewBulk
from longshore.wire import bulk_messages as b

Exchange = Callable[[b.BulkRequest], Awaitable[Any]]
"""Sends a request and gets the answer."""

LOOK_JOBS: Final = 1000
"""How many jobs one look of a count lists."""


class BulkRequests:
    """The requests about bulks, each a method."""

    def __init__(
        self, exchange: Exchange, next_rid: Callable[[], int], new_id: Callable[[], UUID]
    ) -> None:
        self._exchange = exchange
        self._next_rid = next_rid
        self._new_id = new_id

    async def plan(self, new: NewBulk, looks: int | None = None) -> BulkPlan:
        """Counts what a bulk would do; after so many looks it stops, and says where to go on."""
        wanted = structs.replace(new.wanted, before=None, limit=LOOK_JOBS)
        plan = await self._look(structs.replace(new, wanted=wanted))
        made = 1
        while plan.go_on is not None and (looks is None or made < looks):
            after = structs.replace(wanted, before=plan.go_on)
            plan = together(plan, await self._look(structs.replace(new, wanted=after)))
            made += 1
        return plan

    async def _look(self, new: NewBulk) -> BulkPlan:
        answer: BulkPlan = await self._exchange(b.PlanBulk(self._next_rid(), new))
        return answer

    async def start(self, new: NewBulk) -> BulkRun:
        """Begins a bulk. Sent twice, it is one."""
        request = b.StartBulk(self._next_rid(), new.id, new)
        answer: BulkRun = await self._exchange(request)
        return answer

    async def stop(self, ref: UUID | int) -> BulkRun:
        """Cancels a bulk; raises `NotFound`."""
        request = b.StopBulk(self._next_rid(), self._new_id(), ref)
        answer: BulkRun = await self._exchange(request)
        return answer

    async def show(self, ref: UUID | int) -> BulkRun:
        """One bulk; raises `NotFound`."""
        answer: BulkRun = await self._exchange(b.ShowBulk(self._next_rid(), ref))
        return answer

    async def list(self, before: int | None = None, most: int = 50) -> tuple[BulkRun, ...]:
        """Bulks, newest first."""
        request = b.ListBulks(self._next_rid(), before, most)
        answer: tuple[BulkRun, ...] = await self._exchange(request)
        return answer
