"""Actors for tests: sound by default, with a few words to make them other.

An `ActorScene` is a store with one worker that takes the turns of actors:

    await actors.start(an_actor())
    await actors.send(a_message(name="add"))
    attempt = await actors.turn()
    await actors.take(attempt, state=b"\\x01")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import msgpack, structs

from longshore.core.turns import after_firing, turn_kind
from longshore.model.actor import (
    Actor,
    ActorStatus,
    ActorTerms,
    Concluded,
    Event,
    EventKind,
    MailView,
    Message,
    NewActor,
    Replied,
    Reply,
    ReplyTo,
    Sent,
    Started,
    Timer,
    Turn,
    TurnInput,
    Undelivered,
)
from longshore.model.attempt import Attempt
from longshore.model.batch import MAX_MAILBOX
from longshore.model.ends import End, TurnTaken
from longshore.model.job import Finished, Refused, Submission
from longshore.model.reports import OutboxItem, OutboxMessage, OutboxReply
from longshore.model.watcher import ActorWatcher
from longshore.model.worker import SessionKey
from longshore.ports import Batch, BatchResult
from longshore.testing.builders import Scene, lane, new_id

TYPE: Final = "counter"
KEY: Final = "a"
VERSIONS: Final = (1, 2)
"""Of these the worker of a scene takes turns."""

_input = msgpack.Decoder(TurnInput)


def an_actor(
    key: str = KEY,
    *,
    type: str = TYPE,
    id: UUID | None = None,
    state: bytes = b"\x00",
    version: int = 1,
    terms: ActorTerms | None = None,
    listed: dict[str, str] | None = None,
) -> NewActor:
    """An actor that was never started."""
    how = terms or ActorTerms()
    return NewActor(id or new_id(), type, key, state, version, how, listed or {})


def a_message(
    name: str = "add",
    key: str = KEY,
    *,
    type: str = TYPE,
    args: bytes = b"",
    id: UUID | None = None,
    delay_s: float | None = None,
    reply_to: ReplyTo | None = None,
) -> Message:
    """A message that was never sent."""
    return Message(id or new_id(), type, key, name, args, delay_s, reply_to)


def an_ask(name: str = "ask", key: str = KEY) -> Message:
    """A message from outside that wants a reply."""
    return a_message(name, key, reply_to=ReplyTo())


def given(attempt: Attempt) -> TurnInput:
    """What the worker of a turn gets."""
    return _input.decode(attempt.args)


def names(attempt: Attempt) -> list[str]:
    """The events of a turn in their order: the names of messages and timers, and the start."""
    return [event.name or event.kind for event in given(attempt).events]


def taken(
    attempt: Attempt,
    *,
    state: bytes = b"\x01",
    version: int | None = None,
    first: int | None = None,
    timers: Sequence[Timer] | None = None,
    outbox: Sequence[OutboxItem | Message] = (),
    pauses: bool = False,
    stops: bool = False,
    worker: UUID | None = None,
    listed: dict[str, str] | None = None,
) -> TurnTaken:
    """The end of a turn that handled all of its events, or only the `first` of them.

    It keeps its timers, as they are after those that fired, unless it has others.
    """
    got = given(attempt)
    events = got.events if first is None else got.events[:first]
    read = max((one.number for one in events if not one.was_delayed), default=0)
    delayed = tuple(one.number for one in events if one.was_delayed)
    kept = _kept(got, events) if timers is None else tuple(timers)
    turn = Turn(state, version or got.version, read, delayed, kept, pauses, stops, listed)
    items = tuple(OutboxMessage(one) if isinstance(one, Message) else one for one in outbox)
    which = attempt.id, attempt.token
    return TurnTaken(
        *which, actor=got.actor, number=got.turn, turn=turn, outbox=items, worker=worker
    )


def _kept(got: TurnInput, events: Sequence[Event]) -> tuple[Timer, ...]:
    fired = {one.name for one in events if one.kind is EventKind.TIMER}
    after = (after_firing(one, got.now) if one.name in fired else one for one in got.timers)
    return tuple(one for one in after if one is not None)


def answered(attempt: Attempt, result: bytes = b"\x2a") -> list[OutboxReply]:
    """Replies to all asks among the events of a turn."""
    asks = [one for one in given(attempt).events if one.reply_to is not None and one.id]
    return [OutboxReply(Reply(ask.id, result), ask.reply_to) for ask in asks]  # type: ignore[arg-type]


def undelivered(event: Event) -> Undelivered:
    """What an event says that came back."""
    return msgpack.decode(event.args, type=Undelivered)


def concluded(event: Event) -> Concluded:
    """What an event says that is an outcome."""
    return msgpack.decode(event.args, type=Concluded)


def watched(
    job: Submission, key: str = KEY, *, name: str = "done", about: bytes = b""
) -> Submission:
    """The job, watched by an actor too."""
    watchers = (*job.options.watchers, ActorWatcher(TYPE, key, name, about))
    return structs.replace(job, options=structs.replace(job.options, watchers=watchers))


def replied(event: Event) -> Replied:
    """What an event says that is a reply."""
    return msgpack.decode(event.args, type=Replied)


class ActorScene:
    """A store, a dispatcher, and one worker that takes the turns of actors."""

    def __init__(self, scene: Scene, slot: SessionKey) -> None:
        self.scene = scene
        self.store = scene.store
        self.slot = slot

    @classmethod
    async def begin(cls, scene: Scene, *types: str) -> ActorScene:
        """With a worker that takes the turns of these types; of `TYPE` if there are none."""
        kinds = [turn_kind(type, version) for type in types or (TYPE,) for version in VERSIONS]
        return cls(scene, await scene.attend(kinds=["work", *kinds]))

    async def start(self, *actors: NewActor) -> None:
        """Starts actors that are new."""
        answers = await self.store.start_actors(actors)
        assert answers == [Started(one.id) for one in actors], answers

    async def sleeping(self, *actors: NewActor) -> None:
        """Starts actors that have taken their first turn."""
        await self.start(*actors or (an_actor(),))
        for _ in actors or (None,):
            await self.take(await self.turn())

    async def pump(
        self,
        *finishes: End,
        sends: Sequence[Message] = (),
        max_mailbox: int = MAX_MAILBOX,
    ) -> BatchResult:
        """One batch, in one transaction."""
        batch = Batch(finishes, sends=sends, max_mailbox=max_mailbox)
        return await self.store.pump(self.scene.dispatcher, batch)

    async def send(
        self, *messages: Message, max_mailbox: int = MAX_MAILBOX
    ) -> list[Sent | Refused]:
        """Sends them from outside, as one batch."""
        return (await self.pump(sends=messages, max_mailbox=max_mailbox)).sent

    async def claim(self, type: str = TYPE, version: int = 1, most: int = 9) -> list[Attempt]:
        """The turns of this type that are ready."""
        kind = turn_kind(type, version)
        return await self.scene.claim(self.slot, lane(kind=kind), most=most)

    async def turn(self, type: str = TYPE, version: int = 1) -> Attempt:
        """The next turn that is ready of this type."""
        claimed = await self.claim(type, version, most=1)
        assert claimed, "no turn is ready"
        return claimed[0]

    async def take(
        self,
        attempt: Attempt,
        *,
        state: bytes = b"\x01",
        outbox: Sequence[OutboxItem | Message] = (),
    ) -> list[Finished]:
        """A turn handles all of its events."""
        return (await self.pump(taken(attempt, state=state, outbox=outbox))).finished

    async def actor(self, key: str = KEY, type: str = TYPE) -> Actor:
        """An actor that is there."""
        found = await self.store.actor(type, key)
        assert found is not None, f"there is no actor {type} '{key}'"
        return found

    async def status(self, key: str = KEY, type: str = TYPE) -> ActorStatus:
        """What the system says of an actor."""
        return (await self.actor(key, type)).status

    async def mail(self, key: str = KEY) -> list[MailView]:
        """The mailbox of an actor."""
        return await self.store.mail(TYPE, key)

    async def mail_names(self, key: str = KEY) -> list[str]:
        """The names of the messages in a mailbox."""
        return [one.name for one in await self.mail(key)]
