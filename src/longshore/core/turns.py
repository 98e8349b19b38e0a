"""Turns: when an actor takes its next one, which events are in it, and what its timers become.

Theory. An actor's turns are numbered from 1. Turn n is a job whose id follows from the actor and n,
so there is at most one of it. A store keeps what each turn left: a state, the timers, and the
number of the last message that it read. After any change of an actor it asks when the next turn is
due (`next_wake`), and what that makes of its job (`next_step`): ready, delayed or none.

What a turn gets is put together when its attempt is given to a worker (`events_of`), because until
then more may arrive. A message that comes later waits for the turn after it. So an attempt that is
sent again may have more events than before, and its report says which it read.

A turn that failed before gets one event at a time. So the event that cannot be handled is the only
one in its turn, and the error names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import msgpack, structs

from longshore.core.effects import DUE, FARTHEST_S, Change, of_dependency
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.lifecycle import Event as LifeEvent
from longshore.errors import InvalidInput
from longshore.model.actor import (
    Actor,
    ActorStatus,
    ActorTerms,
    Event,
    EventKind,
    ReadCall,
    Timer,
    Turn,
)
from longshore.model.ids import derive_id
from longshore.model.job import JobState, Options, RetryPolicy, Submission

MOST_EVENTS: Final = 100
"""How many events one turn takes."""
EVENT_BYTES: Final = 1024 * 1024
"""How many bytes of arguments the events of one turn have; the last may exceed it."""
MAX_TIMERS: Final = 1_000
MAX_PARKED: Final = MOST_EVENTS
"""How many messages one turn may put aside."""
MAX_OUTBOX: Final = 10_000
"""How many messages, replies and jobs one turn may send."""
MAX_TURN_GROUP: Final = 1_000
"""How many jobs a group may have that a turn submits: one transaction stores all of them."""
LONG_TURN_S: Final = 60.0
"""A turn that has run for so long, and that no timeout ends, may hang. It never waits."""
MICROS: Final = 1_000_000
TIMER_PREFIX: Final = "on_timer_"
"""The handler of a timer is called so, and then like the timer."""
REPLY_PREFIX: Final = "reply:"
"""The reply to an ask of an actor is a message called so, and then like its handler."""
AT_ONCE: Final = 0
"""A time that is always past."""

RESUME: Final = "resume"
"""Who retried a failed turn, for its history."""

_NUMBER_BYTES: Final = 8
KEPT_FROM: Final = 16 + _NUMBER_BYTES
"""Where in a turn's arguments the worker stands that took the turn before it."""
TURN_BYTES: Final = KEPT_FROM + 16
"""How long the arguments of a turn are whose actor a worker had before."""

_packer: Final = msgpack.Encoder()
_read_call: Final = msgpack.Decoder(ReadCall)


def turn_kind(type: str, version: int) -> str:
    """The kind of an actor's turns. Workers serve those of all versions up to their own."""
    return f"{type}@{version}"


def split_kind(kind: str) -> tuple[str, int]:
    """The type and the version of actors whose turns have this kind; version 0 for another kind."""
    type, _, version = kind.rpartition("@")
    return (type, int(version)) if version.isdecimal() else (kind, 0)


def is_turn_kind(kind: str) -> bool:
    """Whether a kind looks like that of turns."""
    return "@" in kind


def turn_job(
    actor: UUID,
    type: str,
    terms: ActorTerms,
    version: int,
    turn: int,
    delay_s: float | None = None,
    last_worker: UUID | None = None,
) -> Submission:
    """A turn as the store keeps it. Its arguments only name it: see `events_of`.

    They also say which worker took the turn before it, for the claim.
    """
    return Submission(
        derive_id(actor, turn),
        turn_kind(type, version),
        actor.bytes
        + turn.to_bytes(_NUMBER_BYTES, "big")
        + (b"" if last_worker is None else last_worker.bytes),
        terms.queue,
        terms.target,
        terms.priority,
        delay_s=delay_s,
        options=structs.replace(terms.options, turn=True),
    )


def may_hang(options: Options, ran_s: float) -> bool:
    """Whether a job that has run for so long is a turn which only a person can end."""
    return options.turn and options.timeout_s is None and ran_s >= LONG_TURN_S


def turn_of(args: bytes) -> tuple[UUID, int]:
    """The actor and the number of a turn, from its arguments in the store."""
    if len(args) not in (KEPT_FROM, TURN_BYTES):
        raise InvalidInput("these are not the arguments of an actor's turn")
    return UUID(bytes=args[:16]), int.from_bytes(args[16:KEPT_FROM], "big")


