"""Actors: stateful jobs that live for years, one run at a time.

An actor has a type, a key, a state, timers and a mailbox. It sleeps until a message or a timer
wakes it. Then a worker runs one *turn*: it takes the waiting events in their order, and its one
commit has the new state, the new timers, what it sends and which messages it has read. A turn is an
ordinary job (`core.turns` says which), so claims, leases, tokens, retries and `why` are those of
jobs.

Times are microseconds since 1970 by the store's clock. Nobody else's clock counts: what a handler
wants later travels as a duration.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.history import HistoryJob
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, JobError, JobState, Options

TURNS_KEPT: Final = 20
"""How many of an actor's last turns the store keeps."""


class ActorStatus(StrEnum):
    """What the system says of an actor; a user's own named states are part of its state."""

    READY = "ready"
    """Its turn waits for a worker."""
    RUNNING = "running"
    SLEEPING = "sleeping"
    """It waits for a message or a timer."""
    PAUSED = "paused"
    """Messages queue up, timers wait."""
    FAILED = "failed"
    """Its turn failed for good. State and mailbox are as before it; `resume` tries again."""
    STOPPING = "stopping"
    """It is being removed; its last turn is being stopped."""


class ActorTerms(Struct, frozen=True, omit_defaults=True):
    """How the turns of an actor run."""

    queue: str = DEFAULT_QUEUE
    target: str = ANY_TARGET
    priority: int = 0
    options: Options = Options()
    history: HistoryJob | None = None
    """The job that hears of every commit of the actor."""
    request: str = ""
    """A fingerprint of the request with an `Idempotency-Key` that started the actor."""


class NewActor(Struct, frozen=True, omit_defaults=True):
    """An actor to start. By the id the store recognises a repeat."""

    id: UUID
    type: str
    key: str
    state: bytes
    version: int = 1
    terms: ActorTerms = ActorTerms()
    listed: dict[str, str] = {}
    """The fields that it is listed by, with their values as JSON."""


class Started(Struct, frozen=True):
    """The actor with this type and key; `existing` if it had been started before."""

    id: UUID
    existing: bool = False


class ReplyTo(Struct, frozen=True, omit_defaults=True, gc=False):
    """Where the reply to a message goes: to an actor, as a message; without one to who asked.

    `about` is what the asking handler wanted to find again in the reply.
    """

    type: str = ""
    key: str = ""
    name: str = ""
    about: bytes = b""


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """A message to an actor. By the id the store drops the repeat of a send."""

    id: UUID
    type: str
    key: str
    name: str
    args: bytes = b""
    delay_s: float | None = None
    reply_to: ReplyTo | None = None
    actor: UUID | None = None
    """Set if it resolves a callback: it is for the actor with this id, whose life long it counts
    once. Only dispatchers make such messages."""


class Sent(Struct, frozen=True, gc=False):
    """A message that is in its mailbox, or was there before: the send was repeated.

    Whether it was is told of those that resolve a callback.
    """

    id: UUID
    existing: bool = False


class UndeliveredSend(Struct, frozen=True):
    """A message that an application sent in its own transaction, and that nobody got."""

    id: UUID
    type: str
    key: str
    name: str
    args: bytes
    at: datetime
    refused_at: datetime
    why: str


class Delivered(Struct, frozen=True):
    """What a delivery did: how many messages arrived, which could not, whether to look again."""

    count: int = 0
    refused: tuple[UndeliveredSend, ...] = ()
    more: bool = False


class Reply(Struct, frozen=True, gc=False):
    """The answer to an ask from outside."""

    id: UUID
    result: bytes | None = None
    error: JobError | None = None


UNDELIVERED: Final = "undelivered"
"""The name of the message that tells a turn of a message to nobody; an `Undelivered`, packed."""


class Undelivered(Struct, frozen=True, omit_defaults=True, gc=False):
    """What an actor hears of a message that was not accepted, mostly because nobody is there.

    The event has its id. A job that was not accepted comes back like this too: then `type` and
    `key` are empty, and `name` is its kind.
    """

    type: str
    key: str
    name: str
    args: bytes = b""
    why: str = ""


class Replied(Struct, frozen=True, omit_defaults=True, gc=False):
    """What an actor hears of an ask of its own, packed as the arguments of `ReplyTo.name`.

    The event has the id of the ask.
    """

    result: bytes | None = None
    error: JobError | None = None
    about: bytes = b""


class Concluded(Struct, frozen=True, omit_defaults=True, gc=False):
    """What an actor hears of the end of a job or a group that it watches, packed as arguments."""

    subject: UUID
    round: int
    state: JobState
    result: bytes | None = None
    error: JobError | None = None
    about: bytes = b""
    is_group: bool = False


