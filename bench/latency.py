"""Latency: from the submit of one job to its start and to its result, at idle and at half load."""

from __future__ import annotations

from msgspec import Struct

from bench.fleet import Fleet, fleet
from bench.hops import Hops, measure_hops
from bench.percentiles import Times, times_of
from bench.stage import STORES, Stage

WARM_UP = 30


class Case(Struct, frozen=True):
    """One store at one load, and what was needed at the least, measured right before and after."""

    store: str
    load: str
    jobs_per_s: float
    to_start: Times
    to_result: Times
    least: Hops

    @property
    def p50_ratio(self) -> float:
        """Submit to start, in (one commit and two hops), in the middle."""
        return self.to_start.p50_ms / self.least.both.p50_ms

    @property
    def p99_ratio(self) -> float:
        """The same of the 99th of a hundred."""
        return self.to_start.p99_ms / self.least.both.p99_ms


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
    sizes = stage.sizes
    rate = ours.run(ours.warm(sizes)) / 2
    with stage.fresh(store) as url:
        least = measure_hops(url, sizes.samples, sizes.pause_s)
    idle = _sample(stage, ours)
    loader = ours.add_client()
    loader.ask(do="load", rate=rate)
    half = _sample(stage, ours)
    loader.ask(do="stop")
    return [Case(store, "idle", 0.0, *idle, least), Case(store, "half load", rate, *half, least)]


def _sample(stage: Stage, ours: Fleet) -> tuple[Times, Times]:
    client = ours.clients[0]
    client.ask(do="latency", samples=WARM_UP, pause_s=stage.sizes.pause_s)
    found = client.ask(do="latency", samples=stage.sizes.samples, pause_s=stage.sizes.pause_s)
    return times_of(found["start"]), times_of(found["result"])
