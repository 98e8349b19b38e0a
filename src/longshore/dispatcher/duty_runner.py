"""Runs a dispatcher's duties: what it does because time passed.

Each duty is a loop of its own that survives outages of the store. Duties have their own connection
to the store, so they never wait behind the commits. Chance varies the intervals a little, so that
many dispatchers do not do one thing at the same moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import assert_never

from msgspec import Struct

from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.own_lease import OwnLease

Work = Callable[[], Awaitable[None]]


class Every(Struct, frozen=True):
    """Work that repeats after so many seconds; with `at_once` it starts without waiting."""

    seconds: float
    work: Work
    at_once: bool = False


class WhenRung(Struct, frozen=True):
    """Work to do when an alarm rings, and after `at_most_s` even if it does not."""

    alarm: Alarm
    at_most_s: float
    work: Work


class Always(Struct, frozen=True):
    """Work that never ends, and handles outages itself."""

    work: Work


Duty = Every | WhenRung | Always


class DutyRunner:
    """Runs duties."""

    def __init__(self, random: Random, own_lease: OwnLease) -> None:
        self._random = random
        self._own_lease = own_lease

    async def run(self, duty: Duty) -> None:
        """Does one duty until it is cancelled. Raises what the duty raises, except outages."""
        match duty:
            case Every():
                await self._repeat(duty)
            case WhenRung():
                while True:
                    await duty.alarm.wait(duty.at_most_s * self._random.uniform(0.8, 1.0))
                    await self._own_lease.surviving(duty.work)
            case Always():
                await duty.work()
            case _:
                assert_never(duty)

    async def _repeat(self, duty: Every) -> None:
        if duty.at_once:
            await self._own_lease.surviving(duty.work)
        while True:
            await asyncio.sleep(duty.seconds * self._random.uniform(0.8, 1.0))
            await self._own_lease.surviving(duty.work)


def in_turn(*works: Work) -> Work:
    """Several pieces of work as one, one after the other."""

    async def work() -> None:
        for one in works:
            await one()

    return work
