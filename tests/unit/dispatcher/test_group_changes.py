"""Groups that are paused and retried through a dispatcher."""

from __future__ import annotations

from longshore.model.group import GroupVerdict, RetryPlan
from longshore.model.job import JobState
from longshore.testing.builders import a_group, new_id
from longshore.wire import messages as m

from .stage import Stage
from .test_groups import passes, runs, states, submit, wait
from .test_stories import tell


def test_a_retry_runs_what_did_not_succeed_and_a_repeat_answers_the_same() -> None:
    """G3, G5: and nothing waits for a poll."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a", "c": "b"})
        answer = await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.succeed()
        await runs(stage, worker, part, "b")
        worker.jobs.fail()
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]
        plan = RetryPlan(part.head.id, ("b", "c"))
        look = m.RetryGroup(3, new_id(), answer.number, dry_run=True)
        assert await client.ask(look) == plan
        assert (await states(stage, part))["b"] is JobState.FAILED, "a dry run changes nothing"
        request = m.RetryGroup(4, new_id(), answer.number)
        assert await client.ask(request) == plan
        assert await runs(stage, worker, part, "b") < 1.0
        assert await client.ask(request) == plan, "though the job runs by now"
        worker.jobs.succeed()
        assert await runs(stage, worker, part, "c") < 1.0
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.SUCCEEDED]
        assert await client.ask(request) == plan
        assert set((await states(stage, part)).values()) == {JobState.SUCCEEDED}

    tell(story)


def test_a_retry_that_cannot_be_says_why() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        refused = await client.ask(m.RetryGroup(1, new_id(), part.head.id, ("a",)))
        assert isinstance(refused, RetryPlan)
        assert refused.running == ("a",)
        assert refused.refused.startswith("'a' still runs")
        missing = await client.ask(m.RetryGroup(2, new_id(), new_id()))
        assert isinstance(missing, m.Err)
        assert missing.code == "not_found"

    tell(story)


def test_a_paused_group_begins_nothing_until_it_goes_on() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        pause = m.PauseGroup(1, new_id(), part.head.id, True)
        assert await client.ask(pause) is GroupVerdict.PAUSED
        worker.jobs.succeed()
        await passes(stage, 60)
        assert not worker.jobs.running
        resume = m.PauseGroup(2, new_id(), part.head.id, False)
        assert await client.ask(resume) is GroupVerdict.RUNNING
        assert await runs(stage, worker, part, "b") < 1.0
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.SUCCEEDED]
        assert await client.ask(pause) is GroupVerdict.ALREADY_ENDED

    tell(story)
