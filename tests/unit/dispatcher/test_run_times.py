"""How long kinds run: from the reports of workers to the answer for a client."""

from __future__ import annotations

import asyncio

import pytest

from longshore.dispatcher.duties.run_times import RunTimes
from longshore.errors import StoreUnavailable
from longshore.model.reports import FailureReport, SuccessReport
from longshore.model.run_time import RunTime
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault, FaultyStore, scripted
from longshore.testing.memory import MemoryStore
from longshore.testing.virtual import run_virtually
from longshore.wire import messages as m

from .stage import Stage
from .test_stories import tell

RUN_S = 2.0
WRITE_S = 10.0


async def times(stage: Stage) -> object:
    return await stage.client().ask(m.ListRunTimes(1, ("work", "grind")))


def test_successes_are_summed_up_and_told_to_clients() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(run_times_s=WRITE_S)
        worker, client = await stage.worker(), stage.client()
        await client.submit(*(a_job() for _ in range(3)))
        await stage.until(lambda: len(worker.jobs.running) == 3)
        first, second, third = list(worker.jobs.running)
        await asyncio.sleep(RUN_S)
        worker.jobs.end(SuccessReport(*first))
        worker.jobs.end(FailureReport(*third))
        await asyncio.sleep(RUN_S)
        worker.jobs.end(SuccessReport(*second))
        assert await times(stage) == ()
        await asyncio.sleep(WRITE_S)
        found = await times(stage)
        assert isinstance(found, tuple)
        [one] = found
        assert (one.kind, one.runs) == ("work", 2)
        assert 1.5 * RUN_S <= one.mean_s < 1.5 * RUN_S + 0.1

    tell(story)


def test_what_a_worker_says_of_a_run_counts_more_than_when_it_got_the_job() -> None:
    """It may have held the attempt ahead of a slot."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(run_times_s=WRITE_S)
        worker, client = await stage.worker(slots=1), stage.client()
        await client.submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        [attempt] = worker.jobs.running
        worker.jobs.end(SuccessReport(*attempt, ran_s=100.0))
        await asyncio.sleep(WRITE_S)
        assert await times(stage) == (RunTime("work", 1, 100.0),)

    tell(story)


def test_what_the_store_may_have_taken_is_not_noted_twice() -> None:
    async def story() -> None:
        model = MemoryStore()
        store = FaultyStore(model)
        duty = RunTimes(store)
        duty.ran("work", 2.0)
        store.plan = scripted(("note_runs", Fault.AFTER))
        with pytest.raises(StoreUnavailable):
            await duty.write()
        duty.ran("work", 4.0)
        await duty.write()
        await duty.write()
        assert await model.run_times(["work"]) == [RunTime("work", 2, 3.0)]

    run_virtually(story())
