"""Groups: has the store do what ends, cancels and losses leave to do for groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final
from uuid import UUID

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.model.job import Ended
from longshore.ports import Settled

log = logging.getLogger("longshore.dispatcher")

AGAIN_S: Final = 1.0
"""When to ask a store again that did not answer."""
HELD_S: Final = 0.05
"""By then another dispatcher has released the rows that both wanted."""
TAKEN_WITHIN_S: Final = 5.0
"""For so long a pause or a cancel waits for its sweep: less than clients wait for an answer."""


class GroupUpkeep:
    """Settles groups: those of which it was told at once, and every group now and then.

    A dispatcher that died may have left ends that reached nobody.
    """

    def __init__(
        self,
        environment: Environment,
        scheduler: Scheduler,
        commits: Commits,
        alarms: Alarms,
        tell: Callable[[Ended], None],
        learn_lanes: Callable[[], Awaitable[None]],
    ) -> None:
        _, self._store, self._settings, self._clock, _ = environment
        self._scheduler = scheduler
        self._commits = commits
        self._alarms = alarms
        self._tell = tell
        self._learn_lanes = learn_lanes
        self._told: set[UUID] = set()
        self._stepped = asyncio.Event()
        """Set when this dispatcher has settled something."""
        self._look_at_all = float("-inf")
        """When to look at every group again."""

    def ring(self, groups: Collection[UUID] = ()) -> None:
        """These groups have something to do; without any, some group may have."""
        self._told.update(groups)
        if not groups:
            self._look_at_all = float("-inf")
        self._alarms.groups.set_in(0)

    async def take_hold(self, ref: UUID | int) -> None:
        """Returns when a group's new state holds for all of its jobs, or after `TAKEN_WITHIN_S`.

        After that time the sweep goes on without whoever waits here.
        """
        self.ring()
        until = self._clock.now() + TAKEN_WITHIN_S
        while await self._store.is_sweeping(ref) and self._clock.now() < until:
            self._stepped.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_S):  # other dispatchers sweep too
                    await self._stepped.wait()

    async def settle(self) -> None:
        """Settles until nothing is left to do, or another dispatcher does it."""
        now, poll_s = self._clock.now(), self._settings.group_poll_s
        most_jobs = self._settings.max_group_jobs
        groups, self._told = frozenset(self._told), set()
        if not groups or now >= self._look_at_all:
            groups, self._look_at_all = frozenset(), now + poll_s
        try:
            while True:
                settled = await self._store.settle(groups, max_group_jobs=most_jobs)
                self._deliver(settled)
                self._stepped.set()
                if len(self._scheduler.lanes.known(settled.ready)) < len(settled.ready):
                    # The elements of a map may be the first jobs of their lane.
                    await self._learn_lanes()
                if not settled.groups:
                    return
                if settled.groups == groups and not _did_anything(settled):
                    self._told.update(groups)
                    self._alarms.groups.set_in(HELD_S)
                    return
                groups = settled.groups
        except BaseException:
            # The answer may be lost: the next time every group counts.
            self._look_at_all = float("-inf")
            self._alarms.groups.set_in(AGAIN_S)
            raise

    async def cancel_abandoned(self) -> None:
        """Cancels groups whose submitters did not send the rest."""
        if self._settings.group_staging_s <= 0:
            return
        groups = await self._store.cancel_abandoned(self._settings.group_staging_s)
        if groups:
            text = "cancelled %d groups whose submitters did not send the rest; the first is %s"
            log.warning(text, len(groups), groups[0])
            self.ring(groups)

    def _deliver(self, settled: Settled) -> None:
        for ended in settled.ended:
            self._tell(ended)
        self._commits.settled(settled)
        if settled.ready:
            self._scheduler.lanes.mark_ready(self._scheduler.lanes.known(settled.ready))
            self._commits.wake()
        if settled.watched:
            self._alarms.watchers.set_in(0)
        if settled.delayed:
            self._alarms.due.set_in(0)
        if settled.groups:
            # A group that is being cancelled may have jobs that run.
            self._alarms.cancels.set_in(0)


def _did_anything(settled: Settled) -> bool:
    return bool(settled.ready or settled.ended or settled.delayed)
