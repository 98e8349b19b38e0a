"""Schedules on running dispatchers, under a virtual clock: each time once, whatever dies."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from uuid import uuid4

from longshore.model.job import JobState
from longshore.model.schedule import (
    Catchup,
    Fate,
    Fire,
    NewSchedule,
    Overlap,
    Rules,
    ScheduleView,
    Spec,
    Timing,
)
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault, scripted
from longshore.wire import schedule_messages as s

from .stage import Stage
from .test_stories import tell

EVERY_S = 10.0


def a_schedule(**rules: object) -> s.PutSchedule:
    timing = Timing((Spec(every_s=EVERY_S),))
    made = Rules(**rules)  # type: ignore[arg-type]
    return s.PutSchedule(1, uuid4(), NewSchedule(uuid4(), "tick", timing, made, a_job()))


async def fires(stage: Stage, to: str = "d1") -> list[Fire]:
    view = await stage.client(to).ask(s.ShowSchedule(1, "tick", 100))
    assert isinstance(view, ScheduleView)
    return sorted(view.fires, key=lambda fire: fire.nominal_at)


def test_many_dispatchers_fire_each_time_once() -> None:
    async def story(stage: Stage) -> None:
        for name in ("d1", "d2", "d3"):
            await stage.dispatcher(name)
        await stage.client().ask(a_schedule(overlap=Overlap.ALLOW))
        await asyncio.sleep(5 * EVERY_S)
        found = await fires(stage, "d2")
        assert len(found) == 5
        assert {(one.fate, one.pending) for one in found} == {(Fate.SUBMITTED, False)}
        jobs = [await stage.store.job(one.subject) for one in found if one.subject]
        assert [job is not None and job.state for job in jobs] == [JobState.READY] * 5
        step = {later.nominal_at - one.nominal_at for one, later in pairwise(found)}
        assert step == {timedelta(seconds=EVERY_S)}

    tell(story)


def test_a_submit_that_a_dead_dispatcher_left_is_made_by_another() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1")
        await stage.client().ask(a_schedule())
        # What it decides is recorded, and the answer gets lost: it does not know of it.
        stage.store.plan = scripted(("record_fires", Fault.AFTER))
        await stage.dispatcher("d2")
        await stage.kill(first)
        await asyncio.sleep(2 * EVERY_S)
        found = await fires(stage, "d2")
        assert found[0].fate is Fate.SUBMITTED
        assert not found[0].pending
        assert found[0].subject is not None
        assert await stage.store.job(found[0].subject) is not None

    tell(story)


def test_an_overlapping_run_is_cancelled_and_then_the_next_begins() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        await stage.client().ask(a_schedule(overlap=Overlap.CANCEL_RUNNING, catchup=Catchup.NONE))
        await stage.until(lambda: len(worker.jobs.running) == 1)
        first = set(worker.jobs.running)
        await stage.until(lambda: worker.jobs.running and set(worker.jobs.running) != first)
        worker.jobs.succeed()
        await asyncio.sleep(EVERY_S / 2)
        found = await fires(stage)
        assert [one.outcome for one in found[:2]] == [JobState.CANCELLED, JobState.SUCCEEDED]
        assert {one.fate for one in found[:2]} == {Fate.SUBMITTED}

    tell(story)
