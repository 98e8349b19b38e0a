"""The part of `MemoryStore` that knows web workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from uuid import UUID

from msgspec import structs

from longshore.core.web_workers import (
    REPLACED,
    blamed_limit,
    is_repeat,
    share,
    too_many,
    why_refused,
)
from longshore.errors import Conflict, WrongState
from longshore.model.job import Refused
from longshore.model.upkeep import Harvested
from longshore.model.web_worker import (
    ENDED_WEB_STATES,
    WebAttendance,
    WebNote,
    WebRegistered,
    WebRegistration,
    WebState,
    WebWorker,
)
from longshore.store.rows import clean
from longshore.testing.memory_reads import MemoryReads


class MemoryWebWorkers(MemoryReads):
    """The verbs about web workers, over one dictionary."""

    @abstractmethod
    def _bury(self, worker: UUID, why: str, crash_limit: int | None = None) -> Harvested:
        """Ends a worker in whatever session it is, and frees its jobs."""

    def _live_web(self) -> list[WebWorker]:
        return [one for one in self._web.values() if one.state not in ENDED_WEB_STATES]

    def _let_go(self, gateway: UUID) -> None:
        """No gateway attends the services any more that this one did."""
        self._web_gateways.discard(gateway)
        for one in self._live_web():
            if one.gateway == gateway:
                self._web[one.id] = structs.replace(one, gateway=None)

    def _is_registered(self, id: UUID, worker: UUID) -> bool:
        return any((one.id, one.worker) == (id, worker) for one in self._live_web())

    def _is_unattended(self, worker: UUID) -> bool:
        return any(one.worker == worker and one.gateway is None for one in self._live_web())

    async def register_web_worker(
        self, id: UUID, said: WebRegistration, most: int, crash_limit: int | None = None
    ) -> WebRegistered | Refused:
        if id in self._web:
            return WebRegistered(self._web[id], existing=True)
        live, freed = self._live_web(), Harvested(False)
        for known in live:
            if (known.registration.host, known.registration.port) != (said.host, said.port):
                continue
            if why := why_refused(known.registration, said):
                return Refused(id, Conflict.code, why)
            if is_repeat(known.registration, said):
                return WebRegistered(known, existing=True)
            limit = blamed_limit(known.registration, said, crash_limit)
            freed = self._end_web(known, WebState.REPLACED, REPLACED, limit)
            break
        else:
            if len(live) >= most:
                return Refused(id, WrongState.code, too_many(most))
        self._web[id] = WebWorker(
            id=id,
            number=len(self._web) + 1,
            registration=said,
            worker=id,
            registered_at=self._utc(),
        )
        return WebRegistered(self._web[id], freed=freed)

    def _end_web(
        self, known: WebWorker, state: WebState, why: str, crash_limit: int | None = None
    ) -> Harvested:
        self._web[known.id] = structs.replace(known, state=state, gateway=None)
        return self._bury(known.worker, why, crash_limit)

    async def resign_web_worker(self, id: UUID) -> Harvested | None:
        known = self._web.get(id)
        if known is None or known.state in ENDED_WEB_STATES:
            return None
        return self._end_web(known, WebState.RESIGNED, "it resigned")

    async def adopt_web_workers(self, gateway: UUID, most: int = 100) -> list[WebWorker]:
        row = self._workers.get(gateway)
        if row is None or not row.alive:
            return []
        self._web_gateways.add(gateway)
        live = self._live_web()
        mine = sum(one.gateway == gateway for one in live)
        room = min(most, share(len(live), len(self._web_gateways), mine))
        free = [one for one in live if one.gateway is None][:room]
        for one in free:
            adoptions = one.adoptions + 1
            self._web[one.id] = structs.replace(one, gateway=gateway, adoptions=adoptions)
        return await self.web_workers([one.id for one in free])

    async def note_web_workers(self, gateway: UUID, notes: Sequence[WebNote]) -> None:
        for one in notes:
            known = self._web.get(one.id)
            is_live = known is not None and known.state not in ENDED_WEB_STATES
            if known is not None and is_live and known.gateway == gateway:
                self._web[one.id] = structs.replace(
                    known,
                    state=one.state,
                    failed_pings=one.failed_pings,
                    last_error=clean(one.last_error),
                    worker=one.worker or known.worker,
                    pinged_at=self._utc(),
                )

    async def web_attendance(self, gateway: UUID) -> WebAttendance:
        live = self._live_web()
        mine = frozenset(one.id for one in live if one.gateway == gateway)
        free = sum(one.gateway is None for one in live)
        return WebAttendance(mine, free, gateway in self._web_gateways)

    async def web_workers(self, ids: Sequence[UUID] | None = None) -> list[WebWorker]:
        known = self._web.values()
        found = [one for one in known if ids is None or one.id in ids or one.worker in ids]
        return [self._with_jobs(one) for one in sorted(found, key=lambda one: one.number)]

    def _with_jobs(self, one: WebWorker) -> WebWorker:
        jobs = sorted(self._owned_by(one.worker), key=lambda row: row.job.number)
        return structs.replace(one, jobs=tuple(row.job.id for row in jobs))
