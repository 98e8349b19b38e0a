"""How a worker reports the end of an attempt: one struct for each way, told apart by `kind`.

A report says what the worker saw. The dispatcher decides what it means for the job (`model.ends`).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.actor import Message, Reply, ReplyTo, Turn
from longshore.model.attempt import AttemptKey
from longshore.model.fileset import NewVersion
from longshore.model.group import Condition, GroupPart
from longshore.model.job import JobError, Reason, Submission
from longshore.model.usage import Usage

UNEXPLAINED: Final = JobError(Reason.RAISED, "the worker gave no reason")


class OutboxJob(Struct, frozen=True, gc=False, tag_field="item", tag="job"):
    """A job to submit."""

    job: Submission


class OutboxNode(Struct, frozen=True, omit_defaults=True, gc=False, tag_field="item", tag="node"):
    """A job to add to the group of the job that reports.

    Its key in the group is `key` below that of its adder. `after` has the places, among the nodes
    of this outbox, of what it depends on. Whoever depends on the adder waits for it too, unless it
    is `detached`. The store gives it an id that follows from the adder, its round and the place.
    """

    key: str
    job: Submission
    after: tuple[int, ...] = ()
    on: Condition = Condition.SUCCEEDED
    detached: bool = False


class OutboxGroup(Struct, frozen=True, gc=False, tag_field="item", tag="group"):
    """A whole group to submit, in one part. Only turns of actors do."""

    part: GroupPart


class OutboxMessage(Struct, frozen=True, gc=False, tag_field="item", tag="message"):
    """A message to an actor."""

    message: Message


class OutboxReply(Struct, frozen=True, gc=False, tag_field="item", tag="reply"):
    """The reply to a message that a turn has read, and where it goes."""

    reply: Reply
    to: ReplyTo


OutboxItem = OutboxJob | OutboxNode | OutboxGroup | OutboxMessage | OutboxReply
"""What an outbox may hold. On the wire, `item` says which variant it is."""


class _Report(Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind"):
    job: UUID
    token: int

    @property
    def key(self) -> AttemptKey:
        """The attempt that ended."""
        return self.job, self.token


class _Ran(_Report, frozen=True, gc=False, kw_only=True):
    ran_s: float | None = None
    """How long the attempt ran, if its worker says so."""
    usage: Usage | None = None
    """What it used, if it was measured."""


class SuccessReport(_Ran, frozen=True, gc=False, tag="succeeded"):
    """The body returned `result`. The store commits the outbox with this end.

    It publishes the `versions`, too.
    """

    result: bytes | None = None
    outbox: tuple[OutboxItem, ...] = ()
    versions: tuple[NewVersion, ...] = ()
    """The files that it publishes."""


class TurnReport(_Ran, frozen=True, gc=False, tag="turn"):
    """The handlers of a turn returned. The store commits what it leaves, and the outbox."""

    turn: Turn
    outbox: tuple[OutboxItem, ...] = ()


class FailureReport(_Ran, frozen=True, gc=False, tag="failed"):
    """The body raised or took too long. `final` forbids a retry, `retry_after_s` sets its delay.

    `most_attempts` stands for the attempts of the job's own policy. If the job is not tried again,
    the store publishes the `versions`.
    """

    error: JobError = UNEXPLAINED
    final: bool = False
    retry_after_s: float | None = None
    most_attempts: int | None = None
    versions: tuple[NewVersion, ...] = ()
    """The files that it publishes, if the job fails with it."""


class CrashReport(_Ran, frozen=True, gc=False, tag="crashed"):
    """The attempt took its process down.

    If the job is not tried again, the store publishes the `versions`.
    """

    error: JobError = UNEXPLAINED
    versions: tuple[NewVersion, ...] = ()
    """The files that it publishes, if the job fails with it."""


class CancelReport(_Ran, frozen=True, gc=False, tag="cancelled"):
    """The worker stopped the attempt because an ABORT said so."""


class ReleaseReport(_Ran, frozen=True, gc=False, tag="released"):
    """The worker hands the attempt back, through no fault of the job."""


class SnoozeReport(_Ran, frozen=True, gc=False, tag="snoozed"):
    """The job asks to run again after `after_s`; `note` says why."""

    after_s: float
    note: str = ""


class SkipReport(_Ran, frozen=True, gc=False, tag="skipped"):
    """The job asks to be skipped, and so what needs its success; `note` says why.

    The store publishes the `versions`.
    """

    note: str = ""
    versions: tuple[NewVersion, ...] = ()
    """The files that it publishes."""


class NotBegunReport(_Report, frozen=True, gc=False, tag="not_begun"):
    """The worker hands the attempt back before it began: nothing of the job has run."""


Report = (
    SuccessReport
    | TurnReport
    | FailureReport
    | CrashReport
    | CancelReport
    | ReleaseReport
    | SnoozeReport
    | SkipReport
    | NotBegunReport
)
