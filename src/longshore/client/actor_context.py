"""`ActorContext`: what a handler of an actor can ask for and do. Nothing of it waits.

What a handler does is kept here until the turn ends, and then committed with the new state. If the
turn fails, nothing of it has happened.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from longshore.client.actor_class import NAMED_STATE, ActorClass
from longshore.core.callbacks import MAX_CALLBACK_ABOUT_BYTES, Callback, sign
from longshore.core.limits import MAX_DURATION_S
from longshore.core.turns import MAX_TIMERS, REPLY_PREFIX, TIMER_PREFIX, after_firing
from longshore.errors import InvalidInput, TooLarge, WrongState
from longshore.executors.host.context import Addresses, RunningContext
from longshore.model.actor import Event, Reply, ReplyTo, Timer, TurnInput
from longshore.model.job import JobError, JobState, Reason
from longshore.model.reports import OutboxReply
from longshore.model.watcher import ActorWatcher
from longshore.payload import values
from longshore.payload.schemas import nearest

if TYPE_CHECKING:
    from longshore.client.actor import ActorRef
    from longshore.client.group import GroupBuilder
    from longshore.client.kind import Call

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Answer(Struct, frozen=True):
    """What came back for a `ctx.ask`: a value, or the error that there is none."""

    value: Any = None
    error: str = ""
    about: Any = None
    """What the ask gave as `about`."""


class Outcome(Struct, frozen=True):
    """How a job or a group ended that was submitted with `then=…`."""

    id: UUID
    """The id of the job, or of the group."""
    state: JobState
    value: Any = None
    """What the job returned, if it succeeded."""
    error: str = ""
    """Why it did not succeed; empty if it did, or was cancelled or skipped without an error."""
    about: Any = None
    """What the submit gave as `about`."""
    round: int = 1
    """Which round of the job it was. A retry by hand opens another."""

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded."""
        return self.state is JobState.SUCCEEDED


class Failure:
    """An event that has failed for good, for the handler `failed`.

    Unless that says `drop()`, a message is parked: `put_back` of its number lets it come again. A
    timer has fired, and a start is over.
    """

    __slots__ = ("args", "error", "is_dropped", "kind", "name", "number")

    def __init__(self, event: Event, args: Any, error: str) -> None:
        self.kind = event.kind
        """Whether it is a message, a timer or the start."""
        self.name = event.name
        self.number = event.number
        """The number of the message; 0 for a timer or the start."""
        self.args = args
        """Its arguments, as builtins by name."""
        self.error = error
        """What its handler raised, or what else went wrong."""
        self.is_dropped = False

    def __repr__(self) -> str:
        return f"<Failure of {self.kind} '{self.name}': {self.error}>"

    def drop(self) -> None:
        """Removes the message, instead of parking it."""
        self.is_dropped = True


class Undelivered(Struct, frozen=True):
    """A message of this actor that was not accepted, mostly because nobody is there.

    A job that was not accepted comes back like this too: `type` is empty, `name` is its kind.
    """

    type: str
    key: str
    name: str
    args: Any
    why: str = ""


