"""Latency: from the submit of one job to its start and to its result, at idle and at half load."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from bench.fleet import Fleet, fleet
from bench.helper import Helper
from bench.hops import Hops, measure_hops
from bench.pairs import Ratio, ratio_of
from bench.percentiles import Times, pooled, times_of
from bench.stage import STORES, Stage

WARM_UP = 30


class Case(Struct, frozen=True):
    """One store at one load, and what was needed at the least, measured in turn with it at idle."""

    store: str
    load: str
    jobs_per_s: float
    to_start: Times
    to_result: Times
    least: Hops
    p50_ratio: Ratio
    """Submit to start, in (one commit and two hops), in the middle."""

    @property
    def p99_ratio(self) -> float:
        """The same of the 99th of a hundred, of all samples: one pair's are too few for it."""
        return self.to_start.p99_ms / self.least.both.p99_ms


class Pair(NamedTuple):
    """Some samples of the least, and of the real thing right after."""

    least: Hops
    to_start: Times
    to_result: Times


class Latency(Struct, frozen=True):
    """Every case that was measured."""

    cases: list[Case]

    def case(self, store: str, load: str = "idle") -> Case:
        """The one with these words."""
        return next(case for case in self.cases if (case.store, case.load) == (store, load))


def measure(stage: Stage) -> Latency:
    """Both stores, idle and at half of what the same fleet can do."""
    cases = []
    for store in STORES:
        with stage.fresh(store) as url, fleet(url, stage.folder) as ours:
            cases += _of_fleet(stage, store, ours)
    for case in cases:
        stage.say(
            f"{case.store}, {case.load}: start {case.to_start.p50_ms:.2f} ms p50, "
            f"{case.to_start.p99_ms:.2f} p99; result {case.to_result.p50_ms:.2f} p50"
        )
    return Latency(cases)


def _of_fleet(stage: Stage, store: str, ours: Fleet) -> list[Case]:
    pairs = range(stage.sizes.pairs)
    rate = ours.run(ours.warm(stage.sizes)) / 2
    with stage.fresh(store) as probe:
        idle = [_pair(stage, ours, probe) for _ in pairs]
        loader = ours.add_client()
        half = [_pair(stage, ours, probe, loader, rate) for _ in pairs]
    return [_case(store, "idle", 0.0, idle), _case(store, "half load", rate, half)]


def _pair(
    stage: Stage, ours: Fleet, probe: str, loader: Helper | None = None, rate: float = 0.0
) -> Pair:
    samples, pause_s = stage.sizes.samples // stage.sizes.pairs, stage.sizes.pause_s
    least = measure_hops(probe, samples, pause_s)
    if loader:
        loader.ask(do="load", rate=rate)
    ours.clients[0].ask(do="latency", samples=WARM_UP, pause_s=pause_s)
    found = ours.clients[0].ask(do="latency", samples=samples, pause_s=pause_s)
    if loader:
        loader.ask(do="stop")
    return Pair(least, times_of(found["start"]), times_of(found["result"]))


def _case(store: str, load: str, rate: float, pairs: list[Pair]) -> Case:
    middles = [(pair.to_start.p50_ms, pair.least.both.p50_ms) for pair in pairs]
    return Case(
        store,
        load,
        rate,
        pooled([pair.to_start for pair in pairs]),
        pooled([pair.to_result for pair in pairs]),
        Hops.pooled([pair.least for pair in pairs]),
        ratio_of(*zip(*middles, strict=True)),
    )
