"""`ActorType` and `ActorRef`: a type of actors, and one of them, for those outside.

Subscription.start("ann", customer="Ann")
ref = Subscription.ref("ann")
ref.upgrade.send(plan="pro")
plan = ref.ask("upgrade", plan="pro", timeout_s=5)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NoReturn, TypeVar, assert_never
from uuid import UUID

from msgspec import structs

from longshore.client.actor_class import ActorClass
from longshore.client.clients import Clients, blocking
from longshore.client.connection import Connection
from longshore.client.sending import MessageCall
from longshore.config import DispatcherSettings
from longshore.core.actor_limits import check_actor_name, check_message
from longshore.core.limits import MAX_DURATION_S, check_timeout
from longshore.core.why_actor import why_actor
from longshore.errors import (
    AskFailed,
    InvalidArguments,
    InvalidInput,
    NotFinished,
    NotFound,
    WrongState,
    from_code,
)
from longshore.model.actor import (
    Actor,
    ActorStatus,
    ActorTerms,
    ActorVerdict,
    MailAction,
    MailView,
    Message,
    NewActor,
    Reply,
    ReplyTo,
    TurnView,
)
from longshore.payload import values
from longshore.payload.listed import listed_values
from longshore.wire.actor_messages import StartAnswer

S = TypeVar("S")

ASK_S: Final = 30.0
"""How long an ask waits for its reply unless it says otherwise."""


class ActorRef(Generic[S]):
    """One actor, by its type and key. To make it asks nobody whether it exists."""

    def __init__(
        self,
        access: Clients,
        type: str,
        key: str,
        new_id: Callable[[], UUID],
        actor: ActorClass[S] | None = None,
        delay_s: float | None = None,
    ) -> None:
        check_actor_name(type, key)
        self.type = type
        self.key = key
        self._access = access.acting()
        self._new_id = new_id
        self._actor = actor
        self._delay_s = delay_s

    def __repr__(self) -> str:
        return f"<ActorRef of {self.type} '{self.key}'>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ActorRef):
            return NotImplemented
        return (self.type, self.key) == (other.type, other.key)

    def __hash__(self) -> int:
        return hash((self.type, self.key))

    def __getattr__(self, name: str) -> ActorMessage:
        """A message of its class, to send or to ask: `ref.upgrade.send(plan="pro")`."""
        if name.startswith("_"):
            raise AttributeError(name, name=name, obj=self)
        actor = self._actor
        if actor is not None:
            try:
                if not actor.handlers.only_reads(name):
                    actor.handlers.signature_of(name)
            except InvalidArguments as error:
                raise AttributeError(str(error), name=name, obj=self) from None
        return ActorMessage(self, name)

    def delayed(self, delay_s: float) -> ActorRef[S]:
        """This actor, for messages that arrive only after so long."""
        if not 0 <= delay_s <= MAX_DURATION_S:
            raise InvalidInput(f"delayed({delay_s!r}): give seconds, 0 or more")
        names = (self._access, self.type, self.key, self._new_id)
        return ActorRef(*names, self._actor, float(delay_s))

    def message(
        self, id: UUID, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Message:
        """A message to it; raises `InvalidArguments` if its class shows that it cannot be."""
        return Message(id, self.type, self.key, name, self._pack(name, args, kwargs), self._delay_s)

    def _pack(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        reads: bool = False,
    ) -> bytes:
        if self._actor is not None:
            handlers = self._actor.handlers
            found = handlers.read_signature(name) if reads else handlers.signature_of(name)
            if found is not None:
                return found.pack(args, kwargs)
        if args:
            raise InvalidArguments(
                f"the parameters of '{name}' of actor '{self.type}' are not known here; give its "
                "arguments by name"
            )
        return values.pack_arguments(kwargs, f"{self.type}.{name}")

    # messages

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> MessageCall:
        """A message to it, described and not sent: for `App.send_many` and `App.enqueue_send`.

        It has its id from now on: sent twice, it arrives once.
        """
        message = self.message(self._new_id(), name, args, kwargs)
        check_message(message, DispatcherSettings().max_value_bytes)
        return MessageCall(message)

    async def send_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Sends a message; when this returns, it is durable."""
        await self._send(self.message(self._new_id(), name, args, kwargs))

    send = blocking(send_async)

    async def _send(self, message: Message) -> None:
        [answer] = await self._access.connection().actors.send((message,))
        if answer.code:
            raise from_code(answer.code, answer.message)

    async def ask_async(
        self, name: str, /, *args: Any, timeout_s: float = ASK_S, **kwargs: Any
    ) -> Any:
        """Sends a message and waits for its reply: what the handler returns.

        Raises `NotFinished` if it takes too long (the message is handled all the same), and
        `AskFailed` if the reply is an error.
        """
        check_timeout("timeout_s", timeout_s)
        message = self.message(self._new_id(), name, args, kwargs)
        message = structs.replace(message, reply_to=ReplyTo())
        reply = await self._access.connection().actors.ask(message, timeout_s)
        if reply is None:
            raise NotFinished(
                f"{self._called} has not replied to '{name}' within {timeout_s:g} s; the message "
                "stays in its mailbox, so do not send it again. `longshore actor why "
                f"{self.type} {self.key}` says what it waits for"
            )
        return self._value(name, reply)

    ask = blocking(ask_async)

    def _value(self, name: str, reply: Reply, *, reads: bool = False) -> Any:
        if reply.error is not None:
            why = reply.error.message or reply.error.reason
            raise AskFailed(f"{self._called} answered '{name}' with an error: {why}")
        if self._actor is not None:
            handlers = self._actor.handlers
            found = handlers.read_signature(name) if reads else handlers.signature_of(name)
            if found is not None:
                return found.unpack_result(reply.result)
        return None if reply.result is None else values.unpack(reply.result)

    async def read_async(
        self, name: str, /, *args: Any, timeout_s: float = ASK_S, **kwargs: Any
    ) -> Any:
        """Calls a handler marked with `@longshore.reads` on the committed state.

        It waits for no turn, and no turn waits for it. Raises as `ask_async` does.
        """
        check_timeout("timeout_s", timeout_s)
        packed = self._pack(name, args, kwargs, reads=True)
        actors = self._access.connection().actors
        reply = await actors.read(self.type, self.key, name, packed, timeout_s)
        if reply is None:
            raise NotFinished(
                f"{self._called} was not read by '{name}' within {timeout_s:g} s; `longshore jobs "
                f"--kind {self.type}@VERSION` shows what its workers do"
            )
        return self._value(name, reply, reads=True)

    read = blocking(read_async)

    # looking

    async def actor_async(self) -> Actor:
        """The actor as the store knows it: status, turn, timers, unread messages."""
        return await self._access.connection().actors.show(self.type, self.key)

    actor = blocking(actor_async)

    async def status_async(self) -> ActorStatus:
        """What the system says of it: ready, running, sleeping, paused, failed, stopping."""
        return (await self.actor_async()).status

    status = blocking(status_async)

    async def state_async(self) -> S:
        """Its state as the last turn left it. Nobody waits for this."""
        actor = await self.actor_async()
        if self._actor is None:
            state: S = values.unpack(actor.state)
            return state
        return self._actor.unpack(actor.state, actor.version)

    state = blocking(state_async)

    async def turns_async(self) -> tuple[TurnView, ...]:
        """Its last turns, the newest first."""
        return await self._access.connection().actors.turns(self.type, self.key)

    turns = blocking(turns_async)

    async def mail_async(self) -> tuple[MailView, ...]:
        """The first messages that it has not read, parked ones too."""
        return await self._access.connection().actors.mail(self.type, self.key)

    mail = blocking(mail_async)

    async def why_async(self) -> str:
        """Why it is where it is, in words."""
        return (await explained(self._access.connection(), self.type, self.key))[1]

    why = blocking(why_async)

    # changing

    async def pause_async(self) -> ActorVerdict:
        """Lets no more turns begin; messages and timers wait. See `resume`."""
        return self._done(await self._access.connection().actors.pause(self.type, self.key, True))

    pause = blocking(pause_async)

    async def resume_async(self) -> ActorVerdict:
        """Lets a paused actor go on, or a failed one try its turn again."""
        return self._done(await self._access.connection().actors.pause(self.type, self.key, False))

    resume = blocking(resume_async)

    async def stop_async(self) -> ActorVerdict:
        """Removes it, with its mailbox and timers; a turn that runs is stopped first."""
        return self._done(await self._access.connection().actors.stop(self.type, self.key))

    stop = blocking(stop_async)

    async def edit_async(self, /, *, turn: int | None = None, **fields: Any) -> None:
        """Changes these fields of its state, between two turns; with `turn`, only after that one.

        Raises `WrongState` if a turn runs, or ran since its state was read: try again.
        """
        actor = await self.actor_async()
        self._check_turn(actor, turn)
        known = self._actor
        if known is None:
            state = values.pack(values.unpack(actor.state) | fields, f"the state of {self._called}")
        else:
            state = known.edited(actor.state, actor.version, fields)
        version = actor.version if known is None else known.version
        # Without the class, by what it was listed by.
        names = (known.listed if known is not None else ()) or actor.listed
        listed = listed_values(self.type, state, names)
        edit = self._access.connection().actors.edit
        self._done(await edit(self.type, self.key, state, version, turn=actor.turn, listed=listed))

    edit = blocking(edit_async)

    async def restart_async(self, /, *, turn: int | None = None, **fields: Any) -> None:
        """Starts it anew with these fields: a new state, no timers, then `start`. Mail stays.

        With `turn`, only after that one; otherwise it raises `WrongState`.
        """
        if self._actor is None:
            raise InvalidInput(f"the class of actor '{self.type}' is not known here; edit it")
        if turn is not None:
            self._check_turn(await self.actor_async(), turn)
        state = self._actor.pack(self._actor.new(fields))
        edit = self._access.connection().actors.edit
        listed = self._actor.listed_values(state)
        version = self._actor.version
        names = (self.type, self.key, state, version)
        self._done(await edit(*names, turn=turn, restart=True, listed=listed))

    restart = blocking(restart_async)

    def _check_turn(self, actor: Actor, turn: int | None) -> None:
        """Raises `WrongState` if the actor is past this turn, which its caller has seen."""
        if turn is None:
            return
        if isinstance(turn, bool) or not isinstance(turn, int):
            raise InvalidInput(
                f"turn is {turn!r}; give the number of the turn after which {self._called} may be "
                "changed, as ref.actor().turn has it. A field called so is changed by "
                f"`longshore actor edit {self.type} {self.key} turn=…`"
            )
        check_turn(self._called, actor, turn)

    async def park_async(self, number: int) -> ActorVerdict:
        """Puts a message aside: the actor goes on without it. See `put_back`."""
        return await self._sort(number, MailAction.PARK)

    park = blocking(park_async)

    async def put_back_async(self, number: int) -> ActorVerdict:
        """Puts a parked message back."""
        return await self._sort(number, MailAction.PUT_BACK)

    put_back = blocking(put_back_async)

    async def drop_async(self, number: int) -> ActorVerdict:
        """Removes a message for good."""
        return await self._sort(number, MailAction.DROP)

    drop = blocking(drop_async)

    async def _sort(self, number: int, action: MailAction) -> ActorVerdict:
        actors = self._access.connection().actors
        verdict = await actors.sort_mail(self.type, self.key, number, action)
        return self._done(verdict, f"there is no message {number}, or no {self._called}")

    @property
    def _called(self) -> str:
        return f"actor {self.type} '{self.key}'"

    def _done(self, verdict: ActorVerdict, missing: str = "") -> ActorVerdict:
        return check_done(self._called, verdict, missing)


