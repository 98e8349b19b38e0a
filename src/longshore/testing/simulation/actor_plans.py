"""Actors for scenarios: who starts them, what is sent to them, and what their handlers do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final
from uuid import UUID

from msgspec import Struct, msgpack

from longshore.model.actor import ActorTerms, Message, NewActor, ReplyTo
from longshore.model.ids import make_id
from longshore.model.job import Options, RetryPolicy

TYPES: Final = ("diary", "archive")
"""The turns of one are coroutines, those of the other have a process of their own."""
MOST_ACTORS: Final = 4
MOST_STREAMS: Final = 3
"""So many clients at most send to one actor."""
MOST_SENDS: Final = 8
DEEPEST: Final = 2
"""So far do messages cause others."""
TIMEOUT_S: Final = 8.0

CALLED: Final = "called"
"""Who handles the values of callbacks."""
PARKED: Final = "parked "
DROPPED: Final = "dropped "
"""How entries of events begin that failed for good."""

Name = tuple[str, str]
"""An actor's type and key."""


class Deed(StrEnum):
    """What a handler does, beside noting its event."""

    TELL = "tell"
    ASK = "ask"
    TIMER = "timer"
    SUBMIT = "submit"
    CALLBACK = "callback"
    """Makes a token, which the reply to an ask from outside tells."""
    PAUSE = "pause"
    STOP = "stop"


class Order(Struct, frozen=True, omit_defaults=True):
    """One thing for a handler to do. What it sends has orders in turn."""

    deed: Deed
    to: Name = ("", "")
    after_s: float | None = None
    every_s: float | None = None
    orders: tuple[Order, ...] = ()


class Content(Struct, frozen=True, omit_defaults=True):
    """The arguments of a message: who sent it as which of its messages, and what is to be done.

    Whoever waits for its reply would wait for ever if somebody dropped it.
    """

    sender: str
    no: int
    orders: tuple[Order, ...] = ()
    is_awaited: bool = False


class Entry(Struct, frozen=True, array_like=True):
    """One event that was applied to a state. The state is the list of them.

    A message has its id, a timer the time that it was due, the value of a callback itself.
    """

    what: str
    name: str = ""
    id: UUID | None = None
    at: int = 0


class Fate(StrEnum):
    """What becomes of one run of a turn."""

    FAILS = "fails"
    CRASHES = "crashes"
    KILLS = "kills"
    HANGS = "hangs"


class StartPlan(Struct, frozen=True):
    """A client starts an actor; with `reuse` it takes the one that is there."""

    client: str
    at: float
    actor: NewActor
    reuse: bool


class StreamPlan(Struct, frozen=True):
    """What one client sends to one actor: a few messages at once, each time after so long."""

    client: str
    at: float
    sends: tuple[tuple[float, tuple[Message, ...]], ...]


class Control(StrEnum):
    """What a client does to an actor, or to the first message of its mailbox."""

    PAUSE = "pause"
    RESUME = "resume"
    EDIT = "edit"
    RESTART = "restart"
    STOP = "stop"
    PARK = "park"
    PUT_BACK = "put_back"
    DROP = "drop"


class ControlPlan(Struct, frozen=True):
    """A client does this to an actor."""

    client: str
    at: float
    actor: Name
    control: Control


class Temper(Struct, frozen=True):
    """How the turns of an actor behave: the first runs meet these fates, the others end well."""

    fates: tuple[Fate | None, ...] = ()
    takes_s: float = 0.1
    stubborn: bool = False


class ActorPlans(Struct, frozen=True):
    """All that a scenario has to do with actors."""

    starts: tuple[StartPlan, ...] = ()
    streams: tuple[StreamPlan, ...] = ()
    controls: tuple[ControlPlan, ...] = ()
    tempers: dict[str, Temper] = {}
    """By the actors' keys."""
    keepers: dict[str, str] = {}
    """By the actors' keys: the client that resumes an actor which failed or was paused."""

    @property
    def names(self) -> list[Name]:
        """The actors there are."""
        return list(dict.fromkeys((one.actor.type, one.actor.key) for one in self.starts))

    @property
    def work_s(self) -> float:
        """How long all of it takes at most, roughly."""
        fates = sum(len(one.fates) for one in self.tempers.values())
        longest_s = max((one.takes_s for one in self.tempers.values()), default=0.0)
        return fates + MOST_SENDS * longest_s


def pack_log(log: Sequence[Entry]) -> bytes:
    """The state of an actor that has seen these events."""
    return msgpack.encode(list(log))


def log_in(state: bytes) -> list[Entry]:
    """The events that are in a state."""
    return msgpack.decode(state, type=list[Entry])


def content_of(args: bytes) -> Content:
    """What a message says."""
    return msgpack.decode(args, type=Content)


def random_actors(
    random: Random, clients: Sequence[str], storm_s: float, unix_ms: int
) -> ActorPlans:
    """A few actors, and what happens to them while the storm lasts."""
    return _Planner(random, clients, storm_s, unix_ms).plans()


