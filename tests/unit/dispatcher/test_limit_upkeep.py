"""Upkeep of limits: of all the keys that jobs wait for, the first rate that has room counts."""

from __future__ import annotations

from random import Random
from typing import cast
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.core.admission import Patience
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.limits import LimitUpkeep
from longshore.dispatcher.environment import Environment
from longshore.model.limits import LimitsOpened
from longshore.testing.memory import MemoryStore
from longshore.testing.virtual import VirtualClock, run_virtually

NOBODY = cast(Commits, None)
"""Nothing becomes ready here, so nobody is woken."""


class InPages(MemoryStore):
    """A store with two pages of keys; the first rate with room is in the first of them."""

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        return LimitsOpened(next_s=60.0) if after else LimitsOpened(next_s=5.0, after="t=a")


def test_the_alarm_rings_for_the_first_rate_of_all_pages() -> None:
    async def play() -> None:
        clock = VirtualClock()
        alarm = Alarm(clock)
        here = Environment(UUID(int=1), InPages(), DispatcherSettings(), clock, Random(1))
        upkeep = LimitUpkeep(here, Scheduler(10, Patience(0.0, 0.0)), NOBODY, alarm)
        for _ in range(2):  # a second round knows nothing of the first
            began = clock.now()
            await upkeep.open()
            await alarm.wait(600.0)
            assert clock.now() == began, "the next page follows at once"
            await upkeep.open()
            await alarm.wait(600.0)
            assert clock.now() - began == 5.0

    run_virtually(play())
