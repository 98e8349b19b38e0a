"""Attempts, as the dispatcher knows them and as their workers get them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.job import Options, Scheduled

AttemptKey = tuple[UUID, int]
"""A job's id and the token of one attempt at it."""

WAITS_KNOWN: Final = "first attempts of jobs outside of groups"
"""Whose waits a claim tells: since the submit, or since it was due. Of others no row says when they
became ready."""


class HeldDevices(Struct, frozen=True, gc=False):
    """Which devices of a name an attempt has."""

    name: str
    numbers: tuple[int, ...]


class Attempt(Struct, frozen=True, gc=False):
    """A job, given to one session of one worker under a token of its own."""

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
    priority: int = 0
    begin_within_s: float | None = None
    """How long it had, when it was read, to begin; None if it may begin at any time."""
    round: int = 1
    problem: str = ""
    """Why its arguments cannot be built; then it must not run."""
    paused: bool = False
    """It is a turn of a paused actor. If its worker does not have it yet, it is put aside."""
    waited_s: float | None = None
    """How long it was ready before this claim; None if that is not known (see `WAITS_KNOWN`)."""
    lane: int = 0
    """The lane of a job with a fair key, where that is known; 0 otherwise."""

    @property
    def key(self) -> AttemptKey:
        """The job's id and the token."""
        return self.id, self.token


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
    priority: int = 0
    begin_within_s: float | None = None
    round: int = 1
    """The ids of the jobs that it submits follow from it. An older dispatcher does not send it."""
    worker: UUID | None = None
    """Who gets it, if it is a turn of an actor: so its code sees that the actor has moved."""
    traceparent: str = ""
    """The span that submitted the job (W3C trace context)."""
    failures: int = 0
    """How many attempts have failed before."""
    ticket: str = ""
    """With it a program's files are brought and taken."""
    scheduled: Scheduled | None = None
    """The schedule that submitted the job."""
    resources: str = ""
    """What it takes of its worker: its shape (`core.resources`)."""
    devices: tuple[HeldDevices, ...] = ()
    """Which devices of its worker it has. The worker itself notes them (`core.devices`)."""

    @property
    def key(self) -> AttemptKey:
        """The job's id and the token."""
        return self.job, self.token


class HeldAttempt(Struct, frozen=True, array_like=True):
    """An attempt that a process goes on with though its agent is gone, or whose end it kept."""

    assignment: Assignment
    """Without its arguments: only its process needs them."""
    age_s: float = 0.0
    """For how long it has run."""
    agents: int = 1
    """How many agents have had it, this one included."""
