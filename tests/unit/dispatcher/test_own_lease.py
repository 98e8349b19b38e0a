"""Alarms ring once, in time, and can be cancelled at any moment."""

import asyncio

import pytest

from longshore.dispatcher.alarms import Alarm
from longshore.testing.virtual import VirtualClock, run_virtually


def test_an_alarm_rings_at_the_earliest_time_it_was_set_to() -> None:
    async def story() -> None:
        clock = VirtualClock()
        alarm = Alarm(clock)
        alarm.set_in(30.0)
        waiting = asyncio.create_task(alarm.wait(60.0))
        await asyncio.sleep(0)
        alarm.set_in(10.0)
        await waiting
        assert clock.now() == pytest.approx(10.0)
        await alarm.wait(5.0)
        assert clock.now() == pytest.approx(15.0)

    run_virtually(story())


def test_who_waits_can_be_cancelled_even_at_the_moment_it_is_set() -> None:
    """A dispatcher that stops must not wait for a duty that missed the cancellation."""

    async def story() -> None:
        alarm = Alarm(VirtualClock())
        waiting = asyncio.create_task(alarm.wait(60.0))
        await asyncio.sleep(0)
        alarm.set_in(50.0)
        for _ in range(3):
            await asyncio.sleep(0)
            alarm.set_in(40.0)
        alarm.set_in(30.0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 1.0)

    run_virtually(story())
