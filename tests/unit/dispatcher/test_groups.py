"""Groups through a dispatcher: from the request to the end that a client waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from msgspec import structs

from longshore.client.connection import Connection
from longshore.model.group import (
    GATE,
    Condition,
    Group,
    GroupFilter,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    NodeView,
)
from longshore.model.job import Ended, JobState
from longshore.model.reports import FailureReport
from longshore.testing.builders import a_group, a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m

from .stage import Client, Stage, StagedWorker
from .test_stories import tell

DIAMOND = {"top": "", "left": "top", "right": "top", "bottom": "left right"}


def edges(part: GroupPart) -> int:
    return sum(len(node.after) for node in part.nodes)


async def submit(client: Client, part: GroupPart) -> GroupSubmitted:
    answer = await client.ask(m.SubmitGroup(1, part, edges(part)))
    assert isinstance(answer, GroupSubmitted), answer
    return answer


async def wait(client: Client, part: GroupPart, wait_s: float = 60.0) -> list[Ended]:
    answer = await client.ask(m.Wait(2, (part.head.id,), wait_s))
    assert isinstance(answer, tuple)
    return list(answer)


async def states(stage: Stage, part: GroupPart) -> dict[str, JobState]:
    return {node.key: await stage.state(node.job) for node in part.nodes}


def keys(worker: StagedWorker, part: GroupPart) -> set[str]:
    """The jobs of a group that a worker runs."""
    by_id = {node.job.id: node.key for node in part.nodes}
    return {by_id[job] for job, _ in worker.jobs.running}


async def runs(stage: Stage, worker: StagedWorker, part: GroupPart, *wanted: str) -> float:
    return await stage.until(lambda: keys(worker, part) == {*wanted})


async def passes(stage: Stage, seconds: float) -> None:
    """So much virtual time passes."""
    end = stage.clock.now() + seconds
    await stage.until(lambda: stage.clock.now() >= end)


def test_a_diamond_runs_in_order_and_its_end_comes_under_its_own_id() -> None:
    """G5: and no edge waits for a poll."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group(DIAMOND)
        answer = await submit(client, part)
        assert (answer.state, answer.staged) == (GroupState.RUNNING, 4)
        waiting = asyncio.create_task(wait(stage.client(), part))
        for step in (["top"], ["left", "right"], ["bottom"]):
            assert await runs(stage, worker, part, *step) < 1.0
            worker.jobs.succeed()
        assert await waiting == [Ended(part.head.id, JobState.SUCCEEDED)]

    tell(story)


def test_a_lane_that_no_dispatcher_knew_is_served_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0)
        stage.model._watchers.clear()
        worker, client = await stage.worker(), stage.client()
        job = structs.replace(a_job(), queue="new")
        part = a_group({"a": ""}, jobs={"a": job})
        await submit(client, part)
        assert await runs(stage, worker, part, "a") < 1.0

    tell(story)


def test_a_failure_reaches_all_below_and_the_group_fails_once_the_rest_is_done() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        worker, client = await stage.worker(slots=1), stage.client()
        part = a_group({"a": "", "b": "a", "c": "b", "d": ""})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.fail()
        await runs(stage, worker, part, "d")
        assert await wait(client, part, 0) == []
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]
        assert set((await states(stage, part)).values()) == {
            JobState.FAILED,
            JobState.DEPENDENCY_FAILED,
            JobState.SUCCEEDED,
        }

    tell(story)


def test_a_job_that_is_cancelled_alone_frees_those_that_wait_for_its_end() -> None:
    """The cancel goes past the commits, so it must ring the upkeep of groups itself."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        client = stage.client()
        part = a_group({"a": "", "b": "a", "c": "a"}, on={"c": Condition.ENDED})
        await submit(client, part)
        await client.ask(m.Cancel(3, new_id(), (part.nodes[0].job.id,)))
        worker = await stage.worker()
        assert await runs(stage, worker, part, "c") < 5.0
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]

    tell(story)


def test_a_poisonous_job_of_a_lost_worker_reaches_what_depends_on_it() -> None:
    """A harvest ends jobs outside the commits, too."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0, crash_limit=1)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        waiting = asyncio.create_task(wait(stage.client(), part))
        await worker.die()
        assert [one.state for one in await waiting] == [JobState.FAILED]

    tell(story)


