"""A scenario: who is there, what is to be done, and what goes wrong when. All of it from a seed.

Each seed switches some kinds of faults on and the others off, and chooses how often they come: a
storm of everything at once hides what two faults alone would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.ids import make_id
from longshore.model.job import Options, RetryPolicy, Submission
from longshore.model.worker import KindInfo, Pool
from longshore.testing.simulation.bodies import Behaviour
from longshore.testing.simulation.network import Way

KINDS: Final = {"work": KindInfo(Pool.COROUTINE), "grind": KindInfo(Pool.PROCESS)}
UNIX_MS: Final = 1_893_456_000_000
STORM_S: Final = (20.0, 90.0)
MOST_JOBS: Final = 40


class Kill(Struct, frozen=True):
    """kill -9 of a node, `fuse` of its callbacks after the time given; it is started again."""

    at: float
    node: str
    fuse: int
    down_s: float
    is_trouble: bool
    """Whether more than dispatchers dies: then jobs may be lost that run elsewhere."""


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


Fault = Kill | Freeze | Leave | Cut | Reset | Slow | Full | Outage | Flaky | Sluggish


class WorkerPlan(Struct, frozen=True):
    """A worker: what it can run at once, and whom it tries to attend in which order."""

    node: str
    slots: int
    processes: int
    kinds: tuple[str, ...]
    dispatchers: tuple[str, ...]


class JobPlan(Struct, frozen=True):
    """A job: who submits it when, how it behaves, and what is done to it afterwards."""

    client: str
    at: float
    submission: Submission
    behaviour: Behaviour
    cancel_after_s: float | None
    retries: int
    """How often its submitter retries it by hand when it did not succeed."""
    asks_why: bool


class Scenario(Struct, frozen=True):
    """Everything that is decided before anything happens."""

    seed: int
    dispatchers: tuple[str, ...]
    workers: tuple[WorkerPlan, ...]
    clients: tuple[str, ...]
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]
    network_delay_s: tuple[float, float]
    store_delay_s: tuple[float, float]
    lost_hints: float
    storm_s: float

    @property
    def words(self) -> str:
        """How large it is, in a few words."""
        return (
            f"{_count(self.dispatchers, 'dispatcher')}, {_count(self.workers, 'worker')}, "
            f"{_count(self.jobs, 'job')}, {_count(self.faults, 'fault')}"
        )


def make_scenario(seed: int) -> Scenario:
    """The scenario of a seed: always the same one."""
    random = Random(f"{seed}/scenario")
    dispatchers = _names("d", random.choice((1, 2, 2, 3, 3)))
    clients = _names("c", random.randint(1, 3))
    storm_s = random.uniform(*STORM_S)
    workers = _workers(random, dispatchers)
    jobs = _jobs(random, clients, storm_s)
    nodes = _Nodes(dispatchers, tuple(worker.node for worker in workers), clients)
    return Scenario(
        seed=seed,
        dispatchers=dispatchers,
        workers=workers,
        clients=clients,
        jobs=jobs,
        faults=_Fate(random, nodes, storm_s).faults(),
        network_delay_s=(0.0002, random.choice((0.001, 0.01, 0.1))),
        store_delay_s=(0.0002, random.choice((0.002, 0.02, 0.2))),
        lost_hints=random.choice((0.0, 0.0, 0.2, 1.0)),
        storm_s=storm_s,
    )


def _names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{number}" for number in range(1, count + 1))


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


# who is there


def _workers(random: Random, dispatchers: Sequence[str]) -> tuple[WorkerPlan, ...]:
    plans = []
    for node in _names("w", random.randint(1, 5)):
        serves_all = node == "w1" or random.random() < 0.7
        plans.append(
            WorkerPlan(
                node,
                random.randint(1, 4),
                random.randint(1, 2),
                tuple(KINDS) if serves_all else (random.choice(tuple(KINDS)),),
                tuple(random.sample(dispatchers, len(dispatchers))),
            )
        )
    return tuple(plans)


# what is to be done


def _jobs(random: Random, clients: Sequence[str], storm_s: float) -> tuple[JobPlan, ...]:
    times = sorted(random.uniform(0.0, storm_s) for _ in range(random.randint(3, MOST_JOBS)))
    long_s = random.choice((0.5, 5.0, 30.0, 60.0))
    return tuple(
        _job(random, index, at, random.choice(clients), long_s) for index, at in enumerate(times)
    )


def _job(random: Random, index: int, at: float, client: str, long_s: float) -> JobPlan:
    hangs = random.random() < 0.05
    behaviour = Behaviour(
        takes_s=random.choice((0.0, random.uniform(0.0, 0.2), random.uniform(0.0, long_s))),
        fails=random.choice((0, 0, 0, 0, 1, 2, 4)),
        crashes=random.choice((0, 0, 0, 0, 0, 0, 0, 1, 3)),
        kills=random.choice((*[0] * 30, 1)),
        hangs=hangs,
        stubborn=random.random() < 0.15,
        logs=random.choice((0, 0, 0, 2)),
        children=random.choice((0, 0, 0, 0, 1, 2)),
    )
    cancelled = random.random() < 0.15
    return JobPlan(
        client,
        at,
        _submission(random, index, at, hangs),
        behaviour,
        random.choice((0.0, random.uniform(0, 1), random.uniform(0, 20))) if cancelled else None,
        random.choice((0, 0, 1, 2)),
        random.random() < 0.1,
    )


def _submission(random: Random, index: int, at: float, hangs: bool) -> Submission:
    times_out = hangs or random.random() < 0.2
    retry = RetryPolicy(attempts=random.randint(1, 4), backoff_s=random.choice((0.1, 1.0, 5.0)))
    return Submission(
        id=job_id(random, index, at),
        kind=random.choice(("work", "work", "grind")),
        args=b"\x80",
        priority=random.choice((0, 0, 0, 5, -5)),
        delay_s=random.choice((None, None, None, random.uniform(0.0, 10.0))),
        unique_key=random.choice((None, None, None, None, f"key-{random.randint(1, 3)}")),
        options=Options(timeout_s=random.uniform(0.5, 15.0) if times_out else None, retry=retry),
    )


def job_id(random: Random, index: int, at: float) -> UUID:
    """An id like a client's, without its randomness."""
    return make_id(UNIX_MS + int(at * 1000), index.to_bytes(4, "big") + random.randbytes(6))


