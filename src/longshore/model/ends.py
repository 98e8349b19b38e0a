"""How an attempt can end, as the store is to record it: one struct for each way, all fenced.

What an end does to its job's row is decided in `core.effects`. Every end names its attempt by job
and token. `by` says who tells of it; empty, it is the worker that has the job. `info` goes into the
history. If a `worker` is named, the end counts only if the job is that worker's own: tokens can be
guessed. A `forced` end is not its worker's doing: the token changes, so that nothing the worker
says later counts.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from longshore.model.job import JobError
from longshore.model.reports import OutboxItem


class _OfAttempt(Struct, frozen=True, gc=False):
    job: UUID
    token: int


class _End(_OfAttempt, frozen=True, gc=False, kw_only=True):
    by: str = ""
    info: str = ""
    worker: UUID | None = None


class Succeeded(_End, frozen=True, gc=False):
    """The body returned. What is in its outbox is committed with it."""

    result: bytes | None = None
    outbox: tuple[OutboxItem, ...] = ()


class Failed(_End, frozen=True, gc=False):
    """It raised, timed out or cannot be run, and is not tried again."""

    error: JobError
    forced: bool = False


class Retried(_End, frozen=True, gc=False):
    """It raised or timed out, which uses up an attempt, and is tried again after `delay_s`."""

    error: JobError
    delay_s: float = 0.0
    forced: bool = False


class Snoozed(_End, frozen=True, gc=False):
    """The job asked to be run again after `delay_s`; that costs nothing."""

    delay_s: float = 0.0


class Released(_End, frozen=True, gc=False):
    """Its worker handed it back: it is ready at once, and that costs nothing."""


class NotBegun(_End, frozen=True, gc=False):
    """Its worker handed it back before it began: the claim counts as if it had never been."""


class Cancelled(_End, frozen=True, gc=False):
    """It was stopped because somebody cancelled the job."""

    forced: bool = False


class Crashed(_End, frozen=True, gc=False):
    """It took its process down, after so many earlier crashes; at `limit` the job is given up."""

    error: JobError
    crashes: int
    limit: int


End = Succeeded | Failed | Retried | Snoozed | Released | NotBegun | Cancelled | Crashed
