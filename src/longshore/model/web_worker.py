"""Web workers: services that answer four routes over HTTP, as the store and the wire know them.

A service registers once. A gateway *attends* it: asks it for its health, and speaks for it to
dispatchers as an ordinary worker. That worker has an id of its own, because a worker that was
declared lost never comes back, but a service may.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.upkeep import Harvested

SESSIONS_PER_ADOPTION = 1 << 32
"""A gateway numbers the sessions of a service from here times the number of its adoption on. So no
late READY of an earlier gateway can end a session of a later one."""


class WebState(StrEnum):
    """Where a registration is."""

    REGISTERED = "registered"
    """It has not answered a health check yet."""
    ALIVE = "alive"
    DEAD = "dead"
    RESIGNED = "resigned"
    REPLACED = "replaced"
    REMOVED = "removed"


ENDED_WEB_STATES = frozenset({WebState.RESIGNED, WebState.REPLACED, WebState.REMOVED})


class WebRegistration(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a service says of itself when it registers.

    `instance` names one run of the service: with it, a repeat of the registration is told from a
    restart. `principal` is who registered it; empty where nobody is asked.
    """

    host: str
    port: int
    kinds: tuple[str, ...]
    max_jobs: int = 1
    target: str = ""
    instance: str = ""
    principal: str = ""


class WebWorker(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A registered service. `jobs` is filled where it is shown."""

    id: UUID
    number: int
    """Grows with every registration; the service's secret follows from it and the id."""
    registration: WebRegistration
    worker: UUID
    """The worker that it is at present."""
    registered_at: datetime
    state: WebState = WebState.REGISTERED
    gateway: UUID | None = None
    """The gateway that attends it, by the id that this has as a worker."""
    adoptions: int = 0
    failed_pings: int = 0
    last_error: str = ""
    pinged_at: datetime | None = None
    jobs: tuple[UUID, ...] = ()


class WebRegistered(Struct, frozen=True):
    """A registration that the store took; `existing` if it is a repeat."""

    web_worker: WebWorker
    existing: bool = False
    freed: Harvested = Harvested(False)
    """What became of the jobs of the service that it replaced."""


class WebAttendance(Struct, frozen=True):
    """The services that a gateway attends by the store, and how many it might take."""

    mine: frozenset[UUID]
    free: int
    known: bool
    """Whether the store counts the gateway among those that share the services."""


class WebNote(Struct, frozen=True, omit_defaults=True):
    """What a gateway found out about a service that it attends."""

    id: UUID
    state: WebState
    failed_pings: int = 0
    last_error: str = ""
    worker: UUID | None = None
    """The worker that it is from now on, if that changes."""
