"""Schedules: many in a store, some of them due in the same second; until all are submitted.

    python -m bench.schedules sqlite:///bench.db --schedules 100000 --due 1000

It goes the way of a dispatcher's duty (look, decide, record, submit, tell) on one store, without
workers. The store must be new: the bench fills it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import timedelta
from uuid import uuid4

from msgspec import structs

from longshore.core.schedules import decide, read_body
from longshore.model.job import Submission
from longshore.model.schedule import (
    Decision,
    FireResult,
    NewSchedule,
    PendingFire,
    Rules,
    Schedule,
    Spec,
    Timing,
)
from longshore.ports import Batch, Store
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore

_AT_ONCE = 64


async def measure(store: Store, schedules: int, due: int) -> tuple[float, float]:
    """How long it takes to find that nothing is due, and to submit all that is, in seconds."""
    made = await _fill(store, schedules)
    began = time.perf_counter()
    assert not (await store.due_schedules()).examined
    idle_s = time.perf_counter() - began
    await store.record_fires([_overdue(one) for one in made[:due]])
    began = time.perf_counter()
    submitted = 0
    while found := (await store.due_schedules()).examined:
        decisions = [decide(one) for one in found]
        counts = await store.record_fires(decisions)
        fires = [
            PendingFire(one.schedule, made.fire.nominal_at, made.body)
            for one, counts_too in zip(decisions, counts, strict=True)
            if counts_too
            for made in one.made
            if made.fire.pending
        ]
        jobs = [job for fire in fires if (job := read_body(fire.body).job) is not None]
        await store.pump(uuid4(), Batch(submits=jobs))
        await store.fires_submitted([FireResult(one.schedule, one.nominal_at) for one in fires])
        submitted += len(jobs)
    assert submitted == due, f"{submitted:,} of {due:,} were submitted"
    return idle_s, time.perf_counter() - began


async def _fill(store: Store, count: int) -> list[Schedule]:
    timing = Timing((Spec(cron="0 2 * * *", tz="Europe/Vienna"),))
    job = Submission(uuid4(), "report", b"\x80")
    rules = Rules(window_s=1e9)
    found: list[Schedule] = []
    for first in range(0, count, _AT_ONCE):
        news = [
            NewSchedule(uuid4(), f"s{place:07}", timing, rules, job)
            for place in range(first, min(count, first + _AT_ONCE))
        ]
        answers = await asyncio.gather(*(store.put_schedule(new) for new in news))
        found += [one for one in answers if isinstance(one, Schedule)]
    return found


def _overdue(one: Schedule) -> Decision:
    """Its last time is not decided."""
    past = one.created_at - timedelta(days=1)
    state = structs.replace(one.state, decided_to=past)
    return Decision(one.new.id, one.version, state, past)


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--due", type=int, default=1_000)
    given = parser.parse_args()
    is_file = given.store.startswith("sqlite:///")
    path = given.store.removeprefix("sqlite:///")
    store: Store = SqliteStore(path) if is_file else PostgresStore(given.store)
    await store.migrate()
    await store.open()
    try:
        idle_s, due_s = await measure(store, given.schedules, given.due)
    finally:
        await store.close()
    print(f"{given.schedules:,} schedules: {idle_s * 1e3:.1f} ms to find that none is due")
    print(f"{given.due:,} due at once: {due_s:.2f} s until all are submitted")


if __name__ == "__main__":
    asyncio.run(_main())
