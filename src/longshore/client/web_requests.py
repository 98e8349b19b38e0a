"""What a gateway asks of dispatchers for web workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from longshore.model.job import Verdict
from longshore.model.reports import Report
from longshore.model.web_worker import WebNote, WebRegistration, WebWorker
from longshore.wire import web_messages as w


class Exchange(Protocol):
    """Sends a request and gets the answer."""

    def __call__(self, request: w.WebRequest, within_s: float = 0.0) -> Awaitable[Any]:
        """The answer."""


class WebRequests:
    """The requests of a gateway about web workers, each a method."""

    def __init__(
        self, exchange: Exchange, next_rid: Callable[[], int], new_id: Callable[[], UUID]
    ) -> None:
        self._exchange = exchange
        self._next_rid = next_rid
        self._new_id = new_id

    async def register(self, said: WebRegistration) -> w.Registered:
        """Registers a service."""
        request = w.RegisterWebWorker(self._next_rid(), self._new_id(), said)
        answer: w.Registered = await self._exchange(request)
        return answer

    async def resign(self, web_worker: UUID) -> bool:
        """Ends a registration; False if it had ended before."""
        request = w.ResignWebWorker(self._next_rid(), self._new_id(), web_worker)
        answer: bool = await self._exchange(request)
        return answer

    async def attend(
        self, gateway: UUID, attended: Sequence[UUID], notes: Sequence[WebNote]
    ) -> w.Attendance:
        """Says what a gateway attends and found out; answers what it gained and lost."""
        request = w.AttendWebWorkers(self._next_rid(), gateway, tuple(attended), tuple(notes))
        answer: w.Attendance = await self._exchange(request)
        return answer

    async def listed(self, ids: Sequence[UUID] | None = None) -> tuple[WebWorker, ...]:
        """Services that are registered and those that ended lately; only these, if given."""
        wanted = None if ids is None else tuple(ids)
        answer: tuple[WebWorker, ...] = await self._exchange(
            w.ListWebWorkers(self._next_rid(), wanted)
        )
        return answer

    async def report(self, report: Report, web_worker: UUID | None) -> Verdict:
        """Has an end recorded that a service told this gateway."""
        request = w.ReportEnd(self._next_rid(), report, web_worker)
        answer: Verdict = await self._exchange(request)
        return answer

    async def fleet_key(self) -> bytes:
        """The key from which the secrets of services follow."""
        answer: bytes = await self._exchange(w.ShowFleetKey(self._next_rid()))
        return answer