def last_worker(options: Options, args: bytes) -> UUID | None:
    """The worker that took the turn before this one, from its arguments in the store.

    None for a job that is no turn.
    """
    is_known = options.turn and len(args) == TURN_BYTES
    return UUID(bytes=args[KEPT_FROM:]) if is_known else None


def read_job(id: UUID, actor: Actor, name: str, args: bytes, expires_s: float | None) -> Submission:
    """A job that reads an actor: of the lane of its turns, tried once. Nobody begins it too late.

    A store fills in the state when a worker gets it.
    """
    terms = actor.terms
    options = structs.replace(
        terms.options,
        retry=RetryPolicy(),
        expires_s=expires_s,
        reads=True,
        turn=False,
        limits=(),
    )
    return Submission(
        id,
        turn_kind(actor.type, actor.version),
        _packer.encode(ReadCall(actor.id, name, args)),
        terms.queue,
        terms.target,
        terms.priority,
        options=options,
    )


def read_call(args: bytes) -> ReadCall:
    """What a job that reads an actor asks for, from its arguments in the store."""
    return _read_call.decode(args)


def next_wake(
    *, starts: bool, has_mail: bool, timers: Iterable[Timer], delayed_at: int | None
) -> int | None:
    """When the next turn is due; None if nothing wakes the actor.

    A turn that `starts` the actor is due at once: the first one, and the one after a restart.
    `delayed_at` is when the first delayed message is due, if there is one that is not parked.
    """
    if starts or has_mail:
        return AT_ONCE
    times = [timer.at for timer in timers if timer.at is not None]
    if delayed_at is not None:
        times.append(delayed_at)
    return min(times, default=None)


class TurnJob(NamedTuple):
    """What is to be known of the job of the next turn. `run_at` is in microseconds."""

    state: JobState
    failures: int
    run_at: int | None


class Step(StrEnum):
    """What becomes of the job of the next turn."""

    STAY = "stay"
    """As it is, even if there is none."""
    MAKE = "make"
    """There is none; make it."""
    REMOVE = "remove"
    ANEW = "anew"
    """Remove it, and make it with another time."""
    GO = "go"
    """It waits, or is delayed: it becomes ready, or delayed if there is a delay."""
    HOLD = "hold"
    """Its actor is paused: it waits."""


def next_step(
    job: TurnJob | None, wake: int | None, now: int, *, paused: bool
) -> tuple[Step, float | None]:
    """What becomes of the next turn's job, and the delay that it has from now on, if any.

    A turn that runs or has ended stays. So does one that backs off after a failure, whatever
    arrives: it keeps its time even if the actor is paused meanwhile.
    """
    if job is None:
        return (Step.STAY, None) if paused or wake is None else (Step.MAKE, _delay(wake, now))
    if job.state in OWNED or job.state in TERMINAL:
        return Step.STAY, None
    if paused:
        return (Step.STAY if job.state is JobState.WAITING else Step.HOLD), None
    if job.failures:
        is_held = job.state is JobState.WAITING
        return (Step.GO, _delay(job.run_at, now)) if is_held else (Step.STAY, None)
    if wake is None:
        return Step.REMOVE, None
    if wake <= now:
        return (Step.STAY if job.state is JobState.READY else Step.GO), None
    if job.state is JobState.DELAYED and job.run_at == wake:
        return Step.STAY, None
    return Step.ANEW, _delay(wake, now)


def _delay(at: int | None, now: int) -> float | None:
    return None if at is None or at <= now else (at - now) / MICROS


def go(state: JobState, delay_s: float | None, expires_s: float | None) -> Change:
    """The change of a turn's job in this state that `Step.GO` asks for."""
    if state is JobState.DELAYED:
        return DUE[state]
    event = LifeEvent.DEPENDENCIES_MET if delay_s is None else LifeEvent.DELAY_BEGAN
    return of_dependency(event, delay_s=delay_s, expires_s=expires_s)


def status_of(*, paused: bool, stopping: bool, job: JobState | None) -> ActorStatus:
    """What the system says of an actor whose next turn's job is in this state, if there is one.

    A turn that was cancelled, or ended in another way than a turn ends, has failed.
    """
    if stopping:
        return ActorStatus.STOPPING
    if paused:
        return ActorStatus.PAUSED
    if job in OWNED:
        return ActorStatus.RUNNING
    if job in TERMINAL:
        return ActorStatus.FAILED
    return ActorStatus.READY if job is JobState.READY else ActorStatus.SLEEPING


