"""An attempt: how its worker gets it, and how it says that it ended."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.job import JobError, Options, Submission

AttemptKey = tuple[UUID, int]
"""A job's id and the token of one attempt at it."""


class Attempt(Struct, frozen=True, gc=False):
    """An attempt: a job given to one session of one worker, under a token of its own."""

    id: UUID
    number: int
    token: int
    kind: str
    args: bytes
    options: Options
    worker: UUID
    session: int
    attempt: int
    failures: int
    crashes: int
    cancelling: bool = False


class Assignment(Struct, frozen=True, omit_defaults=True, gc=False):
    """An attempt as its worker needs it."""

    job: UUID
    token: int
    number: int
    kind: str
    args: bytes
    timeout_s: float | None = None
    attempt: int = 1
    raw: bool = False

    @property
    def key(self) -> AttemptKey:
        """Which attempt this is."""
        return self.job, self.token


class ReportKind(StrEnum):
    """How an attempt ended, as its worker saw it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CRASHED = "crashed"
    CANCELLED = "cancelled"
    RELEASED = "released"


class Report(Struct, frozen=True, omit_defaults=True, gc=False):
    """The end of an attempt. `final` forbids a retry, `retry_after_s` sets its delay.

    Handed back with `retry_after_s`, the job asked to be run later, and `note` says why.
    """

    job: UUID
    token: int
    kind: ReportKind
    result: bytes | None = None
    error: JobError | None = None
    final: bool = False
    retry_after_s: float | None = None
    outbox: tuple[Submission, ...] = ()
    note: str = ""

    @property
    def key(self) -> AttemptKey:
        """Which attempt ended."""
        return self.job, self.token