# what goes wrong


class _Nodes(Struct, frozen=True):
    dispatchers: tuple[str, ...]
    workers: tuple[str, ...]
    clients: tuple[str, ...]


class _Fate:
    """Makes faults of those kinds that the seed has switched on."""

    def __init__(self, random: Random, nodes: _Nodes, storm_s: float) -> None:
        self._random = random
        self._nodes = nodes
        self._storm_s = storm_s
        self._victims = (
            random.choice(nodes.dispatchers),
            random.choice((*nodes.workers, *nodes.workers, *nodes.clients)),
        )
        self._kinds: list[Callable[[float], Fault | list[Fault]]] = [
            self._kill_dispatcher,
            self._kill_worker,
            self._freeze_dispatcher,
            self._freeze_worker,
            self._leave,
            self._cut,
            self._isolate,
            self._reset,
            self._slow,
            self._drown,
            self._choke,
            self._full,
            self._outage,
            self._flaky,
            self._sluggish,
        ]

    def faults(self) -> tuple[Fault, ...]:
        """Faults in the order of time, until the storm is over."""
        random = self._random
        kinds = [kind for kind in self._kinds if random.random() < 0.4]
        if random.random() < 0.3:
            alone = (self._kill_dispatcher, self._drown, self._choke, random.choice(self._kinds))
            kinds = [random.choice(alone)]
        every_s = random.choice((2.0, 5.0, 12.0)) * (1 + 4 / (1 + len(kinds)))
        found: list[Fault] = []
        at = random.expovariate(1 / every_s)
        while kinds and at < self._storm_s:
            one = random.choice(kinds)(at)
            found += one if isinstance(one, list) else [one]
            at += random.expovariate(1 / every_s)
        return tuple(found)

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

    def _leave(self, at: float) -> Fault:
        node = self._random.choice((*self._nodes.dispatchers, *self._nodes.workers))
        return Leave(at, node, self._span_s())

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

    def _full(self, at: float) -> Fault:
        return Full(at, self._way(), self._random.choice((0.2, 0.8)), self._span_s())

    def _outage(self, at: float) -> Fault:
        dispatchers = self._nodes.dispatchers
        some = self._random.sample(dispatchers, self._random.randint(1, len(dispatchers)))
        return Outage(at, tuple(some), self._random.choice((0.0, 1.0, 5.0)), self._span_s())

    def _flaky(self, at: float) -> Fault:
        return Flaky(at, self._random.choice((0.05, 0.3, 0.7)), self._span_s())

    def _sluggish(self, at: float) -> Fault:
        most_s = self._random.choice((0.5, 2.0, 6.0))
        return Sluggish(at, (most_s / 10, most_s), self._span_s())
