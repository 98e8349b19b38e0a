"""Which faults strike when: a seed and the shape of a fleet decide it. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

FIRST_AT_S = 1.0
CLUSTER_FIRST_AT_S = 4.0

T = TypeVar("T")


class Deed(StrEnum):
    """What is done to a process, or to a link."""

    KILL = "kill"
    """SIGKILL; started again a while later."""
    RESTART = "restart"
    """Asked to stop in good order, and started again."""
    FREEZE = "freeze"
    """SIGSTOP, with all its children; SIGCONT a while later."""
    FREEZE_ALONE = "freeze_alone"
    """The same without its children: bodies run on while nobody speaks for them."""
    STUTTER = "stutter"
    """Stopped and continued ten times a second: a machine that is far too slow."""
    KILL_CHILD = "kill_child"
    """SIGKILL to one process in which a worker runs bodies."""
    FULL_DISK = "full_disk"
    """No file of the process can grow (RLIMIT_FSIZE)."""
    CUT_BOTH = "cut_both"
    """A link passes nothing, and stays connected."""
    CUT_FORTH = "cut_forth"
    """A link passes nothing from who connected, and everything to it."""
    CUT_BACK = "cut_back"
    BREAK = "break"
    """A link is closed, and refuses connections."""
    RESET = "reset"
    """The connections of a link are closed, once."""
    KILL_CONNECTIONS = "kill_connections"
    """PostgreSQL ends all its connections, once (pg_terminate_backend)."""
    KILL_SERVER = "kill_server"
    """SIGKILL to a PostgreSQL whose Patroni lives on."""
    CUT_OFF = "cut_off"
    """A member of a cluster does not reach etcd."""
    SWITCHOVER = "switchover"
    """The standby becomes the primary, as planned."""
    STRAND = "strand"
    """Backends end whose commits wait for a frozen standby; the primary dies; the standby wakes."""


_PROCESS = {Deed.KILL: 5, Deed.RESTART: 2, Deed.FREEZE: 3}
_LINK = {Deed.CUT_BOTH: 2, Deed.CUT_FORTH: 2, Deed.CUT_BACK: 2, Deed.BREAK: 2, Deed.RESET: 2}
DEEDS: dict[str, dict[Deed, int]] = {
    "dispatcher": {**_PROCESS, Deed.STUTTER: 1, Deed.FULL_DISK: 2},
    "worker": {**_PROCESS, Deed.FREEZE_ALONE: 2, Deed.KILL_CHILD: 3, Deed.STUTTER: 1},
    "gateway": {**_PROCESS, Deed.FULL_DISK: 1},
    "plain": _PROCESS,
    "web": _PROCESS,
    "postgres": {
        Deed.KILL: 2,
        Deed.RESTART: 2,
        Deed.FREEZE: 2,
        Deed.STUTTER: 1,
        Deed.KILL_CONNECTIONS: 3,
        Deed.FULL_DISK: 1,
    },
    "link": _LINK,
}
"""What may happen to what sort of part, and how often beside the rest."""
_SORTS = {
    "dispatcher": 5,
    "worker": 5,
    "gateway": 2,
    "plain": 1,
    "web": 1,
    "postgres": 2,
    "link": 4,
}
ONCE = frozenset({Deed.RESET, Deed.KILL_CONNECTIONS, Deed.KILL_CHILD, Deed.SWITCHOVER})
"""Deeds that are over at once."""


OF_CLUSTER: tuple[tuple[Deed, str], ...] = (
    (Deed.KILL_SERVER, "primary"),
    (Deed.KILL, "primary"),
    (Deed.FREEZE, "primary"),
    (Deed.CUT_OFF, "primary"),
    (Deed.FREEZE, "standby"),
    (Deed.KILL, "standby"),
    (Deed.SWITCHOVER, "primary"),
    (Deed.STRAND, "primary"),
)
"""What is done to a cluster of PostgreSQL, and to whom: who that is then, is seen then."""
_TAKEN_FOR_DEAD = frozenset({(Deed.FREEZE, "primary"), (Deed.CUT_OFF, "primary")})
"""These last until another one has taken over, and end while it is the primary."""


class Shape(Struct, frozen=True):
    """What there is to break: the names of parts by their sort."""

    parts: dict[str, tuple[str, ...]]
    impossible: tuple[tuple[str, Deed], ...] = ()
    """What this machine, or this store, does not allow."""


class Fault(Struct, frozen=True):
    """One fault: when it strikes, for how long, what and whom."""

    number: int
    at_s: float
    deed: Deed
    whom: str
    lasts_s: float


def plan(
    seed: int, shape: Shape, seconds: float, every_s: float, longest_s: float
) -> tuple[Fault, ...]:
    """The faults of a run, by their times; about one in `every_s`, all over before its end."""
    chance = random.Random(f"chaos {seed}")
    faults: list[Fault] = []
    at_s = FIRST_AT_S
    while at_s < seconds:
        sort = _weighted(chance, {one: _SORTS[one] for one in shape.parts if shape.parts[one]})
        deeds = {d: n for d, n in DEEDS[sort].items() if (sort, d) not in shape.impossible}
        deed = _weighted(chance, deeds)
        whom = chance.choice(shape.parts[sort])
        lasts_s = 0.0 if deed in ONCE else _length(chance, longest_s)
        lasts_s = min(lasts_s, seconds - at_s)
        faults.append(Fault(len(faults) + 1, round(at_s, 3), deed, whom, round(lasts_s, 3)))
        at_s += chance.expovariate(1 / every_s)
    return tuple(faults)


def cluster_plan(
    seed: int,
    seconds: float,
    every_s: float,
    longest_s: float,
    deeds: Sequence[tuple[Deed, str]] = OF_CLUSTER,
) -> tuple[Fault, ...]:
    """The faults of a cluster: each deed once before one comes again, one after the other.

    The last one strikes early enough that what it breaks off can be seen to come back.
    """
    chance = random.Random(f"cluster {seed}")
    faults: list[Fault] = []
    order: list[tuple[Deed, str]] = []
    at_s = CLUSTER_FIRST_AT_S
    while not faults or at_s + every_s * 0.7 <= seconds:
        order = order or chance.sample(deeds, len(deeds))
        deed, whom = order.pop()
        least = 0.75 if (deed, whom) in _TAKEN_FOR_DEAD else 0.1
        lasts_s = 0.0 if deed in ONCE else chance.uniform(least * longest_s, longest_s)
        lasts_s = min(lasts_s, every_s, max(0.0, seconds - at_s))
        faults.append(Fault(len(faults) + 1, round(at_s, 3), deed, whom, round(lasts_s, 3)))
        at_s += every_s * chance.uniform(0.9, 1.1)
    return tuple(faults)


def _length(chance: random.Random, longest_s: float) -> float:
    """Most are short: shorter than a lease. Some are long enough that all time limits pass."""
    if chance.random() < 0.6:
        return chance.uniform(0.05, longest_s / 4)
    return chance.uniform(longest_s / 4, longest_s)


def _weighted(chance: random.Random, weights: dict[T, int]) -> T:
    """One of these, the heavier the likelier."""
    options: Sequence[T] = list(weights)
    return chance.choices(options, list(weights.values()))[0]
