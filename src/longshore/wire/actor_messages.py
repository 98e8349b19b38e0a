"""The requests of clients about actors, and their answers (see `messages`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorPage,
    ActorVerdict,
    MailAction,
    MailView,
    Message,
    NewActor,
    Reply,
    TurnView,
    UndeliveredSend,
)


class Numbered(Struct, frozen=True):
    """What requests and their answers have in common: a number of the client's choice."""

    rid: int


class _OfActor(Numbered, frozen=True):
    type: str
    key: str


class _ChangesActor(Numbered, frozen=True):
    id: UUID
    type: str
    key: str


class StartActors(Numbered, frozen=True):
    """Start these actors. With `reuse`, one that is there already is as good as a new one."""

    actors: tuple[NewActor, ...]
    reuse: bool = False


class Send(Numbered, frozen=True, omit_defaults=True):
    """Put these messages into the mailboxes of their actors.

    With `wait_s`, for a single message that asks: answer when its reply is there, or after so long.
    """

    messages: tuple[Message, ...]
    wait_s: float = 0.0


class Resolve(Numbered, frozen=True):
    """Give the callback with this token its value."""

    id: UUID
    token: str
    value: bytes | None = None


class AwaitReplies(Numbered, frozen=True):
    """Answer with the replies to these asks, once there is any, or after `wait_s`."""

    asks: tuple[UUID, ...]
    wait_s: float


class ShowActor(_OfActor, frozen=True):
    """One actor, as its last turn left it."""


class ListActors(Numbered, frozen=True):
    """Actors by type and key, without their states."""

    wanted: ActorFilter = ActorFilter()


class ReadActor(_ChangesActor, frozen=True):
    """Call a handler of an actor that only reads; AWAITREPLIES with the id has its answer.

    The call is not begun after `within_s`.
    """

    name: str
    args: bytes = b""
    within_s: float | None = None


class ListTurns(_OfActor, frozen=True):
    """The last turns of an actor, the newest first."""


class ListMail(_OfActor, frozen=True):
    """The first messages that an actor has not read."""

    most: int = 100


class PauseActor(_ChangesActor, frozen=True):
    """Pause an actor after the turn that runs, or let it go on; a failed one too."""

    paused: bool


class StopActor(_ChangesActor, frozen=True):
    """Remove an actor, with its mailbox and timers."""


class EditActor(_ChangesActor, frozen=True):
    """Replace the state of an actor between two turns; with `turn`, only after that one.

    With `restart`, its timers go too, and it gets the event of its start again. It is listed by
    `listed` from now on, if that is given.
    """

    state: bytes
    version: int
    turn: int | None = None
    restart: bool = False
    listed: dict[str, str] | None = None


class SortMail(_ChangesActor, frozen=True):
    """Park a message of a mailbox, put it back, or drop it."""

    number: int
    action: MailAction


class ListUndelivered(Numbered, frozen=True):
    """The messages of applications' transactions that could not be delivered."""

    most: int = 100


class SortUndelivered(Numbered, frozen=True):
    """Have such a message delivered again, or drop it."""

    id: UUID
    message: UUID
    again: bool


class StartAnswer(Struct, frozen=True, omit_defaults=True):
    """What became of one start: the actor's id, or an error."""

    id: UUID
    existing: bool = False
    code: str = ""
    message: str = ""


class SendAnswer(Struct, frozen=True, omit_defaults=True):
    """What became of one message: it is in its mailbox, or there is an error."""

    id: UUID
    code: str = ""
    message: str = ""
    reply: Reply | None = None


ActorRequest = (
    StartActors
    | Send
    | Resolve
    | AwaitReplies
    | ShowActor
    | ReadActor
    | ListActors
    | ListTurns
    | ListMail
    | PauseActor
    | StopActor
    | EditActor
    | SortMail
    | ListUndelivered
    | SortUndelivered
)

ACTOR_ANSWERS: Final[dict[type, Any]] = {
    StartActors: tuple[StartAnswer, ...],
    Send: tuple[SendAnswer, ...],
    Resolve: ActorVerdict,
    AwaitReplies: tuple[Reply, ...],
    ShowActor: Actor,
    ReadActor: bool,
    ListActors: ActorPage,
    ListTurns: tuple[TurnView, ...],
    ListMail: tuple[MailView, ...],
    PauseActor: ActorVerdict,
    StopActor: ActorVerdict,
    EditActor: ActorVerdict,
    SortMail: ActorVerdict,
    ListUndelivered: tuple[UndeliveredSend, ...],
    SortUndelivered: bool,
}