class ActorContext:
    """The turn that runs, as the handlers of its actor see it."""

    __slots__ = (
        "_actor",
        "_callbacks",
        "_event",
        "_has_replied",
        "_job",
        "_state",
        "_timers",
        "_turn",
        "pauses",
        "ref",
        "replies",
        "stops",
    )

    def __init__(
        self,
        actor: ActorClass[Any],
        turn: TurnInput,
        state: object,
        job: RunningContext,
        ref: ActorRef[Any],
    ) -> None:
        self._actor = actor
        self._turn = turn
        self._state = state
        self._job = job
        self._timers = {timer.name: timer for timer in turn.timers}
        self._event: Event | None = None
        self._has_replied = False
        self._callbacks = 0
        """How many callbacks it has made."""
        self.ref = ref
        """The actor itself, to send to."""
        self.replies: list[OutboxReply] = []
        self.pauses = False
        self.stops = False

    def __repr__(self) -> str:
        return f"<ActorContext of {self.type} '{self.key}', turn {self.turn}>"

    # what is

    @property
    def type(self) -> str:
        """The actor's type."""
        return self._turn.type

    @property
    def key(self) -> str:
        """The actor's key."""
        return self._turn.key

    @property
    def turn(self) -> int:
        """Which turn of the actor this is, from 1."""
        return self._turn.turn

    @property
    def now(self) -> datetime:
        """The time of this turn by the store's clock; the same for all its events."""
        return _EPOCH + timedelta(microseconds=self._turn.now)

    @property
    def attempt(self) -> int:
        """Which try of this turn it is, from 1."""
        return self._job.attempt

    @property
    def token(self) -> int:
        """A number that grows with every attempt at a turn (see `Context.token`)."""
        return self._job.token

    @property
    def is_asked(self) -> bool:
        """Whether the sender of this message waits for a reply."""
        return self._event is not None and self._event.reply_to is not None

    @property
    def cancelled(self) -> bool:
        """Whether this turn has been told to stop."""
        return self._job.cancelled

    @property
    def log(self) -> Logger:
        """A logger whose records belong to this turn."""
        return self._job.log

    @property
    def scratch(self) -> Path:
        """A folder of this turn's own, removed when it ends."""
        return self._job.scratch

    # what goes out

    def send(self, to: ActorRef[Any], name: str, /, *args: Any, **kwargs: Any) -> None:
        """Sends a message to an actor, or to itself (`ctx.ref`)."""
        self._job.send(to, name, *args, **kwargs)

    def ask(
        self,
        to: ActorRef[Any],
        name: str,
        /,
        *args: Any,
        then: str,
        about: Any = None,
        **kwargs: Any,
    ) -> None:
        """Sends a message; its reply comes back as a message to the handler that `then` names.

        The handler gets an `Answer`, with `about` in it.
        """
        self._check_handled(then, "then")
        if not isinstance(to, Addresses):
            raise InvalidInput(f"{to!r} is no actor; give what Type.ref(key) makes")
        packed = values.pack(about, "about")
        back = ReplyTo(self.type, self.key, REPLY_PREFIX + then, packed)
        self._job.ask_with(to, name, (args, kwargs), back)

    def reply(self, value: Any = None) -> None:
        """Replies to the message; without it, the reply is what the handler returns."""
        if self.is_asked and not self._has_replied:
            event = f"the reply to '{self._event.name if self._event else ''}'"
            self._send_reply(values.pack(value, event), None)

    def refuse(self, message: str) -> None:
        """Replies to the message with an error: who asked gets it instead of a value."""
        self._send_reply(None, JobError(Reason.RAISED, message))

    def _send_reply(self, result: bytes | None, error: JobError | None) -> None:
        event = self._event
        if event is None or event.reply_to is None or self._has_replied:
            return
        self._has_replied = True
        reply = Reply(event.id or UUID(int=0), result, error)
        self.replies.append(OutboxReply(reply, event.reply_to))

    def submit(self, job: Call[Any], *, then: str = "", about: Any = None) -> UUID:
        """Submits a job with this turn: both are recorded, or neither. Answers the job's id.

        When the job has ended, however it ended, the handler that `then` names gets an `Outcome`,
        with `about` in it: one for each round of the job.
        """
        if not then:
            return self._job.submit(job)
        return self._job.submit_watched(job, self._watcher(then, about))

    def submit_group(self, group: GroupBuilder, *, then: str = "", about: Any = None) -> UUID:
        """Submits a group, as `app.group(name)` makes it, with this turn. Answers the group's id.

        It has at most `MAX_TURN_GROUP` (1,000) jobs, those that they add later not counted. When it
        has ended, the handler that `then` names gets an `Outcome`, without a value.
        """
        watchers = (self._watcher(then, about),) if then else ()
        return self._job.submit_group(group, watchers)

    def callback(self, *, then: str, about: Any = None) -> str:
        """A token with which anyone may send this actor one value: `app.resolve(token, value)`.

        The handler that `then` names gets it as an `Answer`, with `about` in it. The first value
        counts, as long as the actor lives. Another run of this turn makes the same token, and it
        can be resolved before the turn is over. `about` is in the token, for all to read.
        """
        self._check_handled(then, "then")
        packed = values.pack(about, "about")
        if len(packed) > MAX_CALLBACK_ABOUT_BYTES:
            raise TooLarge(
                f"about takes {len(packed):,} bytes, and a token has room for "
                f"{MAX_CALLBACK_ABOUT_BYTES:,}; keep it in the state, under a short name"
            )
        turn = self._turn
        which = turn.actor, turn.turn, self._callbacks
        self._callbacks += 1
        named = Callback(*which, turn.type, turn.key, then, packed)
        return sign(turn.callback_key, named)

    def _watcher(self, then: str, about: Any) -> ActorWatcher:
        self._check_handled(then, "then")
        return ActorWatcher(self.type, self.key, then, values.pack(about, "about"))

    # what becomes of it

    def timer(
        self, name: str, /, after_s: float | None = None, every_s: float | None = None, **args: Any
    ) -> None:
        """Sets the timer of this name, in place of one that is set: once, or every so often.

        It wakes the handler `on_timer_…` of its name; without one, what takes anything unhandled
        (`unhandled`, or `run`). With both times, the first is `after_s` away.
        """
        packed = self._pack_timer(TIMER_PREFIX + name, args)
        for what, seconds in (("after_s", after_s), ("every_s", every_s)):
            _check_seconds(name, what, seconds)
        if after_s is None and every_s is None:
            raise InvalidInput(f"timer '{name}' has no time; give after_s=… or every_s=…")
        if len(self._timers) >= MAX_TIMERS and name not in self._timers:
            raise InvalidInput(f"actor '{self.type}' has {MAX_TIMERS:,} timers; clear some first")
        first_s = every_s if after_s is None else after_s
        self._timers[name] = Timer(name, after_s=first_s, every_s=every_s, args=packed)

    def _pack_timer(self, event: str, args: dict[str, Any]) -> bytes:
        handlers = self._actor.handlers
        if handlers.takes_any and not handlers.has(event):
            return values.pack_arguments(args, f"{self.type}.{event}")
        self._check_handled(event, "the timer")
        method = handlers.find(event, self._named) or self._any(event)
        return handlers.signature(method).pack((), args)

    def clear(self, name: str | None = None) -> bool:
        """Removes a timer, or all of them; whether any was set.

        Without a timer only a message wakes the actor.
        """
        if name is not None:
            return self._timers.pop(name, None) is not None
        had_some = bool(self._timers)
        self._timers.clear()
        return had_some

    @property
    def timers(self) -> tuple[str, ...]:
        """The names of the timers that are set."""
        return tuple(self._timers)

    def become(self, state: str) -> None:
        """Puts the actor into a named state: it is the field `state` (see `when`)."""
        known = self._actor.handlers.states
        if not known:
            raise WrongState(
                f"actor '{self.type}' has no named states; mark handlers with @longshore.when(…)"
            )
        setattr(self._state, NAMED_STATE, state)

    def pause(self) -> None:
        """Pauses the actor after this event: messages and timers wait until it is resumed."""
        self.pauses = True

    def stop(self) -> None:
        """Removes the actor after this event, with its mailbox and its timers."""
        self.stops = True

    # for the turn

    def begin(self, event: Event | None) -> None:
        """From now on this event is handled."""
        self._event = event
        self._has_replied = False

    def fired(self, name: str) -> None:
        """A timer fired: it is gone, or due again later."""
        timer = self._timers.pop(name, None)
        again = None if timer is None else after_firing(timer, self._turn.now)
        if again is not None:
            self._timers[name] = again

    def timers_left(self) -> tuple[Timer, ...]:
        """The timers as the turn leaves them."""
        return tuple(self._timers.values())

    @property
    def is_over(self) -> bool:
        """Whether no further event of this turn is to be handled."""
        return self.pauses or self.stops

    @property
    def _named(self) -> str:
        return self._actor.named_state(self._state)

    def _any(self, event: str) -> str:
        return self._actor.handlers.any_of(event)

    def _check_handled(self, event: str, what: str) -> None:
        handlers = self._actor.handlers
        if not handlers.has(event):
            raise InvalidInput(
                f"actor '{self.type}' has no handler '{event}' for {what}"
                f"{nearest(event, handlers.events)}; add one: def {event}(self, ctx)"
            )


def _check_seconds(name: str, what: str, seconds: object) -> None:
    if seconds is None:
        return
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    least = 0 if what == "after_s" else 0.001
    if not is_number or not least <= seconds <= MAX_DURATION_S:  # type: ignore[operator]
        raise InvalidInput(f"timer '{name}': {what} is {seconds!r}; give seconds, from {least} on")
