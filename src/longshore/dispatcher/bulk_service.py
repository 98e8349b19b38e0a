"""Bulks: what clients ask about them (see `service`), and the next pages of those that run.

A page is a look and a verb of the store. If the dispatcher dies between the two, nothing was done.
If it dies after the verb, or its answer is lost, the version has gone up: who looks next goes on
after that page.
"""

from __future__ import annotations

import logging
from copy import copy
from enum import Enum, auto
from typing import assert_never
from uuid import UUID

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.access import (
    LOCAL,
    Asker,
    Right,
    check_right,
    is_whole,
    narrowed,
    reaches_queue,
)
from longshore.core.bulks import check_bulk, look_for, page_of, planned, with_states
from longshore.dispatcher.runtime_protocol import Runtime
from longshore.errors import (
    InvalidInput,
    LongshoreError,
    NotAllowed,
    NotFound,
    StoreUnavailable,
    from_code,
)
from longshore.model.bulk import BulkAction, BulkPlan, BulkRun, BulkState, NewBulk
from longshore.model.job import DEFAULT_QUEUE, Refused
from longshore.ports import Store
from longshore.wire import bulk_messages as b

log = logging.getLogger("longshore.dispatcher")


class Turn(Enum):
    """How a page went."""

    AGAIN = auto()
    """There is more to do."""
    HELD = auto()
    """What is left is held by other transactions."""
    LATE = auto()
    """Another dispatcher did it, or somebody cancelled the bulk."""
    OVER = auto()


class BulkService:
    """The use cases about bulks, over one store."""

    def __init__(self, store: Store, settings: DispatcherSettings, runtime: Runtime) -> None:
        self._store = store
        self._settings = settings
        self._runtime = runtime
        self._asker = LOCAL

    def asked_by(self, asker: Asker, store: Store) -> BulkService:
        """The same for one who asks, over a store that says so."""
        service = copy(self)
        service._asker, service._store = asker, store
        return service

    # what clients ask

    async def plan(self, request: b.PlanBulk) -> BulkPlan:
        """Counts what a bulk would do to the next jobs of its search."""
        new = await self._checked(request.new)
        return planned(new, await self._store.jobs(new.wanted))

    async def start(self, request: b.StartBulk) -> BulkRun:
        """Begins a bulk."""
        new = await self._checked(structs.replace(request.new, id=request.id))
        made = await self._store.put_bulk(new, self._settings.max_bulks)
        if isinstance(made, Refused):
            raise from_code(made.code, made.message)
        self._runtime.bulks_changed()
        return made

    async def _checked(self, new: NewBulk) -> NewBulk:
        """The bulk as it is stored; raises if who asks may not have it, or it cannot be done."""
        check_bulk(new)
        if new.action is BulkAction.DELETE:
            check_right(self._asker, Right.ADMIN)
        if new.queue is not None:
            await self._check_queue(new.queue)
        by, scope = "" if self._asker is LOCAL else self._asker.name, self._asker.scope
        wanted = narrowed(new.wanted, scope)
        return with_states(structs.replace(new, wanted=wanted, by=by, scope=scope))

    async def _check_queue(self, queue: str) -> None:
        """Raises unless jobs may be moved to this queue.

        Only to one that exists: a queue that nobody serves would keep them for ever, and each new
        one costs every dispatcher memory.
        """
        if not reaches_queue(self._asker.scope, queue):
            raise NotAllowed(f"{self._asker.name} does not reach queue '{queue}'")
        if queue == DEFAULT_QUEUE or queue in [one.name for one in await self._store.queues()]:
            return
        workers = await self._store.workers()
        if not any(one.alive and queue in one.info.queues for one in workers):
            raise InvalidInput(
                f"queue '{queue}' holds no jobs and no worker names it, so it may be misspelt; "
                f"start a worker for it (--queue {queue}), or make it with "
                f"`longshore queues pause {queue}`"
            )

    async def stop(self, request: b.StopBulk) -> BulkRun:
        """Cancels a bulk."""
        found = await self._found(request.bulk)
        stopped = await self._store.stop_bulk(found.new.id, self._asker.by)
        if stopped is None:
            raise _no_bulk(request.bulk)
        return stopped

    async def show(self, request: b.ShowBulk) -> BulkRun:
        """One bulk."""
        return await self._found(request.bulk)

    async def _found(self, ref: UUID | int) -> BulkRun:
        found = await self._store.bulk(ref)
        if found is None or not self._sees(found):
            raise _no_bulk(ref)
        return found

    async def listed(self, request: b.ListBulks) -> list[BulkRun]:
        """Bulks, newest first."""
        return [
            one for one in await self._store.bulks(request.before, request.most) if self._sees(one)
        ]

    def _sees(self, bulk: BulkRun) -> bool:
        """Who reaches some jobs only, or sees no payloads, sees the bulks that it began."""
        scope = self._asker.scope
        return (is_whole(scope) and scope.payloads) or bulk.new.by == self._asker.name

    # what runs

    async def look(self) -> list[Turn]:
        """Does a page of each bulk that runs."""
        return [await self._surely(bulk) for bulk in await self._store.running_bulks()]

    async def _surely(self, bulk: BulkRun) -> Turn:
        """Does a page. A bulk that no store can do holds up neither others nor the dispatcher."""
        try:
            return await self._page(bulk)
        except StoreUnavailable:
            raise
        except LongshoreError as error:
            number = bulk.number
            log.error("bulk %d cannot go on; `longshore bulk cancel %d`: %s", number, number, error)
            return Turn.LATE

    async def _page(self, bulk: BulkRun) -> Turn:
        most = self._settings.bulk_page_jobs
        found = await self._store.jobs(look_for(bulk, most))
        advance = await self._store.advance_bulk(page_of(bulk, found, most))
        if advance is None:
            return Turn.LATE
        self._runtime.bulk_advanced(advance)
        if advance.bulk.state is not BulkState.RUNNING:
            return Turn.OVER
        return Turn.HELD if advance.bulk.left and bulk.left else Turn.AGAIN


def _no_bulk(ref: object) -> NotFound:
    return NotFound(f"there is no bulk {ref}; `longshore bulk ls` lists those there are")


async def perform_for_bulks(service: BulkService, request: b.BulkRequest) -> object:
    """Does what a request about bulks asks for; answers with what OK carries."""
    match request:
        case b.PlanBulk():
            return await service.plan(request)
        case b.StartBulk():
            return await service.start(request)
        case b.StopBulk():
            return await service.stop(request)
        case b.ShowBulk():
            return await service.show(request)
        case b.ListBulks():
            return await service.listed(request)
        case _:
            assert_never(request)
