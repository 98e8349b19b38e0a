"""Throughput: no-op jobs, submitted in bulk and run at the same time, until all are recorded."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from msgspec import Struct

from bench.fleet import Fleet, fleet
from bench.limit import Ceiling, run_limit
from bench.pairs import Ratio, interleave
from bench.stage import STORES, Stage


class Case(Struct, frozen=True):
    """One fleet; `of_limit` are pairs with the limit of the same store."""

    store: str
    dispatchers: int
    jobs: int
    rates: list[float]
    of_limit: Ratio | None = None

    @property
    def jobs_per_s(self) -> float:
        """The median of all runs."""
        return statistics.median(self.rates)


class Throughput(Struct, frozen=True):
    """Every case that was measured.

    `file_of_server` are pairs of SQLite with PostgreSQL; `collected_of_run` of the same jobs until
    the client has all outcomes with those until they are recorded, on PostgreSQL.
    """

    cases: list[Case]
    file_of_server: Ratio
    collected_of_run: Ratio


def measure(stage: Stage, ceilings: dict[str, Ceiling]) -> Throughput:
    """One and two dispatchers, on both stores."""
    cases = []
    for store in STORES:
        for dispatchers in stage.sizes.dispatchers:
            cases.append(_of_fleet(stage, store, dispatchers, ceilings.get(store)))
    return Throughput(cases, *_in_turn(stage))


def _in_turn(stage: Stage) -> tuple[Ratio, Ratio]:
    """What is compared with each other is run in turn, on fleets that are up at the same time."""
    with ExitStack() as stack:
        file, server = (
            stack.enter_context(fleet(stack.enter_context(stage.fresh(store)), stage.folder))
            for store in ("sqlite", "postgres")
        )
        jobs = min(file.warm(stage.sizes), server.warm(stage.sizes))
        stores = interleave(stage.sizes.pairs, lambda: file.run(jobs), lambda: server.run(jobs))
        ends = interleave(stage.sizes.pairs, lambda: server.collect(jobs), lambda: server.run(jobs))
    stage.say(f"sqlite in turn with postgres: {stores.median:.2f} times as many jobs/s")
    stage.say(f"until a client has all outcomes: {ends.median:.2f} times as many jobs/s")
    return stores, ends


def _of_fleet(stage: Stage, store: str, dispatchers: int, ceiling: Ceiling | None) -> Case:
    with stage.fresh(store) as url, fleet(url, stage.folder, dispatchers=dispatchers) as ours:
        case = _beside_limit(stage, store, ours, ceiling)
    ratio = f", {case.of_limit.median:.2f} of the limit" if case.of_limit else ""
    stage.say(f"{store}, {dispatchers} dispatchers: {case.jobs_per_s:,.0f} jobs/s{ratio}")
    return case


def _beside_limit(stage: Stage, store: str, ours: Fleet, ceiling: Ceiling | None) -> Case:
    if ceiling is None:
        return _alone(stage, store, ours)
    ours.warm(stage.sizes)
    jobs = stage.sizes.most_jobs
    way, connections = ceiling.way, ceiling.connections
    with stage.fresh(store) as url:
        ratio = interleave(
            stage.sizes.pairs,
            lambda: ours.run(jobs),
            lambda: run_limit(url, way, connections, stage.sizes.limit_jobs),
        )
    return Case(store, len(ours.dispatchers), jobs, ratio.ones, ratio)


def _alone(stage: Stage, store: str, ours: Fleet) -> Case:
    jobs = ours.warm(stage.sizes)
    rates = [ours.run(jobs) for _ in range(stage.sizes.pairs)]
    return Case(store, len(ours.dispatchers), jobs, rates)
