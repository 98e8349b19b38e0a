"""Limits: lets jobs go before claims again that wait behind keys which have room by now.

Ends do so for their own keys. This finds all other room: of a lost worker, of a rate, of a rule
that was changed, and what a dispatcher left that died.
"""

from __future__ import annotations

from typing import Final

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment

SOONEST_S: Final = 0.005
"""A rate that has room again sooner than this is looked at then."""


class LimitUpkeep:
    """Looks at the keys behind which jobs wait, a piece of them at a time."""

    def __init__(
        self, environment: Environment, scheduler: Scheduler, commits: Commits, alarm: Alarm
    ) -> None:
        self._store, self._clock = environment.store, environment.clock
        self._scheduler = scheduler
        self._commits = commits
        self._alarm = alarm
        self._after = ""
        self._opens_at = float("inf")
        """When the first rate has room, of the keys that were looked at so far."""

    async def open(self) -> None:
        """Looks at the next keys; after the last, sets the alarm for the first with room."""
        opened = await self._store.open_limits(self._after)
        if not self._after:
            self._opens_at = float("inf")
        if opened.next_s is not None:
            self._opens_at = min(self._opens_at, self._clock.now() + opened.next_s)
        self._after = opened.after
        known = self._scheduler.lanes.known(opened.ready)
        if known:
            self._scheduler.lanes.mark_ready(known)
            self._commits.wake()
        if opened.after:
            self._alarm.set_in(0)
        elif self._opens_at < float("inf"):
            self._alarm.set_in(max(SOONEST_S, self._opens_at - self._clock.now()))
