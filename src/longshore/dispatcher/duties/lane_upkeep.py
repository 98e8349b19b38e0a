"""Lane upkeep: learns of lanes that no hint told of, and forgets those that hold no job."""

from __future__ import annotations

import logging

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.lane_limits import LaneLimits
from longshore.model.worker import Lane

log = logging.getLogger("longshore.dispatcher")


class LaneUpkeep:
    """Keeps the dispatcher's lanes as the store has them."""

    def __init__(
        self, environment: Environment, scheduler: Scheduler, commits: Commits, limits: LaneLimits
    ) -> None:
        self._store, self._settings = environment.store, environment.settings
        self._scheduler = scheduler
        self._commits = commits
        self._limits = limits
        self._is_full = False

    async def look(self) -> None:
        """Marks every lane of the store as possibly ready, whatever the hints said."""
        self._scheduler.add_lanes(await self._lanes())
        self._warn_if_full()
        self._scheduler.lanes.mark_all()
        self._commits.wake()

    async def forget(self) -> None:
        """Makes the store and this dispatcher forget lanes without jobs."""
        await self._store.forget_lanes()
        self._scheduler.sync_lanes(await self._lanes())
        self._limits.lanes_changed()
        self._warn_if_full()

    async def _lanes(self) -> list[Lane]:
        most = self._settings.max_lanes
        served = self._limits.served() if len(self._scheduler.lanes) >= most else ()
        return await self._store.lanes(most, served)

    def _warn_if_full(self) -> None:
        """Warns once when the lanes reach their limit."""
        count, limit = len(self._scheduler.lanes), self._settings.max_lanes
        was_full, self._is_full = self._is_full, count >= limit
        if self._is_full and not was_full:
            log.warning(
                "there are %d different (queue, kind, target), and max_lanes is %d: dispatchers "
                "refuse jobs with another one that no worker serves, and let those wait that an "
                "application enqueued by itself; cancel and prune jobs that no worker serves, "
                "put what varies into the arguments, or raise max_lanes",
                count,
                limit,
            )
