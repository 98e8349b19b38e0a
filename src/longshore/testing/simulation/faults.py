"""What goes wrong: the kinds of faults, and how a seed chooses among them.

Each seed switches some kinds of faults on and the others off, and chooses how often they come: a
storm of everything at once hides what two faults alone would show. Some seeds have a theme.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from random import Random

from msgspec import Struct

from longshore.testing.simulation.network import Way


class Theme(StrEnum):
    """What a storm is about."""

    ANYTHING = "anything"
    ONE_KIND = "one kind of fault"
    DISPATCHERS_DIE = "dispatchers die"
    DROWNING = "workers hear too late, and then are not heard"
    CHOKING = "workers are heard too late, and not always answered"
    FREEZING = "everybody freezes now and then"
    UNSURE = "the store is slow, and its answers get lost"
    LEAKING = "ends of attempts get lost between two processes that go on talking"
    BELATED = "the store answers a dispatcher late, and then not at all"


class Kill(Struct, frozen=True):
    """kill -9 of a node, `fuse` of its callbacks after the time given; it is started again."""

    at: float
    node: str
    fuse: int
    down_s: float
    is_trouble: bool
    """Whether it is more than a dispatcher: then running jobs may be lost."""


class Freeze(Struct, frozen=True):
    """SIGSTOP of a node, `fuse` of its callbacks after the time given, then SIGCONT."""

    at: float
    node: str
    fuse: int
    for_s: float


class Leave(Struct, frozen=True):
    """A node stops in good order, and is started again."""

    at: float
    node: str
    down_s: float
    is_trouble: bool


class Cut(Struct, frozen=True):
    """Nothing comes through some ways for a while."""

    at: float
    ways: frozenset[Way]
    breaks: bool
    for_s: float


class Reset(Struct, frozen=True):
    """The connections on some ways break and are made again."""

    at: float
    ways: frozenset[Way]


class Slow(Struct, frozen=True):
    """A way becomes slower and slower, for a while."""

    at: float
    way: Way
    ramp_s: float
    at_most_s: float
    for_s: float


class Full(Struct, frozen=True):
    """A way takes only a share of the messages of a listener, for a while."""

    at: float
    way: Way
    share: float
    for_s: float


class Leak(Struct, frozen=True):
    """A way loses a share of what tells or acknowledges the ends of attempts, for a while."""

    at: float
    way: Way
    share: float
    for_s: float


class Outage(Struct, frozen=True):
    """Some dispatchers do not reach the database, and notice after `patience_s`."""

    at: float
    nodes: tuple[str, ...]
    patience_s: float
    for_s: float


class Flaky(Struct, frozen=True):
    """A share of the calls to the database fails, half of them after the commit."""

    at: float
    share: float
    for_s: float


class Sluggish(Struct, frozen=True):
    """The database takes long to answer."""

    at: float
    delay_s: tuple[float, float]
    for_s: float


class Late(Struct, frozen=True):
    """What a dispatcher asks of the database is done at once, and answered `late_s` after that."""

    at: float
    node: str
    late_s: float
    for_s: float


class Unreliable(Struct, frozen=True):
    """HTTP loses and doubles shares of what is said, and takes up to `late_s` longer."""

    at: float
    lost: float
    unanswered: float
    doubled: float
    late_s: float
    for_s: float


Fault = (
    Kill
    | Freeze
    | Leave
    | Cut
    | Reset
    | Slow
    | Full
    | Leak
    | Outage
    | Flaky
    | Sluggish
    | Late
    | Unreliable
)
Kind = Callable[[float], Fault | list[Fault]]


class Nodes(Struct, frozen=True):
    """Who is there, by name."""

    dispatchers: tuple[str, ...]
    workers: tuple[str, ...]
    clients: tuple[str, ...]


class Fate:
    """Makes faults of those kinds that the seed has switched on."""

    def __init__(self, random: Random, nodes: Nodes, storm_s: float, theme: Theme) -> None:
        self._theme = theme
        self._random = random
        self._nodes = nodes
        self._storm_s = storm_s
        self._belated_until = 0.0
        self._victims = (
            random.choice(nodes.dispatchers),
            random.choice((*nodes.workers, *nodes.workers, *nodes.clients)),
        )
        self._kinds: list[Kind] = [
            self._kill_dispatcher,
            self._kill_worker,
            self._freeze_dispatcher,
            self._freeze_worker,
            self._stop_dispatcher,
            self._drain_worker,
            self._cut,
            self._isolate,
            self._reset,
            self._slow,
            self._drown,
            self._choke,
            self._full,
            self._leak,
            self._outage,
            self._flaky,
            self._sluggish,
        ]

    def faults(self) -> tuple[Fault, ...]:
        """Faults in the order of time, until the storm is over."""
        kinds, random = self._chosen(), self._random
        every_s = random.choice((1.0, 3.0, 9.0)) * (1 + 4 / (1 + len(kinds)))
        found: list[Fault] = []
        at = random.expovariate(1 / every_s)
        while kinds and at < self._storm_s:
            one = random.choice(kinds)(at)
            found += one if isinstance(one, list) else [one]
            at += random.expovariate(1 / every_s)
        return tuple(found)

    def _chosen(self) -> list[Kind]:
        match self._theme:
            case Theme.ANYTHING:
                return [kind for kind in self._kinds if self._random.random() < 0.4]
            case Theme.ONE_KIND:
                return [self._random.choice(self._kinds)]
            case Theme.DISPATCHERS_DIE:
                return [self._kill_dispatcher, self._kill_dispatcher, self._stop_dispatcher]
            case Theme.DROWNING:
                return [self._drown]
            case Theme.CHOKING:
                return [self._choke]
            case Theme.FREEZING:
                return [self._freeze_worker, self._freeze_worker, self._freeze_dispatcher]
            case Theme.UNSURE:
                return [self._flaky, self._flaky, self._sluggish]
            case Theme.LEAKING:
                return [self._leak]
            case Theme.BELATED:
                return [self._belate]

    def _span_s(self) -> float:
        """A while: a blink, a few seconds, or longer than every lease."""
        random = self._random
        return random.choice(
            (random.uniform(0.1, 2.0), random.uniform(2.0, 12.0), random.uniform(12.0, 45.0))
        )

    def _fuse(self) -> int:
        return self._random.choice((0, self._random.randint(1, 10), self._random.randint(1, 100)))

    def _way(self) -> Way:
        """From a worker or client to a dispatcher, or back; half the time between the same two."""
        inner, outer = self._victims
        if self._random.random() < 0.5:
            inner = self._random.choice(self._nodes.dispatchers)
            outer = self._random.choice((*self._nodes.workers, *self._nodes.clients))
        return (outer, inner) if self._random.random() < 0.5 else (inner, outer)

    def _kill_dispatcher(self, at: float) -> Fault:
        node = self._random.choice(self._nodes.dispatchers)
        return Kill(at, node, self._fuse(), self._span_s(), is_trouble=False)

    def _kill_worker(self, at: float) -> Fault:
        node = self._random.choice(self._nodes.workers)
        return Kill(at, node, self._fuse(), self._span_s(), is_trouble=True)

    def _freeze_dispatcher(self, at: float) -> Fault:
        node = self._random.choice(self._nodes.dispatchers)
        return Freeze(at, node, self._fuse(), self._span_s())

    def _freeze_worker(self, at: float) -> Fault:
        node = self._random.choice(self._nodes.workers)
        return Freeze(at, node, self._fuse(), self._span_s())

    def _stop_dispatcher(self, at: float) -> Fault:
        node = self._random.choice(self._nodes.dispatchers)
        return Leave(at, node, self._span_s(), is_trouble=False)

    def _drain_worker(self, at: float) -> Fault:
        node = self._random.choice(self._nodes.workers)
        return Leave(at, node, self._span_s(), is_trouble=True)

    def _cut(self, at: float) -> Fault:
        way = self._way()
        if self._random.random() < 0.4:
            return Cut(at, frozenset({way}), False, self._span_s())
        both = frozenset({way, (way[1], way[0])})
        return Cut(at, both, self._random.random() < 0.5, self._span_s())

    def _isolate(self, at: float) -> Fault:
        node = self._random.choice((*self._nodes.workers, *self._nodes.dispatchers))
        everybody = (*self._nodes.dispatchers, *self._nodes.workers, *self._nodes.clients)
        there = {(node, other) for other in everybody if other != node}
        back = {(other, node) for other in everybody if other != node}
        ways = self._random.choice((there, back, there | back, there | back))
        breaks = len(ways) > len(there) and self._random.random() < 0.5
        return Cut(at, frozenset(ways), breaks, self._span_s())

    def _reset(self, at: float) -> Fault:
        return Reset(at, frozenset({self._way()}))

    def _slow(self, at: float) -> Fault:
        most_s = self._random.choice((0.5, 3.0, 12.0))
        ramp_s = most_s * self._random.choice((0.1, 1.5, 4.0))
        return Slow(at, self._way(), ramp_s, most_s, self._span_s())

    def _drown(self, at: float) -> list[Fault]:
        """A worker hears everybody later and later, then nobody hears the worker any more."""
        worker = self._random.choice(self._nodes.workers)
        late_s = self._random.uniform(7.0, 9.5)
        unheard_at = at + 2 * late_s + self._random.uniform(0.0, 5.0)
        late: list[Fault] = [
            Slow(at, (dispatcher, worker), 2 * late_s, late_s, 60.0)
            for dispatcher in self._nodes.dispatchers
        ]
        ways = frozenset((worker, dispatcher) for dispatcher in self._nodes.dispatchers)
        return [*late, Cut(unheard_at, ways, False, self._random.uniform(20.0, 40.0))]

    def _choke(self, at: float) -> list[Fault]:
        """A dispatcher hears a worker late, and cannot always answer."""
        inner = self._random.choice(self._nodes.dispatchers)
        outer = self._random.choice(self._nodes.workers)
        late_s, for_s = self._random.uniform(2.0, 6.0), self._random.uniform(10.0, 40.0)
        return [
            Slow(at, (outer, inner), 3 * late_s, late_s, for_s),
            Full(at, (inner, outer), self._random.choice((0.2, 0.5)), for_s),
        ]

    def _belate(self, at: float) -> list[Fault]:
        """A renewal is answered late, no other reaches the store, and its workers find nobody else.

        A dispatcher takes no longer than 1.5 s to ask for one.
        """
        if at < self._belated_until:
            return []
        self._belated_until = at + 45.0
        node = self._random.choice(self._nodes.dispatchers)
        others = [one for one in self._nodes.dispatchers if one != node]
        ways = {(worker, other) for worker in self._nodes.workers for other in others}
        cut = frozenset(ways | {(there, here) for here, there in ways})
        return [
            Late(at, node, self._random.uniform(9.0, 9.5), 1.6),
            Outage(at + 1.6, (node,), 5.0, 30.0),
            Cut(at, cut, False, 30.0),
        ]

    def _full(self, at: float) -> Fault:
        return Full(at, self._way(), self._random.choice((0.2, 0.8)), self._span_s())

    def _leak(self, at: float) -> Fault:
        inner = self._random.choice(self._nodes.dispatchers)
        outer = self._random.choice(self._nodes.workers)
        way = (outer, inner) if self._random.random() < 0.7 else (inner, outer)
        return Leak(at, way, self._random.choice((0.3, 1.0)), self._span_s())

    def _outage(self, at: float) -> Fault:
        dispatchers = self._nodes.dispatchers
        some = self._random.sample(dispatchers, self._random.randint(1, len(dispatchers)))
        return Outage(at, tuple(some), self._random.choice((0.0, 1.0, 5.0)), self._span_s())

    def _flaky(self, at: float) -> Fault:
        return Flaky(at, self._random.choice((0.05, 0.3, 0.7)), self._span_s())

    def _sluggish(self, at: float) -> Fault:
        most_s = self._random.choice((0.5, 2.0, 6.0))
        return Sluggish(at, (most_s / 10, most_s), self._span_s())
