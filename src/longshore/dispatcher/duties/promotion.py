"""Promotion: makes delayed jobs ready when they are due."""

from __future__ import annotations

from longshore.core.lanes import NOT_RUN_LANES
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.commits import Commits
from longshore.ports import Store


async def promote(
    store: Store, scheduler: Scheduler, commits: Commits, due: Alarm, groups: Alarm
) -> None:
    """Makes delayed jobs ready that are due, and sets the alarm for the next ones."""
    promoted = await store.promote()
    if not NOT_RUN_LANES.isdisjoint(promoted.lanes):
        groups.set_in(0)
    if promoted.count:
        # There may be any number of lanes past the limit, so only known ones are marked.
        scheduler.lanes.mark_ready(scheduler.lanes.known(promoted.lanes))
        commits.wake()
    if promoted.next_s is not None:
        due.set_in(max(0.0, promoted.next_s))
