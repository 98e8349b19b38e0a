"""Throughput: no-op jobs, submitted in bulk and run at the same time, until all are recorded."""

from __future__ import annotations

import statistics

from msgspec import Struct

from bench.fleet import Fleet, fleet
from bench.limit import Ceiling, run_limit
from bench.pairs import Ratio, interleave
from bench.stage import STORES, Stage


class Case(Struct, frozen=True):
    """One fleet and kind of job; `of_limit` are pairs with the limit of the same store."""

    store: str
    dispatchers: int
    kind: str
    jobs: int
    rates: list[float]
    of_limit: Ratio | None = None

    @property
    def jobs_per_s(self) -> float:
        """The median of all runs."""
        return statistics.median(self.rates)


class Throughput(Struct, frozen=True):
    """Every case that was measured."""

    cases: list[Case]

    def case(self, store: str, dispatchers: int = 1, kind: str = "noop") -> Case:
        """The one with these words."""
        wanted = (store, dispatchers, kind)
        return next(c for c in self.cases if (c.store, c.dispatchers, c.kind) == wanted)

    def best(self, store: str) -> Case:
        """The fastest with asynchronous jobs."""
        cases = [case for case in self.cases if (case.store, case.kind) == (store, "noop")]
        return max(cases, key=lambda case: case.jobs_per_s)


def measure(stage: Stage, ceilings: dict[str, Ceiling]) -> Throughput:
    """One and two dispatchers, coroutines and child processes, on both stores."""
    cases = []
    for store in STORES:
        for dispatchers in stage.sizes.dispatchers:
            cases += _of_fleet(stage, store, dispatchers, ceilings.get(store))
    return Throughput(cases)


def _of_fleet(stage: Stage, store: str, dispatchers: int, ceiling: Ceiling | None) -> list[Case]:
    with stage.fresh(store) as url, fleet(url, stage.folder, dispatchers=dispatchers) as ours:
        cases = [
            _beside_limit(stage, store, ours, ceiling),
            _alone(stage, store, ours, "noop_process"),
        ]
    for case in cases:
        ratio = f", {case.of_limit.median:.2f} of the limit" if case.of_limit else ""
        words = f"{store}, {dispatchers} dispatchers, {case.kind}"
        stage.say(f"{words}: {case.jobs_per_s:,.0f} jobs/s{ratio}")
    return cases


def _beside_limit(stage: Stage, store: str, ours: Fleet, ceiling: Ceiling | None) -> Case:
    if ceiling is None:
        return _alone(stage, store, ours, "noop")
    ours.warm(stage.sizes)
    jobs = stage.sizes.most_jobs
    way, connections = ceiling.way, ceiling.connections
    with stage.fresh(store) as url:
        ratio = interleave(
            stage.sizes.pairs,
            lambda: ours.run(jobs),
            lambda: run_limit(url, way, connections, stage.sizes.limit_jobs),
        )
    return Case(store, len(ours.dispatchers), "noop", jobs, ratio.ones, ratio)


def _alone(stage: Stage, store: str, ours: Fleet, kind: str) -> Case:
    jobs = ours.warm(stage.sizes, kind)
    rates = [ours.run(jobs, kind) for _ in range(stage.sizes.pairs)]
    return Case(store, len(ours.dispatchers), kind, jobs, rates)
