"""Odd clocks: only the store's clock says what is due and what a rate lets begin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from longshore.model.job import JobState, Submission
from longshore.model.limits import JobLimit, Rate
from longshore.model.schedule import Catchup, Fate, Overlap
from longshore.testing.builders import a_job
from longshore.testing.virtual import VirtualClock

from .stage import Stage
from .test_schedules import EVERY_S, a_schedule, fires
from .test_stories import tell

HOUR_S = 3600.0
PACE_S = 10.0
"""A job may begin so often."""


class OddClock(VirtualClock):
    """A clock whose hands are off by so much; its seconds are as long as others'."""

    def __init__(self, off_s: float = 0.0) -> None:
        super().__init__()
        self.off_s = off_s

    def utc(self) -> datetime:
        return super().utc() + timedelta(seconds=self.off_s)


async def with_clocks_apart(stage: Stage) -> None:
    """Two dispatchers: one is an hour ahead of the store, one an hour behind."""
    for name, off_s in (("d1", HOUR_S), ("d2", -HOUR_S)):
        stage.clock = OddClock(off_s)
        await stage.dispatcher(name, poll_s=1.0)


def odd_store(stage: Stage) -> OddClock:
    """The store's clock from now on, which a story can change."""
    clock = OddClock()
    stage.model._utc = clock.utc
    return clock


def test_dispatchers_with_clocks_apart_fire_each_time_once_in_the_stores_time() -> None:
    async def story(stage: Stage) -> None:
        clock = odd_store(stage)
        await with_clocks_apart(stage)
        await stage.client().ask(a_schedule(overlap=Overlap.ALLOW))
        began = clock.utc()
        await asyncio.sleep(5 * EVERY_S)
        found = await fires(stage)
        assert [one.fate for one in found] == [Fate.SUBMITTED] * 5
        assert all(began < one.nominal_at <= clock.utc() for one in found)
        assert {b.nominal_at - a.nominal_at for a, b in pairwise(found)} == {
            timedelta(seconds=EVERY_S)
        }

    tell(story)


@pytest.mark.parametrize("catchup", [Catchup.LATEST, Catchup.NONE])
def test_a_store_whose_clock_jumps_ahead_decides_each_time_once(catchup: Catchup) -> None:
    """Times that were jumped over are missed, and become what `catchup` says."""

    async def story(stage: Stage) -> None:
        clock = odd_store(stage)
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        await stage.client().ask(a_schedule(overlap=Overlap.ALLOW, catchup=catchup))
        await asyncio.sleep(2 * EVERY_S + 1)
        clock.off_s += HOUR_S
        await asyncio.sleep(3 * EVERY_S)
        found = await fires(stage)
        times = [one.nominal_at for one in found]
        assert len(set(times)) == len(times)
        submitted = [one for one in found if one.fate is Fate.SUBMITTED]
        assert 5 <= len(submitted) <= 12, "those before, those after, and those within the grace"
        missed = sum(one.count for one in found if one.fate is not Fate.SUBMITTED)
        assert missed + len(submitted) == (HOUR_S + 5 * EVERY_S) / EVERY_S

    tell(story)


def test_a_store_whose_clock_goes_back_decides_no_time_again() -> None:
    async def story(stage: Stage) -> None:
        clock = odd_store(stage)
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        await stage.client().ask(a_schedule(overlap=Overlap.ALLOW))
        await asyncio.sleep(5 * EVERY_S + 1)
        clock.off_s -= 3 * EVERY_S
        before = await fires(stage)
        await asyncio.sleep(2 * EVERY_S)
        assert await fires(stage) == before, "these times were decided"
        await asyncio.sleep(4 * EVERY_S)
        found = await fires(stage)
        assert [one.fate for one in found] == [Fate.SUBMITTED] * 8
        assert {b.nominal_at - a.nominal_at for a, b in pairwise(found)} == {
            timedelta(seconds=EVERY_S)
        }

    tell(story)


async def begun(stage: Stage, jobs: Sequence[Submission]) -> int:
    return [await stage.state(job) for job in jobs].count(JobState.RUNNING)


def test_dispatchers_with_clocks_apart_keep_a_rate_in_the_stores_time() -> None:
    async def story(stage: Stage) -> None:
        odd_store(stage)
        await with_clocks_apart(stage)
        await stage.worker("w1", slots=9, to="d1")
        await stage.worker("w2", slots=9, to="d2")
        limit = JobLimit("api=x", rate=Rate(1, PACE_S))
        jobs = [a_job(limits=(limit,)) for _ in range(6)]
        await stage.client().submit(*jobs[:3])
        await stage.client("d2").submit(*jobs[3:])
        for expected in range(1, 6):
            await asyncio.sleep(PACE_S / 2)
            assert await begun(stage, jobs) == expected
            await asyncio.sleep(PACE_S / 2)

    tell(story)


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_a_rate_goes_on_when_the_stores_clock_jumps(off_s: float) -> None:
    """Back: one job begins at once, and then the rate counts. It is not wedged for an hour."""

    async def story(stage: Stage) -> None:
        clock = odd_store(stage)
        await stage.dispatcher(poll_s=1.0)
        await stage.worker(slots=9)
        limit = JobLimit("api=x", rate=Rate(1, PACE_S))
        jobs = [a_job(limits=(limit,)) for _ in range(6)]
        await stage.client().submit(*jobs)
        await asyncio.sleep(1.5 * PACE_S)
        assert await begun(stage, jobs) == 2
        clock.off_s += off_s
        await asyncio.sleep(PACE_S / 2)
        assert await begun(stage, jobs) == 3
        await asyncio.sleep(PACE_S)
        assert await begun(stage, jobs) == 4

    tell(story)
