"""Flatness: what a claim costs does not grow with what the store holds besides.

Two fleets take turns on one server, one on an empty database and one on a database that holds a
great many other jobs, or in which somebody holds an old snapshot open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from msgspec import Struct

from bench.fill import Filling, fill
from bench.fleet import Fleet, fleet
from bench.gauge import Reads, reads_per_claim
from bench.pairs import Ratio, interleave, ratio_of
from bench.stage import Stage
from longshore.model.job import JobState


class Point(Struct, frozen=True):
    """One filling: throughput in that on an empty store, and what a claim reads there."""

    store: str
    name: str
    ratio: Ratio
    reads: Reads | None


class Flatness(Struct, frozen=True):
    """All fillings; the curve has a ratio for each stretch of the time the snapshot was held."""

    empty: Reads
    points: list[Point]
    curve_s: list[float]
    curve: Ratio
    snapshot: Reads
    snapshot_s: float


def measure(stage: Stage) -> Flatness:
    """Every filling beside an empty store of its kind."""
    with stage.fresh("sqlite") as url, fleet(url, stage.folder) as empty:
        in_file = _points(stage, "sqlite", empty)
    with stage.fresh() as url, fleet(url, stage.folder) as empty:
        points = _points(stage, "postgres", empty)
        reads = reads_per_claim(url)
        return _under_snapshot(stage, empty, reads, points + in_file)


def _points(stage: Stage, store: str, empty: Fleet) -> list[Point]:
    jobs = empty.warm(stage.sizes)
    return [_beside(stage, store, empty, jobs, filling) for filling in _fillings(stage)]


def _fillings(stage: Stage) -> list[Filling]:
    sizes = stage.sizes
    fillings = [
        Filling("ready that nobody serves", JobState.READY, sizes.unserved, "x", "unserved"),
        Filling("finished", JobState.SUCCEEDED, sizes.ended, "noop"),
        Filling("delayed", JobState.DELAYED, sizes.delayed, "noop"),
    ]
    return fillings[: sizes.fillings]


def _beside(stage: Stage, store: str, empty: Fleet, jobs: int, filling: Filling) -> Point:
    with stage.fresh(store) as url:
        fill(url, filling)
        with fleet(url, stage.folder) as filled:
            filled.run(jobs)
            ratio = interleave(stage.sizes.pairs, lambda: filled.run(jobs), lambda: empty.run(jobs))
            reads = reads_per_claim(url) if store == "postgres" else None
    name = f"{filling.jobs:,} {filling.name}"
    stage.say(
        f"{store}, {name}: {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) of empty"
        + (f", {reads.rows} rows read by a claim" if reads else "")
    )
    return Point(store, name, ratio, reads)


def _under_snapshot(stage: Stage, empty: Fleet, reads: Reads, points: list[Point]) -> Flatness:
    sizes = stage.sizes
    with stage.fresh() as url, fleet(url, stage.folder) as held:
        rate = held.run(held.warm(sizes))
        jobs = max(100, round(rate * sizes.slice_s))
        spent, at, ones, others = 0.0, [], [], []
        with old_snapshot(url):
            while spent < sizes.snapshot_s:
                began = time.monotonic()
                ones.append(held.run(jobs))
                spent += time.monotonic() - began
                at.append(round(spent, 2))
                others.append(empty.run(jobs))
            snapshot = reads_per_claim(url)
    curve = ratio_of(ones, others)
    stage.say(f"under an old snapshot: {curve.median:.2f} ({curve.low:.2f} to {curve.high:.2f})")
    return Flatness(reads, points, at, curve, snapshot, spent)


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Somebody began a transaction, looked once, and leaves it open."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))
        runner.run(connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
        runner.run(connection.fetch("SELECT count(*) FROM longshore.worker"))
        try:
            yield
        finally:
            runner.run(connection.close())
