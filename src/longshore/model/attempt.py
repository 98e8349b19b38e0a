"""An attempt: how its worker gets it, and how it says that it ended."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.job import JobError, Submission

Attempt = tuple[UUID, int]
"""A job's id and the token of one attempt at it."""


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
    def held(self) -> Attempt:
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
    def attempt(self) -> Attempt:
        """Which attempt ended."""
        return self.job, self.token
