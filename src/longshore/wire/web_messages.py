"""The requests of gateways about web workers. Nobody else may ask them."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from longshore.model.job import Verdict
from longshore.model.reports import Report
from longshore.model.web_worker import WebNote, WebRegistration, WebWorker
from longshore.wire.actor_messages import Numbered


class RegisterWebWorker(Numbered, frozen=True):
    """Register a service, under this `id` if it is new."""

    id: UUID
    said: WebRegistration


class ResignWebWorker(Numbered, frozen=True):
    """End a registration: its jobs go back."""

    id: UUID
    web_worker: UUID


class AttendWebWorkers(Numbered, frozen=True):
    """A gateway says which services it attends, what it found out, and asks for more.

    `gateway` is the id that it has as a worker.
    """

    gateway: UUID
    attended: tuple[UUID, ...] = ()
    notes: tuple[WebNote, ...] = ()


class ListWebWorkers(Numbered, frozen=True):
    """Services that are registered, and those that ended lately; only these, if given.

    A service is found by its own id, and by that of the worker that it is.
    """

    web_workers: tuple[UUID, ...] | None = None


class ReportEnd(Numbered, frozen=True):
    """A service says through any gateway how an attempt ended. `web_worker` is who says so."""

    report: Report
    web_worker: UUID | None = None


class ShowFleetKey(Numbered, frozen=True):
    """The key from which the secrets of web workers follow."""


class Registered(Struct, frozen=True):
    """A registration; `existing` if it is a repeat."""

    web_worker: WebWorker
    existing: bool


class Attendance(Struct, frozen=True):
    """Services that the gateway attends from now on, and those that it does not any more.

    Of those, the registrations of some have `ended`; what others run goes on.
    """

    taken: tuple[WebWorker, ...] = ()
    gone: tuple[UUID, ...] = ()
    ended: tuple[UUID, ...] = ()


WebRequest = (
    RegisterWebWorker
    | ResignWebWorker
    | AttendWebWorkers
    | ListWebWorkers
    | ReportEnd
    | ShowFleetKey
)

WEB_ANSWERS: Final[dict[type, Any]] = {
    RegisterWebWorker: Registered,
    ResignWebWorker: bool,
    AttendWebWorkers: Attendance,
    ListWebWorkers: tuple[WebWorker, ...],
    ReportEnd: Verdict,
    ShowFleetKey: bytes,
}
