"""What the engine needs of a store for web workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from longshore.model.job import Refused
from longshore.model.upkeep import Harvested
from longshore.model.web_worker import (
    WebAttendance,
    WebNote,
    WebRegistered,
    WebRegistration,
    WebWorker,
)


class WebStore(Protocol):
    """The verbs of a store about web workers. `harvest` of a gateway lets its services go."""

    async def register_web_worker(
        self, id: UUID, said: WebRegistration, most: int, crash_limit: int | None = None
    ) -> WebRegistered | Refused:
        """Registers a service, unless there are `most`; a repeat of an id changes nothing.

        One that is registered at that host and port is replaced, and its jobs are ready again; but
        the same instance is a mere repeat, and another principal is refused. With a crash limit,
        each job of the replaced one has crashed once more: it died, for it had not resigned.
        """

    async def resign_web_worker(self, id: UUID) -> Harvested | None:
        """Ends a registration and frees its jobs, at no cost; None if there is none."""

    async def adopt_web_workers(self, gateway: UUID, most: int = 100) -> list[WebWorker]:
        """Gives a live gateway its share of the services that none attends, and answers those.

        Each is given to one gateway only, with a higher number of adoptions than ever before.
        """

    async def note_web_workers(self, gateway: UUID, notes: Sequence[WebNote]) -> None:
        """Notes what a gateway found out about services, as far as it still attends them."""

    async def web_attendance(self, gateway: UUID) -> WebAttendance:
        """What a gateway attends, and how many services are free."""

    async def web_workers(self, ids: Sequence[UUID] | None = None) -> list[WebWorker]:
        """Services that are registered or ended lately, by number; only these, if given.

        A service is found by its own id, and by that of the worker that it is.
        """
