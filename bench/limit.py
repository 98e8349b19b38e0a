"""Limit: what the database itself can do, with no dispatcher, no worker and no wire.

Each connection is a process of its own that inserts, claims and finishes jobs of its own lane, a
batch of each in one transaction, on the real schema. The limit is the best that was found.
"""

from __future__ import annotations

import statistics

from msgspec import Struct

from bench.helper import Helper
from bench.hops import Hops, measure_hops
from bench.stage import STORES, Stage

WAYS = ("store", "bare")
BATCH = 1_000


class Ceiling(Struct, frozen=True):
    """The best way on one kind of store; `tried` has them all, in jobs per second."""

    store: str
    way: str
    connections: int
    jobs_per_s: float
    tried: dict[str, float]


class Limit(Struct, frozen=True):
    """The ceilings, and what one job alone must wait for, by store."""

    ceilings: dict[str, Ceiling]
    hops: dict[str, Hops]


def run_limit(url: str, way: str, connections: int, jobs: int) -> float:
    """Jobs per second through all three statements."""
    share = jobs // connections
    words = (url, way, str(share), str(BATCH))
    sides = [Helper("limit_side", *words) for _ in range(connections)]
    try:
        for side in sides:
            side.answer()
        for side in sides:
            side.tell(do="run")
        times = [side.answer() for side in sides]
    finally:
        for side in sides:
            side.close()
    ended, began = max(time[1] for time in times), min(time[0] for time in times)
    return share * connections / float(ended - began)


def find_ceiling(stage: Stage, store: str) -> Ceiling:
    """Tries every way on every number of connections; writers of SQLite only take turns."""
    numbers = stage.sizes.connections if store == "postgres" else stage.sizes.connections[:2]
    runs: dict[tuple[str, int], list[float]] = {(way, n): [] for way in WAYS for n in numbers}
    for _ in range(stage.sizes.limit_rounds):
        for (way, connections), rates in runs.items():
            with stage.fresh(store) as url:
                rates.append(run_limit(url, way, connections, stage.sizes.limit_jobs))
    tried = {key: statistics.median(rates) for key, rates in runs.items()}
    for (way, connections), rate in tried.items():
        stage.say(f"{store}, {way}, {connections} connections: {rate:,.0f} jobs/s")
    (way, connections), best = max(tried.items(), key=lambda item: item[1])
    shown = {f"{way} {connections}": rate for (way, connections), rate in tried.items()}
    return Ceiling(store, way, connections, best, shown)


def measure(stage: Stage) -> Limit:
    """The ceilings of both stores."""
    ceilings = {store: find_ceiling(stage, store) for store in STORES}
    hops = {}
    for store in STORES:
        with stage.fresh(store) as url:
            hops[store] = measure_hops(url, stage.sizes.samples, stage.sizes.pause_s)
        both = hops[store]
        stage.say(
            f"{store}: commit {both.commit.p50_ms:.2f} ms, ZeroMQ round trip "
            f"{both.round_trip.p50_ms:.2f} ms (p50)"
        )
    return Limit(ceilings, hops)
