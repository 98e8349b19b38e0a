"""All that one run found."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from bench.actor_peers import ActorPeer
from bench.actors import Actors
from bench.asks import Ask
from bench.beat import Beat
from bench.beside import Beside
from bench.containers import Containers
from bench.cost import Cost
from bench.dashboard import Dashboard
from bench.fairness import Shares
from bench.filesets import Filesets
from bench.flatness import Flatness
from bench.groups import GraphPeer, Groups
from bench.http import Http
from bench.latency import Latency
from bench.limit import Limit
from bench.limits import Limited
from bench.locks import Locks
from bench.machine import Machine
from bench.plain import Plain
from bench.programs import Programs
from bench.recovery import Recovery
from bench.scale import Scale
from bench.schedules import Rounds
from bench.sleeping import Sleeping
from bench.throughput import Throughput


class Results(Struct):
    """What each workload found; none if it was not run, or failed (then `failures` says why)."""

    WORKLOADS: ClassVar[tuple[str, ...]] = (
        "limit",
        "throughput",
        "peers",
        "plain",
        "programs",
        "groups",
        "graph",
        "actors",
        "sleeping",
        "actor_peers",
        "asks",
        "http",
        "dashboard",
        "containers",
        "filesets",
        "latency",
        "flatness",
        "limits",
        "locks",
        "fairness",
        "schedules",
        "beat",
        "scale",
        "recovery",
        "cost",
    )

    machine: Machine
    at: str
    load_before: float = 0.0
    limit: Limit | None = None
    throughput: Throughput | None = None
    peers: Beside | None = None
    plain: Plain | None = None
    programs: Programs | None = None
    groups: Groups | None = None
    graph: list[GraphPeer] | None = None
    actors: Actors | None = None
    sleeping: list[Sleeping] | None = None
    actor_peers: list[ActorPeer] | None = None
    asks: list[Ask] | None = None
    http: Http | None = None
    dashboard: Dashboard | None = None
    containers: Containers | None = None
    filesets: Filesets | None = None
    latency: Latency | None = None
    flatness: Flatness | None = None
    limits: list[Limited] | None = None
    locks: Locks | None = None
    fairness: list[Shares] | None = None
    schedules: list[Rounds] | None = None
    beat: Beat | None = None
    scale: Scale | None = None
    recovery: Recovery | None = None
    cost: Cost | None = None
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
