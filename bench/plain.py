"""Plain functions: how many a second, and how much of the processes and threads they leave idle.

- Functions that do nothing, in processes and in threads, beside the plain functions of the peers,
  in rounds as in `beside`.
- Functions that block, that compute, and of mixed lengths, on a warm fleet on PostgreSQL, beside
  the time that they would take if nothing had to be submitted, handed out or recorded.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from bench.beside import PeerRuns, peer_turns
from bench.fleet import PLAIN_APP, THREADS, Fleet, fleet
from bench.helper import Helper
from bench.pairs import Ratio, interleave, ratio_of
from bench.peers.table import PEERS
from bench.stage import STORES, Stage

POOLS = {"processes": "noop_process", "threads": "noop_thread"}
WORKERS = 2
CORES = 2
BLOCK_S = 0.05
BURN_S = 0.02
SHORT_S, LONG_S, LONG_SHARE = 0.001, 2.0, 0.05
MIXED_PROCESSES = 4
WARM_UP = 200


class Rates(Struct, frozen=True):
    """Jobs per second of plain functions that do nothing, and the peers of the same rounds."""

    store: str
    pool: str
    jobs: int
    rates: list[float]
    peers: list[PeerRuns]

    @property
    def jobs_per_s(self) -> float:
        """The median of our runs."""
        return statistics.median(self.rates)


class Plain(Struct, frozen=True):
    """What was measured.

    `blocking` and `mixed` are seconds beside the ideal ones. `computing` is jobs per second beside
    those of bare processes.
    """

    rates: list[Rates]
    blocking: Ratio
    computing: Ratio
    mixed: Ratio


def measure(stage: Stage, names: Sequence[str] = ()) -> Plain:
    """All of it."""
    rates = _rates(stage, names)
    with _warm_fleet(stage, workers=1, processes=CORES) as ours:
        computing = _computing(stage, ours)
    with _warm_fleet(stage, workers=WORKERS, processes=MIXED_PROCESSES) as ours:
        blocking, mixed = _blocking(stage, ours), _mixed(stage, ours)
    stage.say(f"blocking: {blocking.median:.2f} of the ideal time ({blocking.one:.2f} s)")
    stage.say(f"computing: {computing.median:.2f} of the ideal throughput")
    stage.say(f"mixed: {mixed.median:.2f} of the ideal time ({mixed.one:.2f} s)")
    return Plain(rates, blocking, computing, mixed)


# doing nothing


def _rates(stage: Stage, names: Sequence[str]) -> list[Rates]:
    jobs = stage.sizes.plain_jobs
    runs: dict[tuple[str, str], list[float]] = {(s, p): [] for s in STORES for p in POOLS}
    with peer_turns(stage, [peer for peer in PEERS if peer.runs_plain], names) as turns:
        for _ in range(stage.sizes.pairs):
            for store in STORES:
                for pool, rate in _of_fleet(stage, store).items():
                    runs[store, pool].append(rate)
            turns.round(jobs)
    return [
        Rates(store, pool, jobs, rates, turns.beside(rates, jobs))
        for (store, pool), rates in runs.items()
    ]


def _of_fleet(stage: Stage, store: str) -> dict[str, float]:
    """Jobs per second in each pool of a fleet just started."""
    with stage.fresh(store) as url, fleet(url, stage.folder, app=PLAIN_APP) as ours:
        found = {
            pool: ours.run(stage.sizes.plain_jobs, kind, described=False)
            for pool, kind in POOLS.items()
        }
    for pool, rate in found.items():
        stage.say(f"longshore, {store}, {pool}: {rate:,.0f} jobs/s")
    return found


# doing something


@contextmanager
def _warm_fleet(stage: Stage, *, workers: int, processes: int) -> Iterator[Fleet]:
    with (
        stage.fresh() as url,
        fleet(url, stage.folder, workers=workers, app=PLAIN_APP, processes=processes) as ours,
    ):
        for kind in POOLS.values():
            ours.run(WARM_UP, kind)
        yield ours


def _blocking(stage: Stage, ours: Fleet) -> Ratio:
    each = [BLOCK_S] * stage.sizes.blocking_jobs
    ideal_s = sum(each) / (WORKERS * THREADS)
    return interleave(stage.sizes.pairs, lambda: ours.work("block", each), lambda: ideal_s)


def _computing(stage: Stage, ours: Fleet) -> Ratio:
    jobs = stage.sizes.computing_jobs
    with ExitStack() as stack:
        bare = [stack.enter_context(Helper("bare")) for _ in range(CORES)]
        rounds = bare[0].ask(do="calibrate", seconds=BURN_S)
        return interleave(
            stage.sizes.pairs,
            lambda: jobs / ours.work("burn", [rounds] * jobs),
            lambda: jobs / _bare_seconds(bare, jobs, rounds),
        )


def _bare_seconds(bare: Sequence[Helper], jobs: int, rounds: int) -> float:
    """How long bare processes take for the jobs, all at once."""
    for helper in bare:
        helper.tell(do="run", jobs=jobs // len(bare), rounds=rounds)
    times = [helper.answer() for helper in bare]
    return float(max(time[1] for time in times) - min(time[0] for time in times))


def _mixed(stage: Stage, ours: Fleet) -> Ratio:
    """Each pair has a list of its own."""
    lists = [_mixed_lengths(stage.sizes.mixed_jobs, seed) for seed in range(stage.sizes.pairs)]
    ours.work("sleep", [SHORT_S] * WARM_UP)
    seconds = [ours.work("sleep", each) for each in lists]
    return ratio_of(seconds, [scheduled_s(each, WORKERS * MIXED_PROCESSES) for each in lists])


def _mixed_lengths(jobs: int, seed: int) -> list[float]:
    long = math.ceil(jobs * LONG_SHARE)
    each = [LONG_S] * long + [SHORT_S] * (jobs - long)
    random.Random(seed).shuffle(each)
    return each


def scheduled_s(each: Sequence[float], processes: int) -> float:
    """When the last job ends if each begins, in this order, as soon as a process is free."""
    free_at = [0.0] * processes
    for seconds in each:
        heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)