def events_of(
    timers: Iterable[Timer],
    mail: Sequence[Event],
    delayed: Sequence[Event],
    now: int,
    *,
    starts: bool = False,
    one_only: bool = False,
) -> tuple[Event, ...]:
    """The events of a turn in their order, as many as one turn takes.

    `mail` has the unread messages by number, `delayed` the delayed ones by when they are due, which
    is their `at`. Timers and delayed messages come before the mail that arrived after they were
    due. A turn that `starts` the actor begins with the start.
    """
    due = [_timer_event(timer) for timer in timers if timer.at is not None and timer.at <= now]
    due += [event for event in delayed if event.at <= now]
    due.sort(key=lambda event: event.at)
    first = [Event(EventKind.START, at=now)] if starts else []
    taken: list[Event] = []
    room = EVENT_BYTES
    for event in [*first, *_merged(due, mail)]:
        if room <= 0 or len(taken) == (1 if one_only else MOST_EVENTS):
            break
        taken.append(event)
        room -= len(event.args)
    return tuple(taken)


def event_called(event: Event) -> str:
    """What errors call an event."""
    match event.kind:
        case EventKind.START:
            return "'start'"
        case EventKind.TIMER:
            return f"timer '{event.name}'"
        case EventKind.MESSAGE:
            return f"message '{event.name}' (number {event.number})"


def turn_called(events: Sequence[Event]) -> str:
    """What errors call a turn that ended at an unknown one of its events."""
    if not events:
        return "a turn without events"
    first = event_called(events[0])
    return first if len(events) == 1 else f"one of {len(events)} events, from {first} on"


def _timer_event(timer: Timer) -> Event:
    return Event(EventKind.TIMER, timer.name, timer.args, timer.at or 0)


def _merged(due: Sequence[Event], mail: Sequence[Event]) -> Iterator[Event]:
    """Both in one order. Mail keeps the order of its numbers, whatever the clock did."""
    place = 0
    for message in mail:
        while place < len(due) and due[place].at <= message.at:
            yield due[place]
            place += 1
        yield message
    yield from due[place:]


def after_firing(timer: Timer, now: int) -> Timer | None:
    """What becomes of a timer that fired: gone, or due at its next time after `now`.

    Times that passed while nothing ran are left out: it fires once for all of them.
    """
    if timer.every_s is None or timer.at is None:
        return None
    step = max(1, round(timer.every_s * MICROS))
    missed = max(0, now - timer.at) // step
    return structs.replace(timer, at=timer.at + (missed + 1) * step)


def set_at(timers: Iterable[Timer], now: int) -> tuple[Timer, ...]:
    """The timers with the times that their durations lead to, from now on.

    No time is past what a calendar can show, whatever a worker says.
    """
    last = now + round(FARTHEST_S) * MICROS
    return tuple(
        structs.replace(timer, at=min(last, _time_of(timer, now)), after_s=None) for timer in timers
    )


def _time_of(timer: Timer, now: int) -> int:
    if timer.after_s is not None:
        return now + round(timer.after_s * MICROS)
    return now if timer.at is None else timer.at


def check_turn(turn: Turn, most_bytes: int, longest_s: float) -> None:
    """Raises `InvalidInput` if what a turn leaves is out of bounds."""
    if len(turn.state) > most_bytes:
        raise InvalidInput(
            f"the state takes {len(turn.state):,} bytes, more than max_value_bytes "
            f"({most_bytes:,}); keep large things elsewhere"
        )
    if len(turn.timers) > MAX_TIMERS:
        raise InvalidInput(f"{len(turn.timers):,} timers are more than the {MAX_TIMERS:,} allowed")
    if len(turn.parks) > MAX_PARKED:
        raise InvalidInput(f"{len(turn.parks):,} messages are put aside; {MAX_PARKED} are allowed")
    for timer in turn.timers:
        for name, seconds in (("after_s", timer.after_s), ("every_s", timer.every_s)):
            if seconds is not None and not 0 <= seconds <= longest_s:
                raise InvalidInput(
                    f"timer '{timer.name}': {name} is {seconds!r}; it must be from 0 to "
                    f"{longest_s:,.0f} seconds"
                )
        if timer.at is None and timer.after_s is None:
            raise InvalidInput(f"timer '{timer.name}' has no time; give after_s")
