"""How an attempt can end, as the store records it: one struct for each way.

`core.effects` decides what an end does to its job's row. Every end names its attempt by job and
token. `by` names who reported it; if it is empty, the worker that owns the job did. `info` goes
into the history. If `worker` is set, the end counts only if that worker owns the job: a worker
could guess the token of another. `ran_s` is how long the attempt ran, if its worker said so: from
that the store knows when it started, and no two clocks are compared. The dispatcher makes a
`forced` end without the worker: the row gets a new token, so that no later report of that worker
counts.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.actor import Reply, Turn
from longshore.model.fileset import NewVersion
from longshore.model.job import JobError
from longshore.model.reports import OutboxItem


class _OfAttempt(Struct, frozen=True, gc=False):
    job: UUID
    token: int


class _End(_OfAttempt, frozen=True, gc=False, kw_only=True):
    by: str = ""
    info: str = ""
    worker: UUID | None = None
    ran_s: float | None = None


class Succeeded(_End, frozen=True, gc=False):
    """The body returned. The store commits its outbox with it, and publishes its versions."""

    result: bytes | None = None
    outbox: tuple[OutboxItem, ...] = ()
    versions: tuple[NewVersion, ...] = ()


class TurnTaken(_End, frozen=True, gc=False):
    """A turn of an actor was taken. The store commits what it leaves, and removes its job."""

    actor: UUID
    number: int
    """Which turn of the actor it is."""
    turn: Turn
    outbox: tuple[OutboxItem, ...] = ()


class ReadDone(_End, frozen=True, gc=False):
    """A job that read an actor is over. The store keeps the reply, and removes the job."""

    reply: Reply


class Failed(_End, frozen=True, gc=False):
    """The attempt raised, timed out or cannot run. The job is not tried again.

    It may publish versions all the same, which are partial.
    """

    error: JobError
    forced: bool = False
    versions: tuple[NewVersion, ...] = ()


class Retried(_End, frozen=True, gc=False):
    """The attempt raised or timed out, which is a failure. The job runs again after `delay_s`.

    It counts as so many `failures` (see `core.recovery`).
    """

    error: JobError
    delay_s: float = 0.0
    forced: bool = False
    failures: int = 1


class Snoozed(_End, frozen=True, gc=False):
    """The job asked to run again after `delay_s`. That costs nothing."""

    delay_s: float = 0.0


class Skipped(_End, frozen=True, gc=False):
    """The job asked to be skipped. That fails nothing. The versions it publishes are partial."""

    versions: tuple[NewVersion, ...] = ()


class Released(_End, frozen=True, gc=False):
    """The worker handed the job back: it is ready at once. That costs nothing."""


class NotBegun(_End, frozen=True, gc=False):
    """The worker handed the job back before it began: the claim is undone."""


class Cancelled(_End, frozen=True, gc=False):
    """The attempt was stopped because a user cancelled the job."""

    forced: bool = False


class Crashed(_End, frozen=True, gc=False):
    """The attempt took its process down, after `crashes` earlier ones. At `limit` the job fails.

    With that it publishes its versions, which are partial.
    """

    error: JobError
    crashes: int
    limit: int
    versions: tuple[NewVersion, ...] = ()


class PutAside(_End, frozen=True, gc=False):
    """Its actor is paused, so nobody ran the turn: it waits until the actor is resumed."""


End = (
    Succeeded
    | TurnTaken
    | ReadDone
    | Failed
    | Retried
    | Snoozed
    | Skipped
    | Released
    | NotBegun
    | PutAside
    | Cancelled
    | Crashed
)

WITH_OUTBOX: Final = (Succeeded, TurnTaken)
"""The ends that have an outbox. As a tuple: to make a union takes longer than to ask for it."""
