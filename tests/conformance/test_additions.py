"""Jobs that a client adds to a group which runs: they hear of what has ended, once."""

from __future__ import annotations

import pytest

from longshore.errors import Conflict, InvalidInput, TooLarge, WrongState
from longshore.model.ends import End, Failed, Skipped, Succeeded
from longshore.model.group import GATE, SCOPE, AddedNode, Condition, GroupState, GroupSubmitted
from longshore.model.job import JobState, Reason, Refused, Submission
from longshore.payload.references import Reference
from longshore.payload.values import pack, unpack
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    a_map,
    additions,
    needs,
    new_id,
)
from longshore.testing.faults import Fault, FaultyStore, scripted

from .test_examined_groups import troubles
from .test_groups import run_to_the_end
from .test_growth import PAIR, TWO, error_of, grown

S = JobState
G = GroupState
ON = Condition


def new(
    key: str, after: str = "", on: Condition = ON.SUCCEEDED, job: Submission | None = None
) -> AddedNode:
    """A job to add; `after` has keys with spaces between."""
    return AddedNode(key, job or a_job(), tuple(after.split()), on)


async def add(group: GroupScene, *nodes: AddedNode) -> GroupSubmitted:
    """Adds these, which are accepted."""
    answer = await group.store.add_to_group(group.id, new_id(), nodes)
    assert isinstance(answer, GroupSubmitted), answer
    await group.look()
    return answer


async def refused(group: GroupScene, *nodes: AddedNode, **most: int) -> Refused:
    """The answer to an addition that is refused; nothing of it is there."""
    before = await group.look()
    answer = await group.store.add_to_group(group.id, new_id(), nodes, **most)
    assert isinstance(answer, Refused), answer
    assert await group.look() == before
    return answer


async def with_a_sub_group(scene: Scene) -> GroupScene:
    """A group of a sub-group, `part`, with one job, and of one that depends on all of it."""
    part = a_group(
        {"part/x": "", "part": "", "d": "part"},
        jobs={"part": a_job(kind=SCOPE)},
        scopes={"part/x": "part"},
    )
    return await scene.submit_group(part)


# what is added


async def test_an_added_job_runs_and_the_group_ends_after_it(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    answer = await add(group, new("b"), new("c", "b"))
    assert (answer.state, answer.staged) == (G.RUNNING, 3)
    assert await group.claim() == {"b"}
    await group.end("a")
    await group.settle()
    assert await group.group_state() is G.RUNNING
    await group.end("b")
    await group.settle()
    assert await group.claim() == {"c"}
    await group.end("c")
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert shown.jobs == 3


async def test_an_added_job_waits_for_one_that_runs(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    await group.claim()
    await add(group, new("c", "a b"))
    assert (await group.look())["c"].unmet == 2
    await group.end("a")
    assert await group.claim() == set()
    await group.end("b")
    await group.settle()
    assert await group.claim() == {"c"}


async def test_an_added_job_hears_of_what_ended_before(scene: Scene) -> None:
    """It counts only what has not ended, and is told of no end twice."""
    group = await scene.submit_group(a_group({"a": "", "b": "", "z": ""}))
    await group.claim()
    await group.end("a")
    await group.settle()
    await add(group, new("one", "a"), new("both", "a b"), new("all", "a b z"))
    views = await group.look()
    assert [views[key].unmet for key in ("one", "both", "all")] == [0, 1, 2]
    assert await group.claim() == {"one"}
    await group.end("b")
    await group.settle()
    assert await group.claim() == {"both"}
    assert await troubles(scene, group) == []


async def test_an_end_that_is_still_to_be_told_reaches_an_added_job_once(scene: Scene) -> None:
    """A cancel notes its end; who is added before that is told hears of it by the note."""
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    [running] = await group.claim(1)
    [gone] = {"a", "b"} - {running}
    await scene.store.cancel([group.jobs[gone]], "me")
    await add(group, new("c", "a b", ON.ENDED))
    assert (await group.look())["c"].unmet == 2
    await group.settle()
    view = (await group.look())["c"]
    assert (view.unmet, view.state) == (1, S.WAITING)
    await group.end(running)
    await group.settle()
    assert await group.claim() == {"c"}


@pytest.mark.parametrize(
    ("how", "on", "state"),
    [
        (Failed, ON.SUCCEEDED, S.DEPENDENCY_FAILED),
        (Failed, ON.ENDED, S.READY),
        (Failed, ON.FAILED, S.READY),
        (Skipped, ON.SUCCEEDED, S.SKIPPED),
        (Succeeded, ON.FAILED, S.SKIPPED),
    ],
)
async def test_the_condition_of_an_added_job_holds_for_what_ended_before(
    scene: Scene, how: type[End], on: Condition, state: JobState
) -> None:
    group = await scene.submit_group(a_group({"a": "", "z": ""}))
    await group.claim()
    await group.end("a", how=how)
    await group.settle()
    await add(group, new("b", "a", on), new("below", "b"))
    assert await group.state("b") is state
    if state is S.DEPENDENCY_FAILED:
        await group.settle()
        assert await group.state("below") is S.DEPENDENCY_FAILED
        reason, words = await error_of(scene, group, "below")
        assert reason is Reason.DEPENDENCY_FAILED
        assert words.startswith("'a' failed"), "the root is named"


async def test_an_added_job_waits_for_what_its_dependency_added(scene: Scene) -> None:
    group = await grown(scene)
    await add(group, new("late", "a"))
    await group.end("a/x")
    await group.settle()
    assert await group.claim() == set()
    await group.end("a/y")
    await group.settle()
    assert await group.claim() == {"d", "late"}


async def test_an_added_job_takes_the_result_of_one_that_ended(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "z": ""}))
    await group.claim()
    await group.end("a", result=pack(7, "seven"))
    await add(group, new("b", "a", job=needs(Reference("a"))))
    await group.claim()
    assert unpack(group.running["b"].args) == {"a0": 7}


