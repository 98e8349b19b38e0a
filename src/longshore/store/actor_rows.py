"""How actors become columns, and the answers about them: the forms that every store uses.

Terms, timers, replies and what a turn gets are msgpack, so that a new field needs no new column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec import msgpack, structs

from longshore.core.callbacks import turn_key
from longshore.core.recovery import is_recovery
from longshore.core.turns import events_of, read_call, turn_job
from longshore.core.watching import group_not_accepted, not_accepted
from longshore.errors import Conflict, InvalidInput, NotFound, WrongState
from longshore.model.actor import (
    UNDELIVERED,
    Actor,
    ActorFilter,
    ActorPage,
    ActorTerms,
    Event,
    EventKind,
    Message,
    NewActor,
    Replied,
    Reply,
    ReplyTo,
    Sent,
    Timer,
    TurnInput,
    Undelivered,
)
from longshore.model.attempt import Attempt
from longshore.model.group import GroupHead
from longshore.model.job import JobError, Reason, Refused, Submission
from longshore.store.rows import body_or_why, clean, later

NEVER: Final = 2**63 - 1
"""When a parked message is due."""
RECEIPTS_S: Final = 3600.0
"""For how long the ids of messages from outside are kept, and the replies."""
UNDELIVERED_S: Final = 7 * 86_400.0
"""For how long messages of applications are kept that could not be delivered."""
KEY_TEXT: Final = "text without NUL characters"

_packer = msgpack.Encoder()
_terms = msgpack.Decoder(ActorTerms)
_timers = msgpack.Decoder(tuple[Timer, ...])
_reply = msgpack.Decoder(Reply)
_reply_to = msgpack.Decoder(ReplyTo)


def pack_terms(terms: ActorTerms) -> bytes:
    """Terms as they are stored."""
    return _packer.encode(terms)


def unpack_terms(data: bytes) -> ActorTerms:
    """Stored terms."""
    return _terms.decode(data)


def pack_timers(timers: Sequence[Timer]) -> bytes:
    """Timers as they are stored."""
    return _packer.encode(tuple(timers))


def unpack_timers(data: bytes) -> tuple[Timer, ...]:
    """Stored timers."""
    return _timers.decode(data)


def pack_reply(reply: Reply) -> bytes:
    """A reply as it is stored, whatever a handler put into its error."""
    try:
        return _packer.encode(reply)
    except UnicodeEncodeError:
        error = reply.error or JobError(Reason.RAISED, "")
        texts = (clean(error.message), clean(error.type), clean(error.traceback))
        return _packer.encode(structs.replace(reply, error=JobError(error.reason, *texts)))


def storable_reply(reply: Reply) -> Reply:
    """The reply as it is read back."""
    return unpack_reply(pack_reply(reply))


def unpack_reply(data: bytes) -> Reply:
    """A stored reply."""
    return _reply.decode(data)


def pack_reply_to(to: ReplyTo | None) -> bytes | None:
    """Where a reply goes, as it is stored."""
    return None if to is None else _packer.encode(to)


def unpack_reply_to(data: bytes | None) -> ReplyTo | None:
    """Where a reply goes, if one is wanted."""
    return None if data is None else _reply_to.decode(data)


# messages


def is_from_outside(to: ReplyTo | None) -> bool:
    """Whether the one who waits for this reply is no actor: then its receipt gets the reply."""
    return to is not None and not to.type


def due(message: Message, now: int) -> int | None:
    """When a message is due; None if it is not delayed."""
    return later(now, message.delay_s) if message.delay_s else None


def unstorable_message(message: Message) -> str | None:
    """Why no database can store a message, in words; None if it is sound."""
    to = message.reply_to or ReplyTo()
    texts = (message.type, message.key, message.name, to.type, to.key, to.name)
    return _not_text(texts)


def unstorable_actor(actor: NewActor, now: int) -> str | None:
    """Why no database can store an actor or its turns, in words; None if it is sound."""
    why = _not_text((actor.type, actor.key))
    job = turn_job(actor.id, actor.type, actor.terms, actor.version, 1)
    body = why or body_or_why(job, now)
    return body if isinstance(body, str) else None


def is_storable(text: str) -> bool:
    """Whether databases take this text."""
    return clean(text) == text


def _not_text(texts: Sequence[str]) -> str | None:
    wrong = [text for text in texts if not is_storable(text)]
    return f"{wrong[0]!r} is not {KEY_TEXT}" if wrong else None


def undelivered(message: Message, why: str) -> Message:
    """What the actor hears whose message was not accepted; the caller knows which actor it is."""
    about = Undelivered(clean(message.type), clean(message.key), clean(message.name), message.args)
    packed = _packer.encode(structs.replace(about, why=why))
    return Message(message.id, "", "", UNDELIVERED, packed)


def undelivered_job(job: Submission, why: str) -> Message:
    """What the actor hears whose job was not accepted; as an outcome, if it watches the job."""
    if (outcome := not_accepted(job, why)) is not None:
        return outcome
    about = Undelivered("", "", clean(job.kind), job.args, why)
    return Message(job.id, "", "", UNDELIVERED, _packer.encode(about))


def undelivered_group(head: GroupHead, why: str) -> Message:
    """What the actor hears whose group was not accepted; as an outcome, if it watches the group."""
    if (outcome := group_not_accepted(head, why)) is not None:
        return outcome
    about = Undelivered("", "", clean(head.name), b"", why)
    return Message(head.id, "", "", UNDELIVERED, _packer.encode(about))


def reply_message(reply: Reply, to: ReplyTo) -> Message:
    """A reply to the actor that asked, as a message."""
    replied = Replied(reply.result, storable_reply(reply).error, to.about)
    return Message(reply.id, to.type, to.key, to.name, _packer.encode(replied))


def stopped_reply(id: UUID, type: str, key: str) -> Reply:
    """The answer to an ask of an actor that was stopped before it replied."""
    return Reply(id, error=JobError(Reason.CANCELLED, f"{_name(type, key)} was stopped"))


# what a turn gets


def turn_attempt(
    attempt: Attempt,
    input: TurnInput,
    mail: Sequence[Event],
    delayed: Sequence[Event],
    *,
    starts: bool,
    paused: bool,
    secret: bytes,
    error: JobError | None = None,
) -> Attempt:
    """The attempt as its worker gets it: the input with its events, packed as the arguments.

    `error` is the last one of the job, of which a turn hears that is to recover from it.
    """
    one_only = bool(attempt.failures or attempt.crashes)
    events = events_of(input.timers, mail, delayed, input.now, starts=starts, one_only=one_only)
    key = turn_key(secret, input.actor, input.turn)
    failure = error if is_recovery(attempt) and events else None
    whole = structs.replace(input, events=events, callback_key=key, failure=failure)
    args = _packer.encode(whole)
    return structs.replace(attempt, args=args, paused=paused)


def read_attempt(attempt: Attempt, input: TurnInput | None) -> Attempt:
    """A read as its worker gets it: the state, and the message as its one event."""
    if input is None:
        return structs.replace(attempt, problem="the actor that it reads is gone")
    call = read_call(attempt.args)
    event = Event(EventKind.MESSAGE, call.name, call.args, input.now, id=attempt.id)
    whole = structs.replace(input, events=(event,), reads=True)
    return structs.replace(attempt, args=_packer.encode(whole))


# lists


MOST_LOOKED_AT: Final = 1000
"""How many actors a list looks at before it answers."""
NO_PAGE: Final = ActorPage()


def is_wanted(actor: Actor, wanted: ActorFilter) -> bool:
    """Whether an actor, found by its type and its first field, has the rest of it too."""
    has_fields = all(actor.listed.get(name) == value for name, value in wanted.fields.items())
    return wanted.status in (None, actor.status) and has_fields


def page_size(wanted: ActorFilter, found: int, looked_at: int) -> int:
    """How many actors to read next; 0 if the list has looked at enough."""
    is_sieved = wanted.status is not None or len(wanted.fields) > 1
    if not is_sieved or not wanted.limit:
        return wanted.limit - found
    return min(PAGE, MOST_LOOKED_AT - looked_at)


PAGE: Final = 200
"""How many actors a list reads at once that it may have to pass over."""


# answers


def _name(type: str, key: str) -> str:
    return f"actor {type} '{key}'"


def actor_not_accepted(actor: NewActor, why: str) -> Refused:
    """The answer to an actor that cannot be stored."""
    message = f"{_name(actor.type, actor.key)} was not accepted: {why}; correct it and start again"
    return Refused(actor.id, InvalidInput.code, clean(message))


def actor_exists(actor: NewActor, *, stopping: bool) -> Refused:
    """The answer to the start of an actor whose key is taken."""
    there = "exists; take another key, or get_or_start, which takes the one that there is"
    why = "is being stopped; start it again when it is gone" if stopping else there
    return Refused(actor.id, Conflict.code, f"{_name(actor.type, actor.key)} {why}")


def id_taken(actor: NewActor) -> Refused:
    """The answer to the start of an actor whose id one of another type or key has."""
    message = f"another actor has the id {actor.id}; give a new actor a new id"
    return Refused(actor.id, Conflict.code, message)


def message_not_accepted(message: Message, why: str) -> Refused:
    """The answer to a message that cannot be stored."""
    text = f"message {message.id} was not accepted: {why}; correct it and send it again"
    return Refused(message.id, InvalidInput.code, clean(text))


def told_once(
    messages: Sequence[Message], answers: Mapping[UUID, Sent | Refused]
) -> list[Sent | Refused]:
    """The answers in the order of the messages. Of two that resolve a callback the first counts."""
    seen: set[UUID] = set()
    found: list[Sent | Refused] = []
    for message in messages:
        answer = answers[message.id]
        if message.actor is not None and message.id in seen and isinstance(answer, Sent):
            answer = Sent(message.id, existing=True)
        seen.add(message.id)
        found.append(answer)
    return found


def nobody(message: Message) -> Refused:
    """The answer to a message to an actor that is not there."""
    name = _name(message.type, message.key)
    return Refused(message.id, NotFound.code, f"there is no {name}; start it before you send to it")


def mailbox_full(message: Message, most: int) -> Refused:
    """The answer to a message from outside to an actor that has many unread ones."""
    name = _name(message.type, message.key)
    text = f"{name} has {most:,} unread messages, which is max_mailbox; send again later"
    return Refused(message.id, WrongState.code, text)