class _Planner:
    """Draws the plans of one scenario."""

    def __init__(
        self, random: Random, clients: Sequence[str], storm_s: float, unix_ms: int
    ) -> None:
        self._random = random
        self._clients = clients
        self._storm_s = storm_s
        self._unix_ms = unix_ms
        self._ids = 0
        self._more = Random(f"{storm_s} {unix_ms}")
        """Draws what came later, so that a seed still means the scenario that it meant."""
        self._names = [
            (random.choice(TYPES), f"k{number}")
            for number in range(1, random.randint(1, MOST_ACTORS) + 1)
        ]

    def plans(self) -> ActorPlans:
        """All of them."""
        random, names = self._random, self._names
        hangs = random.random() < 0.3
        return ActorPlans(
            starts=tuple(one for name in names for one in self._starts(name, hangs)),
            streams=tuple(one for name in names for one in self._streams(name)),
            controls=tuple(one for name in names for one in self._controls(name)),
            tempers={key: self._temper(hangs) for _, key in names},
            keepers={key: random.choice(self._clients) for _, key in names},
        )

    def _id(self, at: float) -> UUID:
        self._ids += 1
        noise = (2_000_000 + self._ids).to_bytes(4, "big") + self._random.randbytes(6)
        return make_id(self._unix_ms + int(at * 1000), noise)

    def _starts(self, name: Name, hangs: bool) -> list[StartPlan]:
        random = self._random
        retry = RetryPolicy(attempts=random.randint(1, 4), backoff_s=random.choice((0.1, 1.0)))
        terms = ActorTerms(options=Options(timeout_s=TIMEOUT_S if hangs else None, retry=retry))
        first = random.uniform(0.0, self._storm_s * 0.3)
        later = [random.uniform(first, self._storm_s) for _ in range(random.choice((0, 1, 1, 2)))]
        return [
            StartPlan(
                random.choice(self._clients),
                at,
                NewActor(self._id(at), *name, pack_log([]), terms=terms),
                random.random() < 0.5,
            )
            for at in (first, *later)
        ]

    def _streams(self, name: Name) -> list[StreamPlan]:
        random = self._random
        senders = random.sample(self._clients, min(len(self._clients), MOST_STREAMS))
        return [
            self._stream(name, client)
            for client in senders
            if client == senders[0] or random.random() < 0.5
        ]

    def _stream(self, name: Name, client: str) -> StreamPlan:
        random, at = self._random, self._random.uniform(0.0, self._storm_s * 0.5)
        longest_s = random.choice((0.1, 1.0, 10.0))
        sends, no = [], 0
        for _ in range(random.randint(1, MOST_SENDS)):
            few = random.choice((1, 1, 1, 2, 5))
            messages = [self._message(name, client, at, no + place) for place in range(few)]
            sends.append((random.uniform(0.0, longest_s), tuple(messages)))
            no += few
        return StreamPlan(client, at, tuple(sends))

    def _message(self, name: Name, client: str, at: float, no: int) -> Message:
        random = self._random
        orders = self._orders(DEEPEST)
        delay_s = random.uniform(0.0, 15.0) if random.random() < 0.15 else None
        to = ReplyTo() if random.random() < 0.2 else None
        if to is not None and self._more.random() < 0.7:
            orders = (Order(Deed.CALLBACK), *orders)
        content = Content(client, no, orders, to is not None)
        args = msgpack.encode(content)
        return Message(self._id(at), *name, "note", args, delay_s, to)

    def _orders(self, depth: int) -> tuple[Order, ...]:
        if depth == 0 or self._random.random() < 0.6:
            return ()
        return tuple(self._order(depth) for _ in range(self._random.randint(1, 2)))

    def _order(self, depth: int) -> Order:
        random = self._random
        deed = random.choice(
            (*[Deed.TELL] * 8, *[Deed.ASK] * 4, *[Deed.TIMER] * 4, *[Deed.SUBMIT] * 2, Deed.PAUSE)
        )
        if deed is Deed.PAUSE and random.random() < 0.2:
            deed = Deed.STOP
        late_s = random.uniform(0.0, 5.0)
        if deed is Deed.TIMER:
            every_s = random.choice((None, None, random.uniform(0.5, 3.0)))
            return Order(deed, after_s=late_s, every_s=every_s, orders=self._orders(depth - 1))
        nobody = (TYPES[0], "nobody")
        to = random.choice((*self._names, *self._names, nobody))
        after_s = late_s if random.random() < 0.2 else None
        return Order(deed, to, after_s, orders=self._orders(depth - 1))

    def _controls(self, name: Name) -> list[ControlPlan]:
        random = self._random
        some = [Control.PAUSE, Control.RESUME, Control.EDIT, Control.PAUSE, Control.RESTART]
        chosen = [random.choice(some) for _ in range(random.randint(0, 4))]
        if random.random() < 0.3:
            chosen.append(Control.STOP)
        plans = [self._plan(random, name, control) for control in chosen]
        sorts = (Control.PARK, Control.PARK, Control.DROP, Control.PUT_BACK)
        more = [self._more.choice(sorts) for _ in range(self._more.randint(0, 4))]
        return [*plans, *(self._plan(self._more, name, control) for control in more)]

    def _plan(self, random: Random, name: Name, control: Control) -> ControlPlan:
        at = random.choice(self._clients), random.uniform(0.0, self._storm_s)
        return ControlPlan(*at, name, control)

    def _temper(self, hangs: bool) -> Temper:
        random = self._random
        bad = [Fate.FAILS, Fate.FAILS, Fate.CRASHES, *[Fate.HANGS] * hangs]
        if random.random() < 0.2:
            bad.append(Fate.KILLS)
        share = random.choice((0.0, 0.2, 0.5))
        fates = [
            random.choice(bad) if random.random() < share else None
            for _ in range(random.randint(0, 20))
        ]
        takes_s = random.choice((0.0, 0.1, 1.0, 5.0))
        return Temper(tuple(fates), takes_s, random.random() < 0.1)
