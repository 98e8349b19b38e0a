"""Limits: lets jobs go before claims again that wait behind keys which have room by now.

Ends do so for their own keys. This finds all other room: of a lost worker, of a rate, of a rule
that was changed, and what a dispatcher left that died.
"""

from __future__ import annotations

from typing import Final

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.commits import Commits
from longshore.ports import Store

SOONEST_S: Final = 0.005
"""A rate that has room again sooner than this is looked at then."""


class LimitUpkeep:
    """Looks at the keys behind which jobs wait, a piece of them at a time."""

    def __init__(self, store: Store, scheduler: Scheduler, commits: Commits, alarm: Alarm) -> None:
        self._store = store
        self._scheduler = scheduler
        self._commits = commits
        self._alarm = alarm
        self._after = ""

    async def open(self) -> None:
        """Looks at the next keys, and sets the alarm for those that have room soon."""
        opened = await self._store.open_limits(self._after)
        self._after = opened.after
        known = self._scheduler.lanes.known(opened.ready)
        if known:
            self._scheduler.lanes.mark_ready(known)
            self._commits.wake()
        if opened.after:
            self._alarm.set_in(0)
        elif opened.next_s is not None:
            self._alarm.set_in(max(SOONEST_S, opened.next_s))
