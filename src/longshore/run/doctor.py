"""The doctor: examines a store for what should not be, and heals what it can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.examining import EXAMINED
from longshore.core.lanes import serves
from longshore.core.lifecycle import OWNED
from longshore.model.finding import Finding, Trouble
from longshore.model.group import NOT_RUN, Group, GroupFilter
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.worker import Lane
from longshore.ports import Store

PAGE: Final = 1000
CRASH_LIMIT: Final = DispatcherSettings().crash_limit


async def examine(
    store: Store, *, repair: bool = False, crash_limit: int = CRASH_LIMIT
) -> list[Finding]:
    """All that is wrong. With `repair`, counts are made right, and jobs of dead workers freed."""
    found: list[Finding] = []
    async for group in _live_groups(store):
        found += await store.examine_group(group.id, repair=repair)
    orphans = await _without_owner(store)
    if repair and orphans:
        orphans = await _freed(store, orphans, crash_limit)
    return [*found, *orphans, *await _unserved(store)]


async def _freed(store: Store, orphans: list[Finding], crash_limit: int) -> list[Finding]:
    """Frees the jobs of workers that are not alive, as dispatchers do; answers what was found."""
    while (freed := await store.sweep(crash_limit)).requeued or freed.ended:
        pass
    left = {finding.job for finding in await _without_owner(store)}
    return [structs.replace(one, repaired=one.job not in left) for one in orphans]


async def _live_groups(store: Store) -> AsyncIterator[Group]:
    wanted = GroupFilter(states=EXAMINED, limit=PAGE)
    while page := await store.groups(wanted):
        for group in page:
            yield group
        wanted = structs.replace(wanted, before=page[-1].number)


async def _jobs(store: Store, wanted: JobFilter) -> AsyncIterator[Job]:
    wanted = structs.replace(wanted, limit=PAGE)
    while True:
        page = await store.jobs(wanted)
        for job in page.jobs:
            yield job
        before = page.stopped_at
        if before is None:
            if len(page.jobs) < PAGE:
                return
            before = page.jobs[-1].number
        wanted = structs.replace(wanted, before=before)


async def _without_owner(store: Store) -> list[Finding]:
    # Jobs first: a worker that joins in between must not look dead.
    jobs = [job async for job in _jobs(store, JobFilter(states=tuple(sorted(OWNED))))]
    alive = {worker.info.id for worker in await store.workers() if worker.alive}
    return [
        Finding(
            Trouble.OWNER,
            f"job {job.number} ({job.kind}) is {job.state} on worker {job.worker}, which is not "
            "alive; dispatchers free such jobs every sweep_s",
            job.group,
            job.id,
        )
        for job in jobs
        if job.worker not in alive
    ]


async def _unserved(store: Store) -> list[Finding]:
    alive = [worker.info for worker in await store.workers() if worker.alive]
    lanes = [
        lane
        for lane in await store.lanes()
        if lane.kind not in NOT_RUN and not any(serves(one, lane) for one in alive)
    ]
    found = [(lane, await _first_ready(store, lane)) for lane in lanes]
    return [
        Finding(
            Trouble.UNSERVED,
            f"job {job.number} is ready, and no live worker serves kind '{lane.kind}' in queue "
            f"'{lane.queue}'" + (f" for target '{lane.target}'" if lane.target else ""),
            job.group,
            job.id,
        )
        for lane, job in found
        if job is not None
    ]


async def _first_ready(store: Store, lane: Lane) -> Job | None:
    wanted = JobFilter(states=(JobState.READY,), kind=lane.kind, queue=lane.queue)
    async for job in _jobs(store, wanted):
        if job.target == lane.target:
            return job
    return None
