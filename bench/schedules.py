"""Schedules: many in a store, some of which are due in the same second, and who submits them.

Real dispatchers look, decide, record and submit; workers run the jobs. A round is over when all of
its jobs are in the store, as another process sees them. In the end all is read back: each nominal
time must have one fire, and each fire one job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from zoneinfo import ZoneInfo

from msgspec import Struct

from bench.fleet import fleet
from bench.limit_side import open_store
from bench.schedule_fill import ZONE, daily, fill, jobs_made, wrong
from bench.stage import Stage
from longshore.model.schedule import Schedule

BEFORE_S = 5.0
"""So long before the first round the schedules that are due begin to be put there."""
SEEN_S = 1.5
"""So long before it they must be there: dispatchers look at least every second."""
EACH_S = 6.0
"""From one round to the next."""
PATIENCE_S = 60.0
LOOK_S = 0.05


class Rounds(Struct, frozen=True):
    """So many schedules on one store, of which `due` were due in the same second, again and again.

    `all_s` are the seconds from that second to the last of the jobs, of each round. `wrong` counts
    times without exactly one job, and jobs without a time. A look that finds nothing takes
    `idle_ms`.
    """

    store: str
    dispatchers: int
    schedules: int
    due: int
    all_s: list[float]
    wrong: int
    idle_ms: float


def measure(stage: Stage) -> list[Rounds]:
    """Both stores; PostgreSQL also with two dispatchers."""
    cases = [*(("postgres", number) for number in stage.sizes.dispatchers), ("sqlite", 1)]
    return [_rounds(stage, store, dispatchers) for store, dispatchers in cases]


def _rounds(stage: Stage, store: str, dispatchers: int) -> Rounds:
    sizes = stage.sizes
    with stage.fresh(store) as url:
        now = datetime.now(ZoneInfo(ZONE))
        fill(url, daily(now + timedelta(hours=12), sizes.schedules - sizes.pairs * sizes.due, now))
        idle_ms = asyncio.run(_idle_ms(url))
        with fleet(url, stage.folder, dispatchers=dispatchers):
            rounds = list(_due_rounds(sizes.pairs, sizes.due))
            fill(url, [one for _, some in rounds for one in some])
            if time.time() > rounds[0][0].timestamp() - SEEN_S:
                raise RuntimeError(f"to put the schedules took too long for {BEFORE_S:g} s")
            all_s = [
                _until_made(url, at, place * sizes.due)
                for place, (at, _) in enumerate(rounds, start=1)
            ]
        found = wrong(url, [(one.new.id, at) for at, some in rounds for one in some])
    many = "1 dispatcher" if dispatchers == 1 else f"{dispatchers} dispatchers"
    stage.say(
        f"{store}, {many}, {sizes.schedules:,} schedules: {sizes.due:,} due at once were submitted "
        f"within {median(all_s):.2f} s ({min(all_s):.2f} to {max(all_s):.2f}), {found} not once; "
        f"{idle_ms:.1f} ms to find none"
    )
    return Rounds(store, dispatchers, sizes.schedules, sizes.due, all_s, found, idle_ms)


def _due_rounds(rounds: int, due: int) -> Iterator[tuple[datetime, Sequence[Schedule]]]:
    """When each round is, and its schedules."""
    now = datetime.now(ZoneInfo(ZONE))
    first = (now + timedelta(seconds=BEFORE_S)).replace(microsecond=0)
    for number in range(rounds):
        at = first + timedelta(seconds=number * EACH_S)
        yield at.astimezone(UTC), daily(at, due, now)


def _until_made(url: str, at: datetime, goal: int) -> float:
    """Seconds from a time until so many jobs are in the store."""
    time.sleep(max(0.0, at.timestamp() - time.time()))
    while jobs_made(url) < goal:
        if time.time() > at.timestamp() + PATIENCE_S:
            raise RuntimeError(f"{jobs_made(url):,} of {goal:,} jobs were submitted")
        time.sleep(LOOK_S)
    return time.time() - at.timestamp()


async def _idle_ms(url: str) -> float:
    store = open_store(url)
    await store.open()
    try:
        times = []
        for _ in range(10):
            began = time.perf_counter()
            assert not (await store.due_schedules()).examined
            times.append((time.perf_counter() - began) * 1e3)
        return median(times)
    finally:
        await store.close()
