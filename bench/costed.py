"""Runs of jobs with what they cost: on a busy machine the CPU says more than the speed."""

from __future__ import annotations

from bench.fleet import Fleet
from bench.stage import Stage
from bench.usage import backends_cpu_s, cpu_s


def costed_run(stage: Stage, ours: Fleet, jobs: int, kind: str = "noop") -> tuple[float, float]:
    """Jobs a second, and microseconds of CPU that each takes in all processes but the client's."""
    before = _used_s(stage, ours)
    rate = ours.run(jobs, kind)
    return rate, (_used_s(stage, ours) - before) / jobs * 1e6


def _used_s(stage: Stage, ours: Fleet) -> float:
    pids = [process.pid for process in [*ours.dispatchers, *ours.workers]]
    return cpu_s(pids) + backends_cpu_s(stage.server.pid or 0, ours.url.rpartition("/")[2])