class Timer(Struct, frozen=True, omit_defaults=True, gc=False):
    """A timer of an actor. A handler sets it by `after_s`, which the store turns into `at`."""

    name: str
    at: int | None = None
    after_s: float | None = None
    every_s: float | None = None
    args: bytes = b""


class EventKind(StrEnum):
    """What wakes an actor."""

    START = "start"
    MESSAGE = "message"
    TIMER = "timer"


class Event(Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing for a turn to handle. A message has its number and, if it was sent, its id."""

    kind: EventKind
    name: str = ""
    args: bytes = b""
    at: int = 0
    number: int = 0
    id: UUID | None = None
    was_delayed: bool = False
    reply_to: ReplyTo | None = None


class TurnInput(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a worker gets to take a turn: the state before it, and the events in their order."""

    actor: UUID
    type: str
    key: str
    turn: int
    state: bytes
    version: int
    now: int
    timers: tuple[Timer, ...] = ()
    events: tuple[Event, ...] = ()
    last_worker: UUID | None = None
    """The worker that took the turn before it."""
    failure: JobError | None = None
    """Set if the one event has failed for good, with this error: the turn is to recover."""
    callback_key: bytes = b""
    """Signs the callback tokens of this turn (see `core.callbacks`)."""
    reads: bool = False
    """It is no turn: its one event is a message to a handler that reads, and nothing more."""


class ReadCall(Struct, frozen=True, gc=False):
    """What a job that reads an actor has as arguments, until it gets the actor's state."""

    actor: UUID
    name: str
    args: bytes


class Turn(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a turn leaves: the actor's new state, its timers, and what it has read.

    It has read the messages up to number `read`, and the delayed ones in `read_delayed`.
    """

    state: bytes
    version: int
    read: int
    read_delayed: tuple[int, ...] = ()
    timers: tuple[Timer, ...] = ()
    pauses: bool = False
    stops: bool = False
    listed: dict[str, str] | None = None
    """What the actor is listed by from now on (see `NewActor`); None: as before."""
    parks: tuple[int, ...] = ()
    """Messages that it puts aside, by their numbers."""


class TurnView(Struct, frozen=True, omit_defaults=True):
    """A turn that was taken, as the history shows it."""

    turn: int
    at: datetime
    worker: UUID | None
    read: int
    version: int
    state: bytes
    timers: tuple[Timer, ...] = ()


class MailView(Struct, frozen=True, omit_defaults=True):
    """A message in a mailbox. A parked one waits until it is dropped or put back."""

    number: int
    name: str
    args: bytes
    at: datetime
    due_at: datetime | None = None
    parked: bool = False


class Actor(Struct, frozen=True, kw_only=True):
    """Everything the store knows of an actor; `job` is its next turn, or the one that runs."""

    id: UUID
    type: str
    key: str
    status: ActorStatus
    terms: ActorTerms
    created_at: datetime
    turn: int
    state: bytes
    version: int
    timers: tuple[Timer, ...] = ()
    unread: int = 0
    """How many messages it has not read, delayed ones too, without those that are parked."""
    turned_at: datetime | None = None
    worker: UUID | None = None
    job: UUID | None = None
    next_at: datetime | None = None
    error: JobError | None = None
    listed: dict[str, str] = {}
    """The fields that it is listed by, with their values as JSON."""


class ActorFilter(Struct, frozen=True, omit_defaults=True):
    """Which actors to list, by type and key: those after this type and key, at most `limit`.

    With `fields`, those of one type that are listed by these values (see `NewActor.listed`).
    """

    type: str | None = None
    status: ActorStatus | None = None
    after: tuple[str, str] | None = None
    limit: int = 50
    fields: dict[str, str] = {}


class ActorPage(Struct, frozen=True):
    """Some actors of a list, and after which type and key to go on; None at its end.

    To find them a store looks at so many actors and no more, so that a page may have few of them,
    or none, although there are others behind it.
    """

    actors: tuple[Actor, ...] = ()
    after: tuple[str, str] | None = None


class MailAction(StrEnum):
    """What to do with a message in a mailbox."""

    PARK = "park"
    PUT_BACK = "put_back"
    DROP = "drop"


class ActorVerdict(StrEnum):
    """What a request did to an actor."""

    DONE = "done"
    ALREADY = "already"
    """There was nothing to do."""
    NOT_FOUND = "not_found"
    BUSY = "busy"
    """A turn runs; try again after it."""
    CHANGED = "changed"
    """It has taken another turn than the caller has seen."""
