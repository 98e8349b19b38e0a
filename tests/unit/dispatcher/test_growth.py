"""Groups that grow through a dispatcher: what it refuses, and that nothing waits for a poll."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.group_limits import MAX_ADDED_JOBS
from longshore.dispatcher.ends import Decisions
from longshore.model.ends import Failed, Succeeded
from longshore.model.group import GATE, MAP, SCOPE, GateVerdict, GroupPart, GroupVerdict
from longshore.model.job import JobState, Options, Reason, Submission
from longshore.model.reports import OutboxJob, OutboxNode, SuccessReport
from longshore.payload.maps import MapPattern, pack_map
from longshore.payload.references import Reference
from longshore.payload.values import pack
from longshore.testing.builders import a_group, a_job, new_id
from longshore.wire import messages as m

from .stage import Stage
from .test_groups import edges, keys, passes, runs, states, submit, wait
from .test_stories import tell

QUIET_S = 1000.0


def a_map(over: object, job: Submission | None = None, *, refers: bool = False) -> Submission:
    """A map of jobs whose argument is the element."""
    pattern = MapPattern("n", job or a_job(args=pack({}, "arguments")))
    return Submission(new_id(), MAP, pack_map(over, pattern), options=Options(references=refers))


def a_gate(**options: float) -> Submission:
    return Submission(new_id(), GATE, pack({}, "a gate"), options=Options(**options))  # type: ignore[arg-type]


def a_scope() -> Submission:
    return Submission(new_id(), SCOPE, pack({}, "a sub-group"))


# what an attempt may add


def decided(*nodes: OutboxNode, **settings: int) -> Succeeded | Failed:
    sent = OutboxJob(a_job(kind="longshore.map"))
    decisions = Decisions(DispatcherSettings(**settings), Random(1))  # type: ignore[arg-type]
    end = decisions.decide(SuccessReport(UUID(int=1), 5, b"\x01", (sent, *nodes)), None)
    assert isinstance(end, Succeeded | Failed)
    return end


def test_sound_growth_is_passed_on_and_a_bad_submit_beside_it_is_noted() -> None:
    nodes = (
        OutboxNode("a", a_job()),
        OutboxNode("b", a_map(Reference("./a").as_value(), refers=True), (0,)),
        OutboxNode("c", a_gate(expires_s=5), (0, 1)),
    )
    end = decided(*nodes)
    assert isinstance(end, Succeeded)
    assert end.outbox == nodes
    assert "outbox item 0 refused: job 'longshore.map'" in end.info


def referring(*keys: str) -> Submission:
    job = a_job(args=pack({"n": [Reference(key).as_value() for key in keys]}, "arguments"))
    return structs.replace(job, options=Options(references=True))


DEEP = a_map([1], referring("./a"))
BAD = {
    "a key twice": ([OutboxNode("a", a_job()), OutboxNode("a", a_job())], "two jobs with the key"),
    "a bad key": ([OutboxNode("a/b", a_job())], "cannot have a '/'"),
    "one that comes later": ([OutboxNode("a", a_job(), (0,))], "one that it adds later"),
    "a reserved kind": ([OutboxNode("a", a_job(kind="longshore.x"))], "reserved for Longshore"),
    "a sub-group": ([OutboxNode("a", a_scope())], "reserved for Longshore"),
    "large arguments": ([OutboxNode("a", a_job(args=b"x" * 2000))], "more than max_value_bytes"),
    "a map of nonsense": ([OutboxNode("a", a_job(kind=MAP, args=b"\xc1"))], "cannot be read"),
    "a map of one key": (
        [OutboxNode("a", a_map([1], structs.replace(a_job(), unique_key="k")))],
        "unique_key cannot be given to a map",
    ),
    "a map of maps": ([OutboxNode("a", a_map([1], a_map([1])))], "reserved for Longshore"),
    "a result it does not wait for": (
        [OutboxNode("a", a_job()), OutboxNode("b", referring("./a"))],
        "on which that job does not depend",
    ),
    "the result of a map": (
        [OutboxNode("a", a_map([1])), OutboxNode("b", referring("./a"), (0,))],
        "'./a' is a map",
    ),
    "a result for all elements": (
        [OutboxNode("a", a_job()), OutboxNode("b", DEEP, (0,))],
        "among the arguments of all elements",
    ),
    "a gate with a queue": (
        [OutboxNode("a", structs.replace(a_gate(), queue="q"))],
        "no worker runs a 'longshore.gate'",
    ),
    "too many": (
        [OutboxNode(f"k{n}", a_job()) for n in range(MAX_ADDED_JOBS + 1)],
        "it adds 5,001 jobs",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_growth_that_cannot_be_fails_the_job_without_its_outbox(what: str) -> None:
    nodes, said = BAD[what]
    end = decided(*nodes, max_value_bytes=1024)
    assert isinstance(end, Failed)
    assert end.error.reason is Reason.INVALID_GROWTH
    assert said in end.error.message


# groups with maps, gates and sub-groups


REFUSED = {
    "arguments of an element": (
        a_group(
            {"a": ""}, jobs={"a": a_map([{"x": 1}], a_job(kind="work", args=pack({"m": 1}, "x")))}
        ),
        "job 'work' has no parameter 'm'",
    ),
    "a map over text": (a_group({"a": ""}, jobs={"a": a_map("abc")}), "this is str"),
    "a result that is none": (
        a_group({"a": "", "b": "a"}, jobs={"a": a_map([1]), "b": referring("a")}),
        "'a' is a map, which has no result of its own",
    ),
    "results of no map": (
        a_group(
            {"a": "", "b": "a"},
            jobs={"b": a_map(Reference("a", is_map=True).as_value(), refers=True)},
        ),
        "'a' is not a map",
    ),
    "a result for elements": (
        a_group({"a": "", "b": ""}, jobs={"b": a_map([1], referring("a"))}),
        "'a', on which it does not depend",
    ),
    "a map for one worker": (
        a_group({"a": ""}, jobs={"a": structs.replace(a_map([1]), target="x")}),
        "no worker runs a 'longshore.map'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_group_with_nodes_that_cannot_be_is_refused(what: str) -> None:
    part, said = REFUSED[what]

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await stage.worker()
        answer = await stage.client().ask(m.SubmitGroup(1, part, edges(part)))
        assert isinstance(answer, m.Err)
        assert said in answer.message

    tell(story)


def test_strict_asks_for_the_kind_of_the_elements_and_not_for_that_of_the_map() -> None:
    def of(kind: str) -> GroupPart:
        mapped = a_map([1], a_job(kind=kind, args=pack({}, "arguments")))
        return a_group({"m": "", "g": "m"}, jobs={"m": mapped, "g": a_gate()})

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await stage.worker()
        client, part = stage.client(), of("nobody")
        refused = await client.ask(m.SubmitGroup(1, part, edges(part), True))
        assert isinstance(refused, m.Err)
        assert "no worker serves kind 'nobody'" in refused.message
        part = of("work")
        accepted = await client.ask(m.SubmitGroup(2, part, edges(part), True))
        assert not isinstance(accepted, m.Err)

    tell(story)


def test_a_node_that_no_worker_runs_cannot_be_submitted_by_itself() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        answer = await stage.client().ask(m.Submit(1, (a_gate(), a_map([1]))))
        assert isinstance(answer, tuple)
        assert all("reserved for Longshore" in one.message for one in answer)

    tell(story)


def test_a_map_runs_at_once_and_what_depends_on_it_after_its_elements() -> None:
    """Nothing waits for a poll, though no dispatcher knew the lane of the elements."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=QUIET_S, group_poll_s=QUIET_S)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "m": "a", "z": "m"}, jobs={"m": a_map([1, 2])})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.succeed()
        assert await stage.until(lambda: len(worker.jobs.started) == 3) < 1.0
        assert (await states(stage, part))["z"] is JobState.WAITING
        worker.jobs.succeed()
        assert await stage.until(lambda: len(worker.jobs.started) == 4) < 1.0
        assert keys(worker, part) == {"z"}
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.SUCCEEDED]

    tell(story)