def check_done(called: str, verdict: ActorVerdict, missing: str = "") -> ActorVerdict:
    """The verdict of a request that did what it asked for; raises if it did not."""
    match verdict:
        case ActorVerdict.DONE | ActorVerdict.ALREADY:
            return verdict
        case ActorVerdict.NOT_FOUND:
            raise NotFound(missing or f"there is no {called}; it was stopped, or never started")
        case ActorVerdict.BUSY:
            raise WrongState(f"a turn of {called} runs now; pause it, or try again after it")
        case ActorVerdict.CHANGED:
            raise WrongState(f"{called} has taken another turn meanwhile; look at it and try again")
        case _:
            assert_never(verdict)


def check_turn(called: str, actor: Actor, turn: int | None) -> None:
    """Raises `WrongState` unless this turn, if one is given, is the last that the actor took."""
    if turn is not None and turn != actor.turn:
        raise WrongState(
            f"{called} is at turn {actor.turn:,}, not at turn {turn:,}: nothing was changed; look "
            "at its state and try again"
        )


async def explained(connection: Connection, type: str, key: str) -> tuple[Actor, str]:
    """An actor, and why it is where it is, in words."""
    actor = await connection.actors.show(type, key)
    if actor.job is None:
        return actor, why_actor(actor)
    try:
        return actor, why_actor(actor, (await connection.why(actor.job)).why)
    except NotFound:  # the turn ended meanwhile
        actor = await connection.actors.show(type, key)
        return actor, why_actor(actor)


