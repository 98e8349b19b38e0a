"""Watchers: has the store tell those who watch jobs and groups of what ended.

A dispatcher that ended a watched job does so at once, and each looks now and then for what others
left.
"""

from __future__ import annotations

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.commits import Commits
from longshore.model.callback import CallbackTerms
from longshore.ports import Store


async def tell_watchers(
    store: Store, scheduler: Scheduler, commits: Commits, alarms: Alarms, callbacks: CallbackTerms
) -> None:
    """Tells some of them.

    The turns of actors that became ready by it, and the callbacks, can be claimed at once.
    """
    told = await store.tell_watchers(callbacks=callbacks)
    if told.ready:
        known = scheduler.lanes.known(told.ready)
        scheduler.lanes.mark_ready(known)
        if len(known) < len(told.ready):
            alarms.lanes.set_in(0)
        commits.wake()
    if told.schedules:
        alarms.schedules.set_in(0)
    if told.more:
        alarms.watchers.set_in(0)
