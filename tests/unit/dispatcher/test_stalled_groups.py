"""The watchdog over groups in a running dispatcher. `tests/conformance` has what it finds."""

from __future__ import annotations

import asyncio

from msgspec import structs

from longshore.model.group import GroupFilter, GroupPart, GroupState
from longshore.model.job import Ended, JobState
from longshore.testing.builders import a_group
from longshore.wire import messages as m

from .stage import Stage, StagedWorker
from .test_groups import runs, submit, wait
from .test_rare_orders import pass_time
from .test_stories import tell

STALL_S = 30.0
WATCH_S = 5.0


async def standing_still(stage: Stage, policy: str) -> tuple[StagedWorker, GroupPart]:
    """A group whose first job nobody woke, and a worker that would take it."""
    stage.settings = structs.replace(
        stage.settings, group_stall_s=STALL_S, group_watch_s=WATCH_S, stalled_groups=policy
    )
    await stage.dispatcher()
    part = a_group({"a": "", "b": "a"})
    await submit(stage.client(), part)
    row = stage.model._jobs[part.nodes[0].job.id]
    row.job = structs.replace(row.job, state=JobState.WAITING)
    return await stage.worker(), part


def test_a_group_that_stands_still_is_repaired_and_goes_on_at_once() -> None:
    async def story(stage: Stage) -> None:
        worker, part = await standing_still(stage, "repair")
        took = await runs(stage, worker, part, "a")
        assert STALL_S <= took <= STALL_S + 2 * WATCH_S + 1.0
        worker.jobs.succeed()
        await runs(stage, worker, part, "b")

    tell(story)


def test_a_group_that_stands_still_is_cancelled_and_its_end_is_told() -> None:
    async def story(stage: Stage) -> None:
        _, part = await standing_still(stage, "cancel")
        waiting = asyncio.create_task(wait(stage.client(), part, 1000.0))
        await stage.until(waiting.done, STALL_S + 2 * WATCH_S + 1.0)
        assert waiting.result() == [Ended(part.head.id, JobState.CANCELLED)]

    tell(story)


def test_a_group_that_stands_still_is_left_alone_by_default() -> None:
    async def story(stage: Stage) -> None:
        worker, part = await standing_still(stage, "log")
        await asyncio.sleep(20 * STALL_S)
        assert not worker.jobs.started
        group = await stage.model.group(part.head.id)
        assert group is not None
        assert group.state is GroupState.RUNNING

    tell(story)


def test_a_group_that_stands_still_is_listed_until_it_goes_on() -> None:
    async def listed(stage: Stage) -> list[int]:
        answer = await stage.client().ask(m.ListGroups(4, GroupFilter(stalled=True)))
        return [one.number for one in answer if one.stalled_at]  # type: ignore[attr-defined]

    async def story(stage: Stage) -> None:
        worker, part = await standing_still(stage, "log")
        assert await listed(stage) == []
        await pass_time(stage, STALL_S + 2 * WATCH_S + 1.0)
        group = await stage.model.group(part.head.id)
        assert group is not None
        assert await listed(stage) == [group.number]
        row = stage.model._jobs[part.nodes[0].job.id]
        row.job = structs.replace(row.job, state=JobState.READY)
        await runs(stage, worker, part, "a")
        worker.jobs.succeed()
        await pass_time(stage, 2 * WATCH_S)
        assert await listed(stage) == []

    tell(story)