class ActorMessage:
    """One message of an actor, to send or to ask."""

    def __init__(self, ref: ActorRef[Any], name: str) -> None:
        self._ref = ref
        self._name = name
        self._access = ref._access

    def __repr__(self) -> str:
        return f"<message '{self._name}' to {self._ref!r}>"

    def call(self, /, *args: Any, **kwargs: Any) -> MessageCall:
        """It with these arguments, described: for `App.send_many` and `App.enqueue_send`.

        It has its id from now on: sent twice, it arrives once.
        """
        ref = self._ref
        return MessageCall(ref.message(ref._new_id(), self._name, args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """A message is no method: it is sent."""
        raise TypeError(
            f"'{self._name}' is a message to {self._ref._called}: use .{self._name}.send(…) to "
            f"send it, or .{self._name}.ask(…) to wait for the reply"
        )

    async def send_async(self, /, *args: Any, **kwargs: Any) -> None:
        """Sends it; when this returns, it is durable."""
        await self._ref.send_async(self._name, *args, **kwargs)

    send = blocking(send_async)

    async def ask_async(self, /, *args: Any, timeout_s: float = ASK_S, **kwargs: Any) -> Any:
        """Sends it and waits for its reply (see `ActorRef.ask`)."""
        return await self._ref.ask_async(self._name, *args, timeout_s=timeout_s, **kwargs)

    ask = blocking(ask_async)

    async def read_async(self, /, *args: Any, timeout_s: float = ASK_S, **kwargs: Any) -> Any:
        """Calls the handler, which only reads (see `ActorRef.read`)."""
        return await self._ref.read_async(self._name, *args, timeout_s=timeout_s, **kwargs)

    read = blocking(read_async)


class ActorType(Generic[S]):
    """A class whose actors can be started. Called directly, it makes a plain instance."""

    def __init__(
        self,
        access: Clients,
        actor: ActorClass[S],
        terms: ActorTerms,
        new_id: Callable[[], UUID],
    ) -> None:
        self.type = actor.type
        self.actor_class = actor
        self.__doc__ = actor.of.__doc__
        self._access = access
        self._terms = terms
        self._new_id = new_id

    def __repr__(self) -> str:
        return f"<ActorType {self.type}>"

    def __call__(self, **fields: Any) -> S:
        """An instance of the class, without any actor: for a test of a handler, say."""
        return self.actor_class.new(fields)

    def ref(self, key: str) -> ActorRef[S]:
        """The actor with this key, whether it exists or not."""
        return ActorRef(self._access, self.type, key, self._new_id, self.actor_class)

    async def start_async(self, key: str, /, **fields: Any) -> ActorRef[S]:
        """Starts an actor with these fields; raises `Conflict` if there is one with this key."""
        return (await self._start(key, fields, reuse=False))[0]

    start = blocking(start_async)

    async def get_or_start_async(self, key: str, /, **fields: Any) -> ActorRef[S]:
        """The actor with this key; if there is none, it is started with these fields."""
        return (await self._start(key, fields, reuse=True))[0]

    get_or_start = blocking(get_or_start_async)

    async def _start(
        self, key: str, fields: Mapping[str, object], *, reuse: bool
    ) -> tuple[ActorRef[S], StartAnswer]:
        ref = self.ref(key)
        state = self.actor_class.pack(self.actor_class.new(fields))
        version = self.actor_class.version
        listed = self.actor_class.listed_values(state) or {}
        actor = NewActor(self._new_id(), self.type, key, state, version, self._terms, listed)
        [answer] = await self._access.connection().actors.start((actor,), reuse=reuse)
        if answer.code:
            raise from_code(answer.code, answer.message)
        return ref, answer
