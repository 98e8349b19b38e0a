"""Many sleeping actors with a timer each: memory, how late timers are, jobs beside none."""

from __future__ import annotations

import time

from msgspec import Struct

from bench import sleepers
from bench.actors import actor_fleet
from bench.costed import costed_run
from bench.fleet import Fleet
from bench.pairs import Ratio, ratio_of
from bench.percentiles import Times, times_of
from bench.stage import STORES, Stage
from bench.usage import memory_mb

HOUR_S = 3600.0
PATIENCE_S = 60.0
"""So long it waits for the first timer at most."""
LOOK_S = 0.2


class Sleeping(Struct, frozen=True):
    """So many actors with a timer each over the next hour; memory in megabytes.

    `memory` and `memory_empty` are those of all dispatchers and workers. Jobs run while all sleep:
    a second beside an empty store, and the CPU that each takes in all processes but the client's.
    """

    store: str
    actors: int
    fired: int
    late: Times | None
    memory: float
    memory_empty: float
    jobs_of_empty: Ratio
    cpu_of_empty: Ratio


def measure(stage: Stage) -> list[Sleeping]:
    """Both kinds of stores."""
    return [_sleeping(stage, store) for store in STORES]


def _sleeping(stage: Stage, store: str) -> Sleeping:
    sizes = stage.sizes
    with stage.fresh(store) as url, stage.fresh(store) as empty_url:
        quiet_s = sizes.quiet_s + 4 * sizes.pairs * sizes.run_s
        due = sleepers.fill(url, sizes.sleepers, HOUR_S, quiet_s)
        with actor_fleet(url, stage) as (ours, _), actor_fleet(empty_url, stage) as (empty, _):
            jobs = empty.warm(sizes)
            ours.run(jobs)
            rates, costs = _beside_empty(stage, ours, empty, jobs)
            time.sleep(max(0.0, due - time.time()) + sizes.watch_s)
            memory, memory_empty = _memory_mb(ours), _memory_mb(empty)
            while not sleepers.late_ms(url, due) and time.time() < due + PATIENCE_S:
                time.sleep(LOOK_S)
        late = sleepers.late_ms(url, due)
    times = times_of(late) if len(late) > 1 else None
    shown = f"p99 {times.p99_ms:,.0f} ms late" if times else "none"
    stage.say(
        f"{store}, {sizes.sleepers:,} sleeping: {len(late):,} timers fired, {shown}; "
        f"{memory:.0f} MB beside {memory_empty:.0f}; jobs {rates.median:.2f} of empty, "
        f"CPU of a job {costs.median:.2f}"
    )
    of_late = len(late), times
    return Sleeping(store, sizes.sleepers, *of_late, memory, memory_empty, rates, costs)


def _beside_empty(stage: Stage, ours: Fleet, empty: Fleet, jobs: int) -> tuple[Ratio, Ratio]:
    """The speed of jobs, and what one costs, in turn with those on an empty store."""
    found: dict[Fleet, list[tuple[float, float]]] = {ours: [], empty: []}
    for pair in range(stage.sizes.pairs):
        for one in (ours, empty) if pair % 2 else (empty, ours):
            found[one].append(costed_run(stage, one, jobs))
    speeds, costs = ([[run[at] for run in runs] for runs in found.values()] for at in (0, 1))
    return ratio_of(*speeds), ratio_of(*costs)


def _memory_mb(ours: Fleet) -> float:
    return sum(memory_mb(process.pid) for process in [*ours.dispatchers, *ours.workers])
