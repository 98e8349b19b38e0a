"""Runs the turns of an actor: its handlers, event by event, and what they leave."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from longshore.client.actor_class import (
    FAILED,
    MOVED,
    START,
    UNDELIVERED,
    UNHANDLED,
    ActorClass,
)
from longshore.client.actor_context import ActorContext, Answer, Failure, Outcome, Undelivered
from longshore.client.actor_reading import ReadContext, ReadValue
from longshore.client.hooks import Hooks
from longshore.client.retry_rule import RetryRule
from longshore.core.turns import REPLY_PREFIX, TIMER_PREFIX, event_called, turn_called, turn_kind
from longshore.core.watching import OUTCOME_PREFIX
from longshore.errors import InvalidArguments, InvalidInput, WrongState
from longshore.executors.host.call import TakenTurn
from longshore.executors.host.context import Fail, RunningContext, running
from longshore.model.actor import Concluded, Event, EventKind, Replied, Turn, TurnInput
from longshore.model.actor import Undelivered as StoredUndelivered
from longshore.model.history import HistoryJob
from longshore.model.job import JobError
from longshore.model.worker import KindInfo, KindTerms
from longshore.payload import values
from longshore.payload.schemas import nearest

RefTo = Callable[[str], Any]
"""Makes the ref of the actor with this key."""

_decoder: Final = msgspec.msgpack.Decoder(TurnInput)
_replied: Final = msgspec.msgpack.Decoder(Replied)
_concluded: Final = msgspec.msgpack.Decoder(Concluded)
_undelivered: Final = msgspec.msgpack.Decoder(StoredUndelivered)


class ActorHandler:
    """Runs the turns of actors whose state is of one version (see `ports.Handler`)."""

    def __init__(
        self,
        actor: ActorClass[Any],
        version: int,
        hooks: Hooks,
        ref: RefTo,
        terms: KindTerms,
        retry_rule: RetryRule | None = None,
        history: HistoryJob | None = None,
    ) -> None:
        self.actor = actor
        self.kind = turn_kind(actor.type, version)
        self.is_async = actor.handlers.is_async
        self.info = KindInfo(
            actor.pool,
            actor.parameters(),
            terms,
            actor.listed,
            history,
            actor.handlers.has(FAILED),
            actor.handlers.advertised(),
        )
        self.given = actor.handlers.given
        self.retry_rule = retry_rule or RetryRule()
        self._hooks = hooks
        self._ref = ref

    @property
    def function(self) -> Callable[..., object]:
        """Takes one turn, within the middleware."""
        return self._hooks.around(self._take_async if self.is_async else self._take, self.is_async)

    def bind(self, args: bytes) -> dict[str, object]:
        """The turn to take; raises `InvalidArguments` if these are no turn's arguments."""
        try:
            return {"turn": _decoder.decode(args)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArguments(
                f"'{self.kind}' is for the turns of actors, and this is none ({error}); start an "
                f"actor instead: {self.actor.type}.start(key)"
            ) from None

    def pack_result(self, value: object) -> bytes:
        """The result of a read; a turn has none."""
        if isinstance(value, ReadValue):
            return values.pack(value.value, f"the answer of '{self.kind}'")
        return values.NONE

    def is_final(self, error: BaseException) -> bool:
        """Whether a turn that raised this is not tried again, by what was declared."""
        return self.retry_rule.is_final(error)

    def _take(self, turn: TurnInput) -> TakenTurn | ReadValue:
        if turn.reads:
            read = self._begin_read(turn)
            return read.returned(read.call())
        run = self._begin(turn)
        for call in run.calls():
            run.returned(call())
        return run.taken()

    async def _take_async(self, turn: TurnInput) -> TakenTurn | ReadValue:
        if turn.reads:
            read = self._begin_read(turn)
            value = read.call()
            return read.returned(await value if inspect.isawaitable(value) else value)
        run = self._begin(turn)
        for call in run.calls():
            value = call()
            run.returned(await value if inspect.isawaitable(value) else value)
        return run.taken()

    def _begin_read(self, turn: TurnInput) -> _ReadRun:
        return _ReadRun(self.actor, turn, self._job(), self._hooks, self._ref(turn.key))

    def _job(self) -> RunningContext:
        job = running()
        if job is None:
            raise WrongState("a turn runs on a worker, or in a test kit")
        return job

    def _begin(self, turn: TurnInput) -> _TurnRun:
        job = self._job()
        return _TurnRun(self.actor, turn, job, self._hooks, self._ref(turn.key))


class _ReadRun:
    """One call of a handler that reads."""

    def __init__(
        self, actor: ActorClass[Any], turn: TurnInput, job: RunningContext, hooks: Hooks, ref: Any
    ) -> None:
        [event] = turn.events
        self._actor = actor
        self._job = job
        self._name = event.name
        job.handles = f"'{event.name}', which reads"
        if turn.version > actor.version:
            raise Fail(
                f"{turn.type} '{turn.key}' has a state of version {turn.version} by now, and this "
                f"worker knows version {actor.version}; read it again"
            )
        self._state = actor.unpack(turn.state, turn.version)
        self._before = actor.pack(self._state)
        signature = actor.handlers.read_signature(event.name)
        arguments = signature.bind(event.args or _NO_ARGUMENTS)
        given = {name: hooks.resource(name) for name in signature.given}
        ctx = ReadContext(actor, turn, self._state, job, ref)
        self.call = partial(getattr(self._state, event.name), ctx, **arguments, **given)

    def returned(self, value: object) -> ReadValue:
        """The answer; raises if the handler changed something."""
        if self._actor.pack(self._state) != self._before:
            raise self._not_reading("changed a field")
        if self._job.outbox():
            raise self._not_reading("submitted or sent something")
        return ReadValue(value)

    def _not_reading(self, what: str) -> Fail:
        return Fail(
            f"'{self._name}' of actor '{self._actor.type}' is marked with @longshore.reads, and it "
            f"{what}; remove the mark, and ask it"
        )


class _TurnRun:
    """One turn: which handlers to call, in which order, and what they leave."""

    def __init__(
        self, actor: ActorClass[Any], turn: TurnInput, job: RunningContext, hooks: Hooks, ref: Any
    ) -> None:
        self._actor = actor
        self._turn = turn
        self._job = job
        self._hooks = hooks
        job.handles = f"{turn.type} '{turn.key}'"
        self._state = actor.unpack(turn.state, turn.version)
        self._ctx = ActorContext(actor, turn, self._state, job, ref)
        self._read = 0
        self._read_delayed: list[int] = []
        self._parks: list[int] = []
        self._returns_replies = True
        """What `failed` returns is no reply."""

    def calls(self) -> Iterator[Callable[[], Any]]:
        """What to call, one after the other. The caller tells what each `returned`."""
        moved = self._turn.last_worker not in (None, self._job.worker)
        if moved and self._actor.handlers.has(MOVED):
            self._job.handles = "'moved'"
            yield self._bound(MOVED, {})
        if self._turn.failure is not None and self._actor.handlers.has(FAILED):
            yield from self._recover(self._turn.events[0], self._turn.failure)
            return
        for event in self._turn.events:
            self._job.handles = event_called(event)
            self._ctx.begin(event)
            if (call := self._call(event)) is not None:
                yield call
            self._note(event)
            if self._ctx.is_over:
                break
        self._job.handles = ""

    def _recover(self, event: Event, error: JobError) -> Iterator[Callable[[], Any]]:
        """Calls `failed` for an event instead of its own handler; the event is not handled."""
        self._job.handles = f"'failed' for {event_called(event)}"
        self._ctx.begin(event)
        if event.kind is EventKind.TIMER:
            self._ctx.fired(event.name)
        failure = Failure(event, _unpacked(event.args), error.message or str(error.reason))
        self._returns_replies = False
        yield self._bound_to(FAILED, failure)
        if failure.is_dropped or not event.number:
            self._note(event)
            return
        self._parks.append(event.number)
        if not event.was_delayed:
            self._read = max(self._read, event.number)

    def returned(self, value: object) -> None:
        """What a handler returned is the reply, unless it replied itself."""
        if self._returns_replies:
            self._ctx.reply(value)

    def taken(self) -> TakenTurn:
        """What the turn leaves, to be committed as one."""
        try:
            state = self._actor.pack(self._state)
            listed = self._actor.listed_values(state)
        except InvalidInput as error:
            # It only shows at the end, so the next try has one event, which is then to blame.
            self._job.handles = turn_called(self._turn.events)
            if len(self._turn.events) > 1:
                raise
            raise Fail(str(error)) from error
        turn = Turn(
            state,
            self._actor.version,
            self._read,
            tuple(self._read_delayed),
            self._ctx.timers_left(),
            self._ctx.pauses,
            self._ctx.stops,
            listed,
            tuple(self._parks),
        )
        return TakenTurn(turn, tuple(self._ctx.replies))

    def _note(self, event: Event) -> None:
        if event.kind is not EventKind.MESSAGE:
            return
        if event.was_delayed:
            self._read_delayed.append(event.number)
        else:
            self._read = max(self._read, event.number)

    def _call(self, event: Event) -> Callable[[], Any] | None:
        """The handler of an event with its arguments; None if there is nothing to call."""
        handlers = self._actor.handlers
        match event.kind:
            case EventKind.START:
                return self._bound(START, {}) if handlers.has(START) else None
            case EventKind.TIMER:
                self._ctx.fired(event.name)
                return self._handled(TIMER_PREFIX + event.name, event)
            case EventKind.MESSAGE if event.name == UNDELIVERED:
                return self._undelivered(event)
            case EventKind.MESSAGE if event.name.startswith(REPLY_PREFIX):
                return self._replied(event)
            case EventKind.MESSAGE if event.name.startswith(OUTCOME_PREFIX):
                return self._concluded(event)
            case EventKind.MESSAGE:
                return self._handled(event.name, event)

    def _handled(self, name: str, event: Event) -> Callable[[], Any] | None:
        state = self._actor.named_state(self._state)
        method = self._actor.handlers.find(name, state)
        if method is None or name in (START, MOVED, UNHANDLED, FAILED):
            touched = self._actor.handlers.touch(state)
            if touched is not None and not self._ctx.is_asked:
                return self._bound(touched, {})
            return self._unhandled(event, state)
        try:
            signature = self._actor.handlers.signature(method)
            return self._bound(method, signature.bind(event.args or _NO_ARGUMENTS))
        except InvalidArguments as error:
            self._refuse(event, str(error))
            return None

    def _replied(self, event: Event) -> Callable[[], Any] | None:
        """The handler for the reply to an ask of this actor."""
        state = self._actor.named_state(self._state)
        method = self._actor.handlers.find(event.name.removeprefix(REPLY_PREFIX), state)
        if method is None:
            return self._unhandled(event, state)
        reply = _replied.decode(event.args)
        value = None if reply.result is None else values.unpack(reply.result)
        error = "" if reply.error is None else reply.error.message or str(reply.error.reason)
        about = values.unpack(reply.about) if reply.about else None
        return self._bound_to(method, Answer(value, error, about))

    def _concluded(self, event: Event) -> Callable[[], Any] | None:
        """The handler for the outcome of a job or a group that this actor submitted."""
        state = self._actor.named_state(self._state)
        method = self._actor.handlers.find(event.name.removeprefix(OUTCOME_PREFIX), state)
        if method is None:
            return self._unhandled(event, state)
        end = _concluded.decode(event.args)
        value = None if end.result is None else _unpacked(end.result)
        error = "" if end.error is None else end.error.message or str(end.error.reason)
        about = values.unpack(end.about) if end.about else None
        outcome = Outcome(end.subject, end.state, value, error, about, end.round)
        return self._bound_to(method, outcome)

    def _unhandled(self, event: Event, state: str) -> Callable[[], Any] | None:
        """Hands an event without a handler to `unhandled`; without that, nobody can go on."""
        handlers = self._actor.handlers
        if handlers.has(UNHANDLED):
            given = _unpacked(event.args)
            return self._bound_to(UNHANDLED, event.name, given)
        where = f" when it is '{state}'" if state else ""
        near = nearest(event.name, handlers.messages)
        self._refuse(event, f"actor '{self._turn.type}' does not handle it{where}{near}")
        return None

    def _refuse(self, event: Event, why: str) -> None:
        """Who asked gets the error. Otherwise the turn fails, so that nothing gets lost."""
        if self._ctx.is_asked:
            self._ctx.refuse(f"{event_called(event)}: {why}")
            return
        number, actor = event.number, f"{self._turn.type} {self._turn.key}"
        advice = f"`longshore actor park {actor} {number}` or `drop` it, then `resume`"
        raise Fail(f"{why}. {advice if number else 'Add a handler for it, then `resume`'}")

    def _undelivered(self, event: Event) -> Callable[[], Any] | None:
        if not self._actor.handlers.has(UNDELIVERED):
            return None
        lost = _undelivered.decode(event.args)
        args = _unpacked(lost.args)
        message = Undelivered(lost.type, lost.key, lost.name, args, lost.why)
        return self._bound_to(UNDELIVERED, message)

    def _bound(self, method: str, arguments: dict[str, object]) -> Callable[[], Any]:
        given = self._given(method)
        return partial(getattr(self._state, method), self._ctx, **arguments, **given)

    def _bound_to(self, method: str, *arguments: object) -> Callable[[], Any]:
        return partial(getattr(self._state, method), self._ctx, *arguments, **self._given(method))

    def _given(self, method: str) -> dict[str, object]:
        names = self._actor.handlers.signature(method).given
        return {name: self._hooks.resource(name) for name in names}


_NO_ARGUMENTS: Final = values.pack({}, "no arguments")


def _unpacked(args: bytes) -> Any:
    """Arguments as builtins; as bytes if they are no msgpack."""
    try:
        return values.unpack(args) if args else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return args