async def test_maps_gates_and_sub_groups_can_be_added(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await add(
        group,
        new("part/x"),
        new("part/y", "part/x"),
        new("part", job=a_job(kind=SCOPE)),
        new("m", job=a_map(range(2))),
        new("gate", "part", job=a_job(kind=GATE)),
        new("last", "m gate"),
    )
    await group.settle()
    await group.end("a")
    assert await run_to_the_end(group) == [{"part/x", "m/0", "m/1"}, {"part/y"}]
    assert await group.group_state() is G.RUNNING
    await scene.store.open_gate(group.id, "gate")
    await group.settle()
    assert await run_to_the_end(group) == [{"last"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_an_added_job_may_add_others(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await add(group, new("b"), new("c", "b"))
    await group.claim()
    await group.end("b", adds=TWO)
    await group.settle()
    await group.end("a")
    assert await run_to_the_end(group) == [{"b/x", "b/y"}, {"c"}]


async def test_what_joins_a_sub_group_keeps_its_dependents_waiting(scene: Scene) -> None:
    group = await with_a_sub_group(scene)
    await group.settle()
    await group.claim()
    await add(group, new("part/y", "part/x"))
    await group.end("part/x")
    await group.settle()
    assert await group.claim() == {"part/y"}
    assert await group.state("d") is S.WAITING
    await group.end("part/y")
    await group.settle()
    answer = await refused(group, new("part/z"))
    assert answer.code == WrongState.code
    assert "the sub-group 'part' is over" in answer.message
    assert await group.claim() == {"d"}
    assert await troubles(scene, group) == []


async def test_what_joins_a_sub_group_cannot_wait_for_its_dependents(scene: Scene) -> None:
    group = await with_a_sub_group(scene)
    answer = await refused(group, new("part/y", "d"))
    assert answer.code == InvalidInput.code
    assert "depends on 'd', which might wait for that" in answer.message


# pauses, retries, runs


async def test_jobs_added_to_a_paused_group_wait_for_its_resume(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    await group.claim()
    await group.end("a")
    await scene.store.pause_group(group.id, True)
    await group.settle()
    await add(group, new("c", "a"), new("e"))
    await group.settle()
    assert await group.claim() == set()
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"c", "e"}


async def test_a_retry_keeps_what_was_added_and_counts_it(scene: Scene) -> None:
    """Also a job under the name of a sub-group does not take away what was added there before."""
    group = await scene.submit_group(a_group({"a": "", "z": ""}))
    await group.claim()
    await add(group, new("desk/x", "a"), new("b", "a"))
    await add(group, new("desk", "a"))
    await group.end("a")
    await group.settle()
    await group.claim()
    await group.end("desk/x", "b", "desk")
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["desk"])
    assert plan is not None
    assert (plan.reopened, plan.retired) == (("desk",), ())
    await group.settle()
    assert await group.claim() == {"desk"}
    await group.end("desk")
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["a"])
    assert plan is not None
    assert (set(plan.reopened), plan.retired) == ({"a", "desk/x", "b", "desk"}, ())
    await group.settle()
    await group.claim()
    await group.end("a", "z")
    assert await run_to_the_end(group) == [{"desk/x", "b", "desk"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_new_run_has_what_was_added(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await add(group, new("b", "a"), new("c", "b"))
    await group.end("a")
    await group.claim()
    await group.end("b", how=Failed)
    await group.settle()
    run = new_id()
    plan = await scene.store.rerun_group(group.id, run)
    assert plan is not None
    assert (plan.keys, plan.taken_over) == (("b", "c"), 1)
    again = await group.of_run(run)
    await again.settle()
    assert await run_to_the_end(again) == [{"b"}, {"c"}]


# once


async def test_a_repeated_request_adds_nothing(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    request, nodes = new_id(), [new("b", "a"), new("c")]
    first = await scene.store.add_to_group(group.id, request, nodes)
    assert isinstance(first, GroupSubmitted)
    assert await scene.store.add_to_group(first.number, request, nodes) == first
    other = await scene.store.add_to_group(group.id, request, [new("b"), new("x")])
    assert isinstance(other, Refused)
    assert other.code == Conflict.code
    await group.look()
    await group.end("a")
    await run_to_the_end(group)
    again = await scene.store.add_to_group(group.id, request, nodes)
    assert again == GroupSubmitted(group.id, first.number, G.SUCCEEDED, 3)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_an_addition_whose_answer_is_lost_is_made_once(scene: Scene, fault: Fault) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    faulty = FaultyStore(scene.store, scripted(("add_to_group", fault), ("add_to_group", None)))
    request = new_id()
    for turn in range(2):
        try:
            answer = await faulty.add_to_group(group.id, request, [new("b", "a")])
        except Exception:
            assert turn == 0
            continue
        assert isinstance(answer, GroupSubmitted)
        assert answer.staged == 2
    assert len(await group.look()) == 2


# refused


async def test_an_addition_to_a_group_that_does_not_run_is_refused(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await scene.store.cancel_group(group.id, "me")
    answer = await refused(group, new("b"))
    assert answer.code == WrongState.code
    assert "it is being cancelled" in answer.message
    await group.end("a")
    await group.settle()
    answer = await refused(group, new("b"))
    assert "it has ended (cancelled)" in answer.message
    assert await scene.store.add_to_group(new_id(), new_id(), [new("b")]) is None
    assert await scene.store.add_to_group(2**70, new_id(), [new("b")]) is None


async def test_keys_of_an_addition_that_are_taken_or_unknown_are_refused(scene: Scene) -> None:
    group = await grown(scene)
    for node, code, words in (
        (new("a"), Conflict, "job 'a': the group has a job with this key"),
        (new("b", "dd"), InvalidInput, "depends on 'dd', which the group does not have"),
        (new("a/z"), InvalidInput, "it lies below the job 'a'"),
        (new("b", "a/x"), InvalidInput, "'a/x', which the job 'a' added"),
    ):
        answer = await refused(group, new("first"), node)
        assert answer.code == code.code
        assert words in answer.message


async def test_a_unique_key_that_another_job_has_refuses_an_addition(scene: Scene) -> None:
    await scene.accepted(a_job(unique_key="k"))
    group = await scene.submit_group(a_group({"a": ""}))
    answer = await refused(group, new("b"), new("c", job=a_job(unique_key="k")))
    assert answer.code == Conflict.code
    assert "unique key 'k'" in answer.message
    twice = [new(key, job=a_job(unique_key="n")) for key in "xy"]
    assert (await refused(group, *twice)).code == Conflict.code


async def test_an_addition_past_a_limit_is_refused(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    answer = await refused(group, new("b"), new("c"), max_group_jobs=3)
    assert answer.code == TooLarge.code
    assert "max_group_jobs is 3" in answer.message
    answer = await refused(group, new("b", "a d"), max_group_edges=2)
    assert answer.code == TooLarge.code
    assert "it has 1 dependencies, 2 more" in answer.message
    await add(group, new("b", "a"))
    answer = await refused(group, new("c", "a"), max_group_edges=2)
    assert "it has 2 dependencies" in answer.message


async def test_dependencies_are_counted_also_after_growth_and_a_retry(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await add(group, new("b", "a"))
    await group.end("a", adds=additions({"x": "", "y": "x"}))
    await group.settle()
    assert (
        "it has 3 dependencies" in (await refused(group, new("c", "a"), max_group_edges=3)).message
    )
    await group.claim()
    await group.end("a/x")
    await group.claim()
    await group.end("a/y")
    await group.settle()
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["a"])
    assert plan is not None
    assert set(plan.retired) == {"a/x", "a/y"}
    assert (
        "it has 2 dependencies" in (await refused(group, new("c", "a"), max_group_edges=2)).message
    )
