"""Sweep: jobs that no live worker owns, because a harvest died half-way."""

from __future__ import annotations

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.commits import Commits
from longshore.ports import Store


async def sweep(store: Store, crash_limit: int, scheduler: Scheduler, commits: Commits) -> None:
    """Frees jobs that are owned by a worker that is not alive."""
    harvested = await store.sweep(crash_limit)
    scheduler.lanes.mark_ready(harvested.lanes)
    if harvested.requeued:
        commits.wake()
