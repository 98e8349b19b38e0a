"""Fairness: what small tenants wait beside one that floods the lane, and who gets how much.

Jobs are submitted to a store and claimed from it, a slot at a time, with neither dispatcher nor
worker: a job takes one tick, so waits are exact numbers of jobs, however busy the machine is. Then
every other key has jobs that take five times as long, as dispatchers would tell the store: what
each key gets of the time counts, while jobs of all keys wait all the time.

    python -m bench.fairness sqlite:///bench.db --flood 1000000
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from bench.stage import STORES, Stage
from longshore.model.attempt import Attempt
from longshore.model.fair import FairKey, FairUse
from longshore.model.job import Submission
from longshore.model.worker import SessionKey
from longshore.ports import Store
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.builders import Scene, a_job, done, lane

TENANTS = 99
JOBS_OF_EACH = 10
SLOTS = 50
BATCH = 1_000
TIMED = "timed"
LONG_S = 5.0
WAITING = 4
"""So many jobs of each key wait all the time, where some take longer than others."""
SHARE_S = 100.0
"""What each key should get of the time, half of it before the shares count."""


class Shares(Struct, frozen=True):
    """What one store gave: waits are numbers of jobs that were claimed before, at p99.

    `claim_ms` is what one claim and its ends took, without and with the flood behind it. `jain` is
    of jobs that take equally long, `timed_jain` of the time that keys got whose jobs do not.
    """

    store: str
    flood: int
    alone: int
    beside: int
    claim_ms: tuple[float, float]
    keys: int
    jain: float
    timed_keys: int
    timed_jain: float


def measure(stage: Stage) -> list[Shares]:
    """Both kinds of stores."""
    found = []
    for store in STORES:
        with stage.fresh(store) as url:
            shares = asyncio.run(measure_store(url, stage.sizes.flood_jobs, stage.sizes.fair_keys))
        stage.say(
            f"{store}: p99 wait {shares.alone} jobs alone, {shares.beside} beside a flood; "
            f"Jain index {shares.jain:.3f} over {shares.keys:,} keys, "
            f"{shares.timed_jain:.3f} of the time of {shares.timed_keys:,} keys with jobs of "
            "different length"
        )
        found.append(shares)
    return found


async def measure_store(url: str, flood: int, keys: int) -> Shares:
    """All that is measured of one store, which is new."""
    is_file = url.startswith("sqlite:///")
    store: Store = SqliteStore(url.removeprefix("sqlite:///")) if is_file else PostgresStore(url)
    await store.migrate()
    await store.open()
    try:
        scene = Scene(store)
        slot = await scene.attend()
        alone, small_ms = await _waits(scene, slot)
        await _submit(scene, _jobs("flood", flood))
        beside, flood_ms = await _waits(scene, slot)
        jain = await _evenness(scene, slot, keys)
        timed_keys = max(4, keys // 20)
        timed_jain = await _evenness_of_time(scene, slot, timed_keys)
        kind = "sqlite" if is_file else "postgres"
        waits = alone, beside, (small_ms, flood_ms)
        return Shares(kind, flood, *waits, keys, jain, timed_keys, timed_jain)
    finally:
        await store.close()


def _jobs(tenant: str, count: int, kind: str = "work") -> list[Submission]:
    return [a_job(fair=f"tenant={tenant}", kind=kind) for _ in range(count)]


async def _submit(scene: Scene, jobs: Sequence[Submission]) -> None:
    for first in range(0, len(jobs), BATCH):
        await scene.pump(submits=jobs[first : first + BATCH])


async def _waits(scene: Scene, slot: SessionKey) -> tuple[int, float]:
    """The p99 of how many jobs were claimed before each of the small tenants' jobs."""
    mine = [job for at in range(TENANTS) for job in _jobs(f"small-{at}", JOBS_OF_EACH)]
    wanted = {job.id for job in mine}
    await _submit(scene, mine)
    waits: list[int] = []
    served, claims, began = 0, 0, time.perf_counter()
    while wanted:
        taken = await _serve(scene, slot)
        for one in taken:
            if one.id in wanted:
                wanted.remove(one.id)
                waits.append(served)
            served += 1
        claims += 1
    p99 = sorted(waits)[len(waits) * 99 // 100]
    return p99, (time.perf_counter() - began) / claims * 1e3


async def _serve(
    scene: Scene, slot: SessionKey, kind: str = "work", most: int = SLOTS
) -> list[Attempt]:
    claimed = await scene.claim(slot, lane(kind=kind), most=most)
    await scene.pump([done(one) for one in claimed])
    return claimed


async def _evenness(scene: Scene, slot: SessionKey, keys: int) -> float:
    """The Jain index of what keys got that submitted unequally much, halfway through the least."""
    jobs = [
        job for at in range(keys) for job in _jobs(f"key-{at}", JOBS_OF_EACH + at % 7, kind="even")
    ]
    await _submit(scene, jobs)
    served: Counter[str] = Counter()
    while served.total() < keys * JOBS_OF_EACH // 2:
        served.update(one.options.fair for one in await _serve(scene, slot, "even"))
    return jain(served[f"tenant=key-{at}"] for at in range(keys))


async def _evenness_of_time(scene: Scene, slot: SessionKey, keys: int) -> float:
    """The Jain index of the seconds that keys got of which every other has jobs that take long."""
    long = [LONG_S if at % 2 else 1.0 for at in range(keys)]
    await _submit(scene, [job for at in range(keys) for job in _timed_jobs(at, WAITING)])
    served = [0.0] * keys
    for _ in ("until it is known how long jobs take", "then"):
        served = [0.0] * keys
        while sum(served) < keys * SHARE_S / 2:
            # So few of those that wait that it is for the store to choose.
            taken = await _serve(scene, slot, TIMED, min(SLOTS, keys // 2))
            uses = []
            for one in taken:
                at = int(one.options.fair.rpartition("-")[2])
                served[at] += long[at]
                of = FairKey(one.lane, one.priority, one.options.fair)
                uses.append(FairUse(of, 1, long[at]))
            await scene.store.note_use(uses)
            names = (one.options.fair for one in taken)
            again = (int(name.rpartition("-")[2]) for name in names)
            await _submit(scene, [job for at in again for job in _timed_jobs(at, 1)])
    return jain(served)


def _timed_jobs(at: int, count: int) -> list[Submission]:
    return _jobs(f"timed-{at}", count, kind=TIMED)


def jain(shares: Iterable[float]) -> float:
    """1 if all have the same, 1/n if one has all."""
    some = list(shares)
    return sum(some) ** 2 / (len(some) * sum(one * one for one in some))


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--flood", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=10_000)
    given = parser.parse_args()
    found = await measure_store(given.store, given.flood, given.keys)
    print(f"p99 wait of {TENANTS} tenants with {JOBS_OF_EACH} jobs each, in jobs claimed before:")
    print(f"  alone {found.alone}, beside a flood of {found.flood:,}: {found.beside}")
    alone, beside = found.claim_ms
    print(f"a claim of {SLOTS} and its ends: {alone:.1f} ms, beside the flood {beside:.1f} ms")
    print(f"Jain index over {found.keys:,} keys: {found.jain:.4f}")
    print(f"of the time of {found.timed_keys:,} keys with jobs of 1 and {LONG_S:g} s: ", end="")
    print(f"{found.timed_jain:.4f}")


if __name__ == "__main__":
    asyncio.run(_main())
