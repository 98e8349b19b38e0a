"""What the turns of actors do, by script: they note every event in the state, and obey its orders.

The state of an actor is the list of all events that were ever applied to it. So it says itself what
got lost, what came twice, and in which order.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

from msgspec import Struct, msgpack, structs

from longshore.core.callbacks import Callback, sign
from longshore.core.turns import REPLY_PREFIX, after_firing
from longshore.core.watching import OUTCOME_PREFIX
from longshore.model.actor import (
    UNDELIVERED,
    Event,
    EventKind,
    Message,
    Replied,
    Reply,
    ReplyTo,
    Timer,
    Turn,
    TurnInput,
)
from longshore.model.attempt import Assignment
from longshore.model.ids import derive_id
from longshore.model.job import Options, RetryPolicy, Submission
from longshore.model.reports import (
    OutboxItem,
    OutboxJob,
    OutboxMessage,
    OutboxReply,
    TurnReport,
)
from longshore.model.watcher import ActorWatcher
from longshore.testing.simulation.actor_plans import (
    CALLED,
    DROPPED,
    PARKED,
    Content,
    Deed,
    Entry,
    Order,
    content_of,
    log_in,
    pack_log,
)

MOST_FIRINGS: Final = 3
"""A timer that repeats itself is cancelled after so many."""
PER_TURN: Final = 1_000_000
"""The messages of a turn are numbered from so many times its own number."""

_ECHOES: Final = (REPLY_PREFIX, OUTCOME_PREFIX)
"""How messages begin that answer what an actor did."""

_input: Final = msgpack.Decoder(TurnInput)


class Told(Struct, frozen=True):
    """The reply to an ask: which turn gave it, and the callbacks that it made for whoever asked."""

    turn: int
    tokens: tuple[str, ...] = ()


def is_turn(kind: str) -> bool:
    """Whether jobs of this kind are turns of actors."""
    return "@" in kind


def input_of(assignment: Assignment) -> TurnInput:
    """What a turn gets."""
    return _input.decode(assignment.args)


def turn_report(assignment: Assignment) -> TurnReport:
    """What a turn leaves that goes well."""
    return _Run(assignment).report()


class _Run:
    """One turn that goes well."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._given = input_of(assignment)
        self._log = log_in(self._given.state)
        self._timers = {timer.name: timer for timer in self._given.timers}
        self._outbox: list[OutboxItem] = []
        self._read = 0
        self._read_delayed: list[int] = []
        self._parks: list[int] = []
        self._tokens: list[str] = []
        self._pauses = self._stops = False

    def report(self) -> TurnReport:
        """Applies the events one by one, until one of them ends the turn."""
        if self._given.failure is not None:
            self._recover(self._given.events[0])
        else:
            self._apply_all()
        turn = Turn(
            pack_log(self._log),
            self._given.version,
            self._read,
            tuple(self._read_delayed),
            tuple(self._timers.values()),
            self._pauses,
            self._stops,
            parks=tuple(self._parks),
        )
        return TurnReport(*self._assignment.key, turn=turn, outbox=tuple(self._outbox))

    def _apply_all(self) -> None:
        for event in self._given.events:
            self._log.append(entry_of(event))
            self._apply(event)
            if self._pauses or self._stops:
                break

    def _recover(self, event: Event) -> None:
        """Notes an event that has failed for good, and puts it aside; every other one is dropped.

        Nobody answers an ask that is put aside: its sender would wait until it comes again.
        """
        entry = entry_of(event)
        is_note = event.kind is EventKind.MESSAGE and event.name == "note"
        drops = not is_note or (event.number % 2 == 0 and not content_of(event.args).is_awaited)
        fate = DROPPED if drops else PARKED
        self._log.append(structs.replace(entry, what=f"{fate}{entry.what}"))
        if event.kind is EventKind.TIMER:
            self._fire(event)
        if event.kind is EventKind.MESSAGE and drops:
            self._note_read(event)
        elif event.kind is EventKind.MESSAGE:
            self._parks.append(event.number)
            if not event.was_delayed:
                self._read = max(self._read, event.number)

    def _apply(self, event: Event) -> None:
        if event.kind is EventKind.MESSAGE:
            self._note_read(event)
        if event.kind is EventKind.TIMER:
            self._fire(event)
        tokens = len(self._tokens)
        is_echo = event.name == UNDELIVERED or event.name.startswith(_ECHOES)
        orders = content_of(event.args).orders if event.args and not is_echo else ()
        for order in orders:
            if order.deed is Deed.CALLBACK:
                self._obey(order)
        if event.reply_to is not None and event.id is not None:
            result = msgpack.encode(Told(self._given.turn, tuple(self._tokens[tokens:])))
            self._outbox.append(OutboxReply(Reply(event.id, result), event.reply_to))
        for order in orders:
            if order.deed is not Deed.CALLBACK:
                self._obey(order)

    def _note_read(self, event: Event) -> None:
        if event.was_delayed:
            self._read_delayed.append(event.number)
        else:
            self._read = max(self._read, event.number)

    def _fire(self, event: Event) -> None:
        timer = self._timers.pop(event.name)
        fired = Counter(one.name for one in self._log if one.what == EventKind.TIMER)
        again = after_firing(timer, self._given.now)
        if again is not None and fired[event.name] < MOST_FIRINGS:
            self._timers[event.name] = again

    def _obey(self, order: Order) -> None:
        match order.deed:
            case Deed.TELL:
                self._send(order, None)
            case Deed.ASK:
                name = f"{REPLY_PREFIX}answered"
                self._send(order, ReplyTo(self._given.type, self._given.key, name))
            case Deed.TIMER:
                name = f"t{len(self._log)}-{len(self._timers)}"
                args = self._content(order)
                timer = Timer(name, after_s=order.after_s, every_s=order.every_s, args=args)
                self._timers[name] = timer
            case Deed.SUBMIT:
                watcher = ActorWatcher(self._given.type, self._given.key, "ended")
                options = Options(retry=RetryPolicy(attempts=3), watchers=(watcher,))
                self._outbox.append(
                    OutboxJob(Submission(self._new_id(), "work", b"\x80", options=options))
                )
            case Deed.CALLBACK:
                who = self._given.actor, self._given.turn, len(self._tokens)
                callback = Callback(*who, self._given.type, self._given.key, CALLED)
                self._tokens.append(sign(self._given.callback_key, callback))
            case Deed.PAUSE:
                self._pauses = True
            case Deed.STOP:
                self._stops = True

    def _send(self, order: Order, to: ReplyTo | None) -> None:
        message = Message(
            self._new_id(), *order.to, "note", self._content(order), order.after_s, to
        )
        self._outbox.append(OutboxMessage(message))

    def _content(self, order: Order) -> bytes:
        no = self._given.turn * PER_TURN + len(self._outbox)
        return msgpack.encode(Content(str(self._given.actor), no, order.orders))

    def _new_id(self) -> UUID:
        return derive_id(self._assignment.job, len(self._outbox))


def entry_of(event: Event) -> Entry:
    """How an event stands in the state."""
    at = event.at if event.kind is EventKind.TIMER else 0
    if event.kind is EventKind.MESSAGE and event.name == REPLY_PREFIX + CALLED:
        at = value_in(event.args)
    return Entry(event.kind, event.name, event.id, at)


def value_in(args: bytes) -> int:
    """The value of a callback that was resolved, from its message."""
    value = msgpack.decode(args, type=Replied).result
    return 0 if value is None else int(msgpack.decode(value))
