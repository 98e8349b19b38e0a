"""Web workers over HTTP: what they send and are shown, with the names of the seed's schema."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct, field

Port = Annotated[int, Meta(ge=1, le=65_535)]
Token = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class NewWebWorker(Struct, frozen=True):
    """A service that registers as a worker. `handlers` names the kinds that it runs.

    `instance` names one run of the service: the same one again is a mere repeat, another one at the
    same hostname and port takes the place of the first.
    """

    hostname: str
    port: Port
    handlers: dict[str, Any] | list[str]
    max_jobs: Annotated[int, Meta(ge=1)] | None = field(name="maxJobs", default=None)
    target: str = ""
    instance: str = ""


class WebWorkerCreated(Struct, frozen=True):
    """A registration. With the secret, the service and its gateway sign what they say."""

    id: UUID
    number: int
    secret: str
    ping_interval_s: float
    existing: bool


class ShownWebWorker(Struct, frozen=True):
    """A registered service."""

    id: UUID
    hostname: str
    port: int
    handlers: list[str]
    max_jobs: int = field(name="maxJobs")
    jobs: list[UUID]
    last_pinged: datetime | None = field(name="lastPinged")
    failed_ping_count: int = field(name="failedPingCount")
    last_error: str = field(name="lastError")
    is_resigned: bool = field(name="isResigned")
    is_dead: bool = field(name="isDead")
    state: str
    number: int
    target: str
    instance: str
    worker: UUID
    gateway: UUID | None
    registered_at: datetime


class Resigned(Struct, frozen=True):
    """A registration that ended."""

    id: UUID
    verdict: str


class WebError(Struct, frozen=True):
    """What went wrong in a job. `final` forbids another attempt."""

    message: str = ""
    type: str = ""
    traceback: str = ""
    reason: str = "raised"
    final: bool = False


class WebResult(Struct, frozen=True):
    """How an attempt ended: `succeeded`, `failed`, `cancelled` or `released` (handed back).

    Without `status` it succeeded, unless there is an error. The result of a `raw` job is base64. A
    job may ask to run again `after_s` (`snoozed`), or to be left out (`skipped`), with a `note`.
    """

    token: Token | str
    status: str = ""
    result: Any = None
    error: WebError | str | None = None
    raw: bool = False
    after_s: Annotated[float, Meta(ge=0)] | None = None
    note: str = ""


class ResultTaken(Struct, frozen=True):
    """What became of a result."""

    id: UUID
    verdict: str
