"""Groups when hints get lost: a dispatcher acts at once on what it did itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import pytest
from msgspec import structs

from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.group import Condition
from longshore.model.job import Ended, JobState
from longshore.model.reports import FailureReport, SuccessReport
from longshore.ports import Settled
from longshore.testing.builders import a_group, a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m

from .stage import Stage
from .test_groups import DIAMOND, passes, runs, states, submit, wait
from .test_without_hints import Mute, tell_without_hints


def tell(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def rarely(stage: Stage) -> None:
        stage.settings = structs.replace(stage.settings, group_poll_s=60.0)
        await story(stage)

    tell_without_hints(rarely)


def test_a_diamond_runs_and_its_end_is_told_without_a_poll() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group(DIAMOND)
        await submit(client, part)
        waiting = asyncio.create_task(wait(stage.client(), part, 1000.0))
        for step in (["top"], ["left", "right"], ["bottom"]):
            assert await runs(stage, worker, part, *step) < 1.0
            worker.jobs.succeed()
        await stage.until(waiting.done, 1.0)
        assert waiting.result() == [Ended(part.head.id, JobState.SUCCEEDED)]

    tell(story)


def test_a_lane_that_no_dispatcher_knew_is_served_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        jobs = {key: structs.replace(a_job(), queue=key) for key in ("a", "b")}
        part = a_group({"a": "", "b": "a"}, jobs=jobs)
        await submit(client, part)
        assert await runs(stage, worker, part, "a") < 1.0
        worker.jobs.succeed()
        assert await runs(stage, worker, part, "b") < 1.0

    tell(story)


def test_a_delay_of_the_first_job_begins_with_the_group() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": ""}, jobs={"a": structs.replace(a_job(), delay_s=5.0)})
        await submit(client, part)
        assert 4.8 < await runs(stage, worker, part, "a") < 5.5

    tell(story)


def test_a_cancel_of_one_job_reaches_what_waits_for_its_end() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        unserved = structs.replace(a_job(), kind="nobody")
        part = a_group(
            {"a": "", "b": "a", "c": "a"}, on={"c": Condition.ENDED}, jobs={"a": unserved}
        )
        await submit(client, part)
        waiting = asyncio.create_task(wait(stage.client(), part, 1000.0))
        [first] = [node.job.id for node in part.nodes if node.key == "a"]
        await client.ask(m.Cancel(3, new_id(), (first,)))
        assert await runs(stage, worker, part, "c") < 1.0
        worker.jobs.succeed()
        await stage.until(waiting.done, 1.0)
        assert [one.state for one in waiting.result()] == [JobState.FAILED]

    tell(story)


@pytest.mark.parametrize("how", ["cancel", "fail_fast"])
def test_what_runs_of_a_cancelled_group_is_stopped_at_once(how: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "", "c": ""}, fail_fast=True)
        await submit(client, part)
        await runs(stage, worker, part, "a", "b", "c")
        waiting = asyncio.create_task(wait(stage.client(), part, 1000.0))
        if how == "cancel":
            await client.ask(m.CancelGroup(3, new_id(), part.head.id))
        else:
            worker.jobs.end(FailureReport(*next(iter(worker.jobs.running))))
        await stage.until(waiting.done, 1.0)
        assert JobState.CANCELLED in (await states(stage, part)).values()
        assert not worker.jobs.running

    tell(story)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_settle_that_fails_is_soon_done_again(fault: Fault) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a", "c": "b"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        stage.store.plan = scripted(("settle", fault), ("settle", fault))
        worker.jobs.fail()
        await passes(stage, 5.0)
        assert [one.state for one in await wait(client, part, 0)] == [JobState.FAILED]

    tell(story)


class Held(Mute):
    """Another dispatcher holds the rows of groups for a while: nothing is done meanwhile."""

    calls = 0
    busy: UUID

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        self.calls += 1
        if self.calls < 6:
            return Settled(groups=frozenset({self.busy}))
        return await super().settle(groups, most, max_group_jobs)


def test_groups_that_another_dispatcher_holds_are_asked_for_again_with_pauses() -> None:
    async def story(stage: Stage) -> None:
        stage.store = held = Held(stage.model)
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": ""})
        held.busy = part.head.id
        await submit(client, part)
        await runs(stage, worker, part, "a")
        waiting = asyncio.create_task(wait(stage.client(), part, 1000.0))
        worker.jobs.succeed()
        await stage.until(lambda: held.calls > 0)
        assert held.calls <= 3
        await stage.until(waiting.done, 2.0)
        assert held.calls == 6

    tell(story)


def test_a_group_whose_settle_failed_is_not_forgotten_when_another_one_is_told_of() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        parts = [a_group({"a": ""}) for _ in range(3)]
        for part in parts:
            await submit(client, part)
        await stage.until(lambda: len(worker.jobs.running) == 3)
        attempts = dict(worker.jobs.running)
        for fault, part in zip((None, Fault.BEFORE, None), parts, strict=True):
            stage.store.plan = scripted(("settle", fault))
            [attempt] = [one for one in attempts if one[0] == part.nodes[0].job.id]
            worker.jobs.end(SuccessReport(*attempt))
            await passes(stage, 0.2)
        await passes(stage, 5.0)
        for part in parts:
            assert [one.state for one in await wait(client, part, 0)] == [JobState.SUCCEEDED]

    tell(story)
