"""Cost: what one job writes, takes and leaves behind, and what a million in a queue take."""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import Struct

from bench.fill import Filling, fill
from bench.fleet import Fleet, fleet
from bench.scale import idle_workers
from bench.stage import Stage
from bench.usage import Counters, counters, cpu_s, memory_mb
from longshore.model.job import JobState

WARM_UP = 1_000


class PerJob(Struct, frozen=True):
    """One no-op job on PostgreSQL: what the database counted, and CPU in microseconds."""

    jobs: int
    store: Counters
    dispatcher_us: float
    workers_us: float
    postgres_us: float
    client_us: float


class Queued(Struct, frozen=True):
    """A dispatcher's memory with so many jobs queued and so many workers connected."""

    jobs: int
    workers: int
    memory_mb: float
    peak_mb: float
    by_client: bool


class Cost(Struct, frozen=True):
    """Of one job, and of many that wait."""

    per_job: PerJob
    queued: Queued


def measure(stage: Stage) -> Cost:
    """Both, on PostgreSQL."""
    with stage.fresh() as url:
        per_job = _per_job(stage, url)
    with stage.fresh() as url:
        queued = _queued(stage, url)
    return Cost(per_job, queued)


def _per_job(stage: Stage, url: str) -> PerJob:
    """Counted from before the fleet starts until it is gone: only then has every backend told."""
    jobs = stage.sizes.cost_jobs
    before = counters(url)
    with fleet(url, stage.folder) as ours:
        ours.run(WARM_UP)
        spent = _cpu_us(stage, ours, jobs)
    per_job = PerJob(jobs, counters(url).since(before, jobs + WARM_UP), *spent)
    stage.say(
        f"a job: {per_job.store.wal_bytes:,.0f} bytes of WAL, {per_job.store.writes:.2f} rows "
        f"written, {per_job.dispatcher_us:.0f} µs of the dispatcher's CPU"
    )
    return per_job


def _cpu_us(stage: Stage, ours: Fleet, jobs: int) -> list[float]:
    """Microseconds of CPU a job: dispatcher's, workers', PostgreSQL's, client's."""
    groups = [
        [process.pid for process in ours.dispatchers],
        [process.pid for process in ours.workers],
        [stage.server.pid or 0],
        [client.pid for client in ours.clients],
    ]
    used = [cpu_s(pids) for pids in groups]
    ours.run(jobs)
    return [(cpu_s(pids) - was) / jobs * 1e6 for pids, was in zip(groups, used, strict=True)]


def _queued(stage: Stage, url: str) -> Queued:
    sizes = stage.sizes
    if not sizes.queue_by_client:
        fill(url, Filling("queued", JobState.READY, sizes.queued, "unserved", "unserved"))
    with fleet(url, stage.folder, workers=0) as ours:
        [dispatcher] = ours.dispatchers
        if sizes.queue_by_client:
            ours.clients[0].ask(do="queue", jobs=sizes.queued)
        with idle_workers(dispatcher.facts["backend"], sizes.queued_workers):
            time.sleep(sizes.watch_s)
            memory, peak = memory_mb(dispatcher.pid), _peak_mb(dispatcher.pid)
    stage.say(f"{sizes.queued:,} jobs queued, {sizes.queued_workers:,} workers: {memory:.0f} MB")
    return Queued(sizes.queued, sizes.queued_workers, memory, peak, sizes.queue_by_client)


def _peak_mb(pid: int) -> float:
    """The most memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
