"""A pool that no code of Longshore knows by name: its slots are given, counted and explained."""

from __future__ import annotations

from longshore.model.reports import SuccessReport
from longshore.model.worker import Capacity, KindInfo
from longshore.testing.builders import a_job
from longshore.wire import messages as m

from .stage import Stage
from .test_impostors import Stranger, introduction
from .test_stories import tell

KINDS = {"train": KindInfo("gpu"), "work": KindInfo()}


def given(worker: Stranger) -> list[str]:
    """The kinds of the attempts that a worker was told to start."""
    return [job.kind for one in worker.heard if isinstance(one, m.Jobs) for job in one.jobs]


def test_a_pool_takes_as_many_jobs_as_it_has_slots_whatever_the_others_have() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = Stranger(stage), stage.client()
        worker.say(introduction(name="rack", kinds=KINDS, pools={"gpu": 2, "coroutine": 100}))
        await worker.told(m.Welcome)
        jobs = [a_job(kind="train", args=b"\x80") for _ in range(3)]
        for job in jobs:
            await client.submit(job)
        await client.submit(a_job(args=b"\x80"))
        await stage.until(lambda: len(given(worker)) == 3)
        assert sorted(given(worker)) == ["train", "train", "work"]
        assert await client.why(jobs[2]) == "all 2 gpu slots of rack are busy"
        capacity = await client.ask(m.ShowCapacity(9))
        assert isinstance(capacity, Capacity)
        free = {one.pool: one.free for one in capacity.pools}
        assert free == {"gpu": 0, "coroutine": 99}

    tell(story)


def test_a_slot_of_a_pool_is_free_again_when_its_attempt_ends() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = Stranger(stage), stage.client()
        worker.say(introduction(kinds=KINDS, pools={"gpu": 1, "coroutine": 0}))
        await worker.told(m.Welcome)
        await client.submit(*(a_job(kind="train", args=b"\x80") for _ in range(2)))
        [first] = [one for one in await first_jobs(worker) if one.kind == "train"]
        report = SuccessReport(first.job, first.token, result=b"\xc0")
        worker.say(m.Done(worker.worker, (report,)))
        await stage.until(lambda: len(given(worker)) == 2)

    async def first_jobs(worker: Stranger) -> tuple[m.Assignment, ...]:
        told = await worker.told(m.Jobs)
        assert isinstance(told, m.Jobs)
        return told.jobs

    tell(story)
