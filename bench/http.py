"""HTTP: how fast a gateway submits, what those cost who wait, and what a flood does to others."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

from msgspec import Struct

from bench.fleet import ANY, Fleet, fleet
from bench.helper import Helper
from bench.pairs import Ratio, ratio_of
from bench.stage import Stage
from bench.usage import cpu_s
from longshore.testing.processes import Process

CONNECTIONS = 32
BATCH = 100
WAITING = 1_000
FLOOD = {"idle": 5_000, "slow": 200, "huge": 4}


class Http(Struct, frozen=True):
    """What one gateway did, on PostgreSQL."""

    single_per_s: float
    """Requests with one job each."""
    batched_per_s: float
    """Jobs, in requests of a hundred."""
    gateway_us: float
    """CPU of the gateway for a request with one job."""
    dispatcher_us: float
    idle_percent: float
    """CPU of the gateway while nobody asks."""
    waiting_percent: float
    """CPU of the gateway while a thousand long polls and a thousand streams wait."""
    waiting_dispatcher_percent: float
    flooded: Ratio
    """ZeroMQ's throughput beside a flood on the gateway, of that without."""
    lost: int = 0
    """Workers that missed their lease in the flood."""


@contextmanager
def gateway(stage: Stage, ours: Fleet) -> Iterator[Process]:
    """A gateway before the first dispatcher of a fleet."""
    words = ["--connect", ours.dispatchers[0].facts["frontend"], "--http", ANY]
    with Process("gateway", *words, log=stage.folder / "gateway.log") as process:
        yield process.ready()


def measure(stage: Stage) -> Http:
    """Submits without workers, then those who wait, then a flood beside a fleet that works."""
    with (
        stage.fresh() as url,
        fleet(url, stage.folder, workers=0) as ours,
        gateway(stage, ours) as process,
        Helper("http_client", process.facts["http"]) as client,
    ):
        single, us = _submit(stage, ours, process, client)
        batched = _batched(stage, client)
        waiting = _waiting(stage, ours, process, client)
    found = Http(single, batched, *us, *waiting, *_flood(stage))
    stage.say(
        f"{single:,.0f} requests a second, {batched:,.0f} jobs in batches; waiting "
        f"{found.waiting_percent:.1f} % of a core; {found.flooded.median:.2f} beside a flood, "
        f"{found.lost} workers lost"
    )
    return found


def _submit(
    stage: Stage, ours: Fleet, process: Process, client: Helper
) -> tuple[float, tuple[float, float]]:
    requests = stage.sizes.http_requests
    client.ask(do="submit", requests=requests // 4, jobs=1, connections=CONNECTIONS)
    pids = (process.pid, ours.dispatchers[0].pid)
    before = [cpu_s([pid]) for pid in pids]
    rates = []
    for _ in range(stage.sizes.pairs):
        took = client.ask(do="submit", requests=requests, jobs=1, connections=CONNECTIONS)
        rates.append(requests / took)
    all_requests = requests * stage.sizes.pairs
    gateway_us, dispatcher_us = (
        (cpu_s([pid]) - then) / all_requests * 1e6 for pid, then in zip(pids, before, strict=True)
    )
    return float(statistics.median(rates)), (gateway_us, dispatcher_us)


def _batched(stage: Stage, client: Helper) -> float:
    requests = stage.sizes.http_requests // 20
    rates = []
    for _ in range(stage.sizes.pairs):
        took = client.ask(do="submit", requests=requests, jobs=BATCH, connections=CONNECTIONS)
        rates.append(requests * BATCH / took)
    return float(statistics.median(rates))


def _waiting(
    stage: Stage, ours: Fleet, process: Process, client: Helper
) -> tuple[float, float, float]:
    """Each of them waits for another job. Nobody runs them."""
    pids = (process.pid, ours.dispatchers[0].pid)
    idle, _ = _used(stage, pids)
    for number in range(1, WAITING + 1):
        path = f"/dispatcher/jobs/{number}"
        client.ask(do="wait", path=f"{path}/events", number=1)
    for number in range(1, WAITING + 1):
        path = f"/dispatcher/jobs/{number}"
        client.ask(do="wait", path=f"{path}/result?wait_s=60", number=1)
    time.sleep(stage.sizes.watch_s / 2)
    return idle, *_used(stage, pids)


def _used(stage: Stage, pids: tuple[int, int]) -> tuple[float, float]:
    """How much of a core each process takes."""
    before = [cpu_s([pid]) for pid in pids]
    time.sleep(stage.sizes.watch_s)
    one, other = (
        100 * (cpu_s([pid]) - then) / stage.sizes.watch_s
        for pid, then in zip(pids, before, strict=True)
    )
    return one, other


def _flood(stage: Stage) -> tuple[Ratio, int]:
    """Jobs a second over ZeroMQ, with a flood and without, in turn; how many workers it cost."""
    with (
        stage.fresh() as url,
        fleet(url, stage.folder) as ours,
        gateway(stage, ours) as process,
        Helper("http_client", process.facts["http"]) as client,
    ):
        jobs = ours.warm(stage.sizes)
        calm, flooded = [], []
        for _ in range(stage.sizes.pairs):
            calm.append(ours.run(jobs))
            client.ask(do="flood", **FLOOD)
            time.sleep(stage.sizes.flood_s)
            flooded.append(ours.run(jobs))
            client.ask(do="end_flood")
        return ratio_of(flooded, calm), _lost(process)


def _lost(process: Process) -> int:
    """How many workers are not alive. Nobody has stopped one."""
    with urlopen(f"{process.facts['http']}/dispatcher/workers/", timeout=60) as answer:
        return sum(not worker["alive"] for worker in json.load(answer)["workers"])
