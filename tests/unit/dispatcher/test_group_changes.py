"""Groups that are paused and retried through a dispatcher."""

from __future__ import annotations

from uuid import UUID

from msgspec import structs

from longshore.model.group import (
    AddedNode,
    GroupPart,
    GroupSubmitted,
    GroupVerdict,
    RetryPlan,
    RunPlan,
)
from longshore.model.ids import derive_id
from longshore.model.job import JobState
from longshore.payload.references import Reference
from longshore.testing.builders import a_group, a_job, a_map, needs, new_id
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


def test_the_answer_to_a_retry_names_the_first_thousand_jobs() -> None:
    """All of them run again, but nobody reads a list of them."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": ""} | {f"n{place}": "a" for place in range(1_004)})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.fail()
        await wait(client, part)
        plan = await client.ask(m.RetryGroup(3, new_id(), part.head.id))
        assert isinstance(plan, RetryPlan)
        assert plan.reopened == tuple(node.key for node in part.nodes[:1_000])
        assert (plan.more, plan.more_retired) == (5, 0)
        assert set((await states(stage, part)).values()) <= {JobState.RUNNING, JobState.WAITING}

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


def run_of(part: GroupPart, id: UUID) -> GroupPart:
    """The group that is a new run of this one, as if it had been submitted."""
    nodes = tuple(
        structs.replace(node, job=structs.replace(node.job, id=derive_id(id, place)))
        for place, node in enumerate(part.nodes)
    )
    return structs.replace(part, head=structs.replace(part.head, id=id), nodes=nodes)


def test_a_new_run_begins_at_once_and_a_repeat_answers_the_same() -> None:
    """Nothing waits for a poll, and the new group has the id of the request."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a"})
        answer = await submit(client, part)
        early = await client.ask(m.RerunGroup(1, new_id(), part.head.id))
        assert isinstance(early, RunPlan)
        assert "it is running" in early.refused
        await runs(stage, worker, part, "a")
        worker.jobs.succeed()
        await runs(stage, worker, part, "b")
        worker.jobs.fail()
        await wait(client, part)
        request = m.RerunGroup(2, new_id(), answer.number)
        first = await client.ask(request)
        assert isinstance(first, RunPlan)
        assert first.run is not None
        assert (first.run.id, first.keys, first.taken_over) == (request.id, ("b",), 1)
        again = run_of(part, request.id)
        assert await runs(stage, worker, again, "b") < 1.0
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, again)] == [JobState.SUCCEEDED]
        repeat = await client.ask(request)
        assert isinstance(repeat, RunPlan)
        assert repeat.run is not None
        assert (repeat.run.number, repeat.keys) == (first.run.number, first.keys)
        missing = await client.ask(m.RerunGroup(3, new_id(), new_id()))
        assert isinstance(missing, m.Err)
        assert missing.code == "not_found"

    tell(story)


def test_what_a_client_adds_begins_at_once_and_a_repeat_adds_nothing() -> None:
    """Nothing waits for a poll; what a limit or the group refuses is an error."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0, max_group_jobs=4)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": ""})
        answer = await submit(client, part)
        await runs(stage, worker, part, "a")
        nodes = (AddedNode("b", a_job(), ("a",)), AddedNode("m", a_map([]), ("b",)))
        request = m.AddToGroup(1, new_id(), answer.number, nodes)
        first = await client.ask(request)
        assert isinstance(first, GroupSubmitted)
        assert first.staged == 3
        assert await client.ask(request) == first
        for change, code in (
            ({"id": new_id(), "nodes": nodes[:1]}, "conflict"),
            ({"id": new_id()}, "too_large"),
            ({"group": new_id()}, "not_found"),
            ({"nodes": ()}, "invalid_input"),
            ({"nodes": (AddedNode("c", needs(Reference("a"))),)}, "invalid_input"),
        ):
            wrong = await client.ask(structs.replace(request, **change))
            assert isinstance(wrong, m.Err), change
            assert wrong.code == code
        worker.jobs.succeed()
        added = derive_id(request.id, 0)
        began = await stage.until(lambda: added in {job for job, _ in worker.jobs.running})
        assert began < 1.0
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.SUCCEEDED]
        late = await client.ask(structs.replace(request, id=new_id()))
        assert isinstance(late, m.Err)
        assert late.code == "wrong_state"

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