def test_what_an_attempt_adds_runs_at_once_and_holds_up_what_depends_on_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=QUIET_S, group_poll_s=QUIET_S)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "z": "a"})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        added = (OutboxNode("x", a_job()), OutboxNode("y", a_job(), (0,)))
        [attempt] = worker.jobs.running
        worker.jobs.end(SuccessReport(*attempt, b"\x2a", added))
        for key in ("x", "y"):
            assert await stage.until(lambda: len(worker.jobs.running) == 1) < 1.0, key
            assert (await states(stage, part))["z"] is JobState.WAITING
            worker.jobs.succeed()
        assert await stage.until(lambda: len(worker.jobs.started) == 4) < 1.0
        assert keys(worker, part) == {"z"}

    tell(story)


def test_a_gate_is_opened_once_and_its_value_is_told_to_who_waits() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(poll_s=QUIET_S, group_poll_s=QUIET_S)
        worker, client = await stage.worker(), stage.client()
        part = a_group({"a": "", "g": "a", "z": "g"}, jobs={"g": a_gate()})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        gate = m.OpenGate(7, new_id(), part.head.id, "g", pack("yes", "a value"))
        assert await client.ask(gate) is GateVerdict.NOT_REACHED
        worker.jobs.succeed()
        await passes(stage, 1.0)
        assert await client.ask(gate) is GateVerdict.OPENED
        assert await client.ask(gate) is GateVerdict.ALREADY_OPEN
        other = structs.replace(gate, value=None)
        assert await client.ask(other) is GateVerdict.ALREADY_ENDED
        broken = await client.ask(structs.replace(gate, value=b"\xc1"))
        assert isinstance(broken, m.Err)
        assert "is not msgpack" in broken.message
        assert await runs(stage, worker, part, "z") < 1.0
        assert await client.ask(structs.replace(gate, key="z")) is GateVerdict.NOT_A_GATE
        assert await client.ask(structs.replace(gate, key="x")) is GateVerdict.NOT_FOUND

    tell(story)


def test_a_part_is_cancelled_with_what_runs_of_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        part = a_group({"p/a": "", "p/b": "p/a", "q": "", "p": ""})
        await submit(client, part)
        await stage.until(lambda: len(worker.jobs.running) == 3)
        cancel = m.CancelGroup(5, new_id(), part.head.id, "p/")
        assert await client.ask(cancel) is GroupVerdict.CANCELLING
        await stage.until(lambda: len(worker.jobs.running) == 2)
        found = await states(stage, part)
        assert found["p/b"] is JobState.CANCELLED
        assert found["q"] is found["p"] is JobState.RUNNING
        missing = await client.ask(structs.replace(cancel, prefix="x/"))
        assert isinstance(missing, m.Err)
        assert await client.ask(cancel) is GroupVerdict.ALREADY_ENDED
        assert await client.ask(structs.replace(cancel, group=new_id())) is GroupVerdict.NOT_FOUND

    tell(story)