def test_a_job_past_its_timeout_reaches_what_depends_on_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        slow = a_job()
        slow = structs.replace(slow, options=structs.replace(slow.options, timeout_s=5.0))
        part = a_group({"a": "", "b": "a"}, jobs={"a": slow})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.stubborn = True
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]

    tell(story)


def test_a_cancelled_group_stops_what_runs_and_a_repeat_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group(DIAMOND)
        answer = await submit(client, part)
        await runs(stage, worker, part, "top")
        request = m.CancelGroup(3, new_id(), answer.number)
        assert await client.ask(request) is GroupVerdict.CANCELLING
        assert [one.state for one in await wait(client, part)] == [JobState.CANCELLED]
        assert set((await states(stage, part)).values()) == {JobState.CANCELLED}
        assert await client.ask(request) is GroupVerdict.ALREADY_ENDED
        missing = m.CancelGroup(4, new_id(), new_id())
        assert await client.ask(missing) is GroupVerdict.NOT_FOUND

    tell(story)


def test_a_cancelled_group_ends_with_the_last_of_its_jobs_that_stops() -> None:
    """Nothing depends on that job any more, and nobody polls."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group(DIAMOND)
        await submit(client, part)
        await runs(stage, worker, part, "top")
        worker.jobs.stubborn = True
        await client.ask(m.CancelGroup(3, new_id(), part.head.id))
        await passes(stage, 10.0)
        assert await wait(client, part, 0) == []
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part, 5)] == [JobState.CANCELLED]

    tell(story)


def test_fail_fast_stops_what_runs_elsewhere() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": ""}, fail_fast=True)
        await submit(client, part)
        await runs(stage, worker, part, "a", "b")
        worker.jobs.end(FailureReport(*next(iter(worker.jobs.running))))
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]
        assert sorted((await states(stage, part)).values()) == ["cancelled", "failed"]

    tell(story)


def test_a_delay_counts_from_the_end_of_what_it_depends_on() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=1000.0, group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        later = structs.replace(a_job(), delay_s=60.0)
        part = a_group({"a": "", "b": "a"}, jobs={"b": later})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        await passes(stage, 100.0)
        worker.jobs.succeed()
        assert 59.0 < await runs(stage, worker, part, "b") < 62.0

    tell(story)


def test_what_a_dead_dispatcher_left_is_done_by_another() -> None:
    """The end is stored, and the dispatcher dies before it settles the group."""

    async def story(stage: Stage) -> None:
        first = await stage.dispatcher("d1", group_poll_s=1000.0)
        worker, client = await stage.worker(to="d1"), stage.client("d1")
        part = a_group({"a": ""})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        stage.store.plan = scripted(*[("settle", Fault.BEFORE)] * 100)
        worker.jobs.succeed()
        await stage.until(lambda: stage.model._jobs[part.nodes[0].job.id].state.value != "running")
        await stage.kill(first)
        stage.store.plan = lambda verb: None
        await stage.dispatcher("d2")
        assert [one.state for one in await wait(stage.client("d2"), part)] == [JobState.SUCCEEDED]

    tell(story)


def test_a_group_whose_submitter_sends_no_more_is_cancelled() -> None:
    """By one of two dispatchers, which both look."""

    async def story(stage: Stage) -> None:
        for name in ("d1", "d2"):
            await stage.dispatcher(name, group_staging_s=100.0)
        client, whole = stage.client("d1"), a_group(DIAMOND)
        part = structs.replace(whole, nodes=whole.nodes[:2])
        assert (await submit(client, part)).state is GroupState.STAGING
        began = stage.clock.now()
        [end] = await wait(client, part, 1000.0)
        assert end.state is JobState.CANCELLED
        assert 100.0 <= stage.clock.now() - began < 120.0
        shown = await client.ask(m.ShowGroup(3, part.head.id))
        assert isinstance(shown, Group)
        assert shown.cancelled_by == "its submitter did not send the rest"
        assert set((await states(stage, part)).values()) == {JobState.CANCELLED}

    tell(story)


def test_no_group_is_abandoned_if_the_setting_is_0() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_staging_s=0.0)
        whole = a_group(DIAMOND)
        await submit(stage.client(), structs.replace(whole, nodes=whole.nodes[:2]))
        await passes(stage, 100.0)
        assert stage.model._groups[whole.head.id].state is GroupState.STAGING

    tell(story)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_settle_that_fails_or_whose_answer_got_lost_is_done_again(fault: Fault) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "b": "a"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        stage.store.plan = scripted(("settle", fault), ("settle", fault))
        worker.jobs.fail()
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]

    tell(story)


def test_a_group_in_parts_runs_once_the_last_is_there_in_any_order_and_repeated() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        whole = a_group(DIAMOND)
        head, nodes = whole.head, whole.nodes
        parts = [GroupPart(head, 2, nodes[2:]), GroupPart(head, 0, nodes[:2])]
        count = edges(whole)
        for part, staged in ((parts[0], 2), (parts[0], 2), (parts[1], 4), (parts[0], 4)):
            answer = await client.ask(m.SubmitGroup(1, part, count))
            assert isinstance(answer, GroupSubmitted)
            assert answer.staged == staged
        await runs(stage, worker, whole, "top")
        assert len(stage.model._jobs) == 4

    tell(story)


def test_a_submit_whose_answer_got_lost_makes_one_group() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        listener = stage.network.listeners["d1/clients"]
        send, lost = listener.send, list[Sequence[bytes]]()

        def lose_the_first(peer: bytes, frames: Sequence[bytes]) -> bool:
            if not lost:
                lost.append(frames)
                return True
            return send(peer, frames)

        listener.send = lose_the_first  # type: ignore[method-assign]
        part = a_group(DIAMOND)
        async with Connection(
            "tcp://d1", connect=lambda _, heard: stage.network.connect("d1/clients", heard)
        ) as connection:
            answer = await connection.submit_group(part, edges(part))
            assert answer.state is GroupState.RUNNING
            assert [one.id for one in await connection.groups()] == [part.head.id]
        assert len(stage.model._jobs) == 4

    tell(story)


def test_groups_and_their_jobs_are_shown() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        part = a_group(DIAMOND, name="nightly")
        answer = await submit(client, part)
        shown = await client.ask(m.ShowGroup(2, answer.number))
        assert isinstance(shown, Group)
        assert (shown.name, shown.counts) == ("nightly", {"ready": 1, "waiting": 3})
        listed = await client.ask(m.ListGroups(3, GroupFilter(name="nightly")))
        assert isinstance(listed, tuple)
        assert [one.id for one in listed] == [part.head.id]
        nodes = await client.ask(m.ListNodes(4, part.head.id, 1, 2))
        assert isinstance(nodes, tuple)
        assert [node.key for node in nodes if isinstance(node, NodeView)] == ["right", "bottom"]
        for request in (m.ShowGroup(5, 999), m.ListNodes(6, new_id())):
            refused = await client.ask(request)
            assert isinstance(refused, m.Err)
            assert (refused.code, "`longshore groups`" in refused.message) == ("not_found", True)

    tell(story)


def test_why_names_what_a_job_waits_for() -> None:
    """G4."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(slots=2), stage.client()
        part = a_group({"a": "", "left": "a", "right": "a", "bottom": "a left right"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.succeed()
        await runs(stage, worker, part, "left", "right")
        by_key = {node.key: node.job for node in part.nodes}
        said = "waiting for 2 of 3: 'left' (running), 'right' (running)"
        assert await client.why(by_key["bottom"]) == said
        answer = await client.ask(m.Why(3, by_key["left"].id))
        assert isinstance(answer, m.WhyAnswer)
        assert answer.key == "left"

    tell(story)


def changed(**changes: object) -> GroupPart:
    """A chain of two whose second node has these changes."""
    part = a_group({"a": "", "b": "a"})
    first, second = part.nodes
    return structs.replace(part, nodes=(first, structs.replace(second, **changes)))


CHAIN = a_group({"a": "", "b": "a"})
GATES = a_group({"a": "", "b": ""}, jobs=dict.fromkeys("ab", a_job(kind=GATE)))
BAD = {
    "an after that is its own place": (changed(after=(1,)), "job 'b': its `after` names a place"),
    "an after that is negative": (changed(after=(-1,)), "does not lie before its own"),
    "an after named twice": (changed(after=(0, 0)), "names a job twice"),
    "a million edges to one job": (
        changed(after=tuple(range(1_000_000))),
        "its `after` names a place that does not lie before its own",
    ),
    "an edge named a million times": (changed(after=(0,) * 1_000_000), "names a job twice"),
    "a key of a megabyte": (changed(key="k" * 1_000_000), "has 1,000,000 characters; 200 are"),
    "a key used twice": (changed(key="a"), "job 'a': another job of the group has this key"),
    "a key that ends in a slash": (changed(key="b/"), "'/' between the names of sub-groups"),
    "an empty key": (changed(key=""), "must be text, and not empty"),
    "a long key": (changed(key="k" * 201), "has 201 characters; 200 are allowed"),
    "a condition on nothing": (changed(after=(), on=Condition.ENDED), "depends on nothing"),
    "an id used twice": (
        structs.replace(CHAIN, nodes=(CHAIN.nodes[0], structs.replace(CHAIN.nodes[0], key="b"))),
        "job 'b': its id",
    ),
    "a bad job": (changed(job=structs.replace(a_job(), queue="a b")), "job 'b': job 'work': queue"),
    "a delay below 0, of a job like the one before": (
        changed(job=structs.replace(a_job(), delay_s=-1.0)),
        "job 'b': job 'work': delay_s",
    ),
    "a second gate with a unique key": (
        structs.replace(
            GATES,
            nodes=(
                GATES.nodes[0],
                structs.replace(
                    GATES.nodes[1], job=structs.replace(GATES.nodes[1].job, unique_key="k")
                ),
            ),
        ),
        "job 'b': no worker runs a 'longshore.gate'",
    ),
    "a time to run": (
        changed(job=structs.replace(a_job(), run_at=datetime(2030, 1, 1, tzinfo=UTC))),
        "job 'b': run_at cannot be kept in a group",
    ),
    "places past its end": (structs.replace(CHAIN, first=1), "does not belong to 2 jobs"),
    "no jobs in a part": (structs.replace(CHAIN, nodes=()), "does not belong to 2 jobs"),
    "a name that cannot be printed": (
        structs.replace(CHAIN, head=structs.replace(CHAIN.head, name="a\nb")),
        "cannot be printed",
    ),
    "too many jobs": (
        structs.replace(CHAIN, head=structs.replace(CHAIN.head, jobs=11)),
        "max_group_jobs is 10",
    ),
    "an argument too large": (
        changed(job=structs.replace(a_job(), args=b"\x81\xa1n\xc5\x10\x00" + b"x" * 4096)),
        "job 'b': the arguments of job 'work'",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_group_that_cannot_be_is_refused_and_named(what: str) -> None:
    part, said = BAD[what]

    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_group_jobs=10, max_group_edges=2_000_000, max_value_bytes=1000)
        refused = await stage.client().ask(m.SubmitGroup(1, part, edges(part)))
        assert isinstance(refused, m.Err), refused
        assert said in refused.message, refused.message
        assert refused.message.startswith(f"group '{part.head.name}'")
        assert len(refused.message) < 700
        assert not stage.model._groups

    tell(story)


def test_more_than_a_million_edges_to_one_job_are_past_the_limit() -> None:
    part = changed(after=tuple(range(1_000_001)))

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        refused = await stage.client().ask(m.SubmitGroup(1, part, edges(part)))
        assert isinstance(refused, m.Err)
        assert refused.code == "too_large"
        assert "1,000,001 dependencies, and max_group_edges is 1,000,000" in refused.message
        assert not stage.model._groups

    tell(story)


def test_too_many_dependencies_and_unknown_kinds_are_refused() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_group_edges=1)
        client = stage.client()
        part = a_group({"a": "", "b": "a", "c": "a"})
        for count, said in ((2, "max_group_edges is 1"), (1, "count them all in `edges`")):
            refused = await client.ask(m.SubmitGroup(1, part, count))
            assert isinstance(refused, m.Err)
            assert said in refused.message
        strict = await client.ask(m.SubmitGroup(2, a_group({"a": ""}), 0, strict=True))
        assert isinstance(strict, m.Err)
        assert strict.code == "unknown_kind"
        many = GroupPart(GroupHead(new_id(), "many", 5_001), 0, CHAIN.nodes[:1] * 5_001)
        large = await client.ask(m.SubmitGroup(3, many, 0))
        assert isinstance(large, m.Err)
        assert large.code == "too_large"

    tell(story)


def test_an_empty_group_has_succeeded() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        part = GroupPart(GroupHead(new_id(), "nothing", 0), 0, ())
        answer = await submit(client, part)
        assert answer.state is GroupState.SUCCEEDED
        assert [one.state for one in await wait(client, part)] == [JobState.SUCCEEDED]

    tell(story)
