"""Sub-groups: nodes that are depended on as a whole."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.ends import Cancelled, Failed, Skipped
from longshore.model.group import SCOPE, Condition, GroupPart, GroupState, GroupSubmitted
from longshore.model.job import JobState, Reason, Refused
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, additions, new_id

from .test_examined_groups import troubles
from .test_groups import parts, run_to_the_end
from .test_growth import error_of

S = JobState
G = GroupState
ON = Condition

A_SCOPE = a_job(kind=SCOPE)
WHOLE = {"s": "", "s/x": "", "s/y": "s/x", "d": "s"}
INSIDE = {"s/x": "s", "s/y": "s"}
NESTED = {"s": "", "s/t": "", "s/t/x": "", "s/y": "", "d": "s", "e": "s/t"}
IN_NESTED = {"s/t": "s", "s/t/x": "s/t", "s/y": "s"}


def a_sub_group(on: Condition = ON.SUCCEEDED) -> GroupPart:
    """A group of a sub-group `s` and of `d`, which depends on it."""
    return a_group(WHOLE, {"d": on}, jobs={"s": A_SCOPE}, scopes=INSIDE)


def nested() -> GroupPart:
    """A group with a sub-group in a sub-group."""
    return a_group(NESTED, jobs={"s": A_SCOPE, "s/t": A_SCOPE}, scopes=IN_NESTED)


async def test_whoever_depends_on_a_sub_group_waits_for_all_of_it(scene: Scene) -> None:
    group = await scene.submit_group(a_sub_group())
    await group.settle()
    assert await group.state("s") is S.SUCCEEDED, "its own node has nothing to do"
    assert await run_to_the_end(group) == [{"s/x"}, {"s/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_members_are_shown_with_their_scope(scene: Scene) -> None:
    group = await scene.submit_group(a_sub_group())
    views = await group.look()
    assert {key: view.scope for key, view in views.items()} == {
        "s": None,
        "d": None,
        "s/x": "s",
        "s/y": "s",
    }
    assert views["s"].open == 2
    await group.settle()
    await group.claim()
    await group.end("s/x")
    await group.settle()
    assert (await group.look())["s"].open == 1
    facts = (await scene.store.explain(await scene.job(group.jobs["d"]))).node
    assert facts is not None
    assert facts.waits_for == (("s", S.SUCCEEDED),)


async def test_members_may_end_before_the_node_of_their_sub_group(scene: Scene) -> None:
    """Nobody has settled yet when they do."""
    group = await scene.submit_group(a_sub_group())
    for key in ("s/x", "s/y"):
        assert await group.claim() == {key}
        await group.end(key)
    await group.settle()
    assert await group.claim() == {"d"}


async def test_an_empty_sub_group_is_closed_at_once(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"s": "", "d": "s"}, jobs={"s": A_SCOPE}))
    await group.settle()
    assert await run_to_the_end(group) == [{"d"}]


async def test_a_sub_group_in_a_sub_group_is_waited_for(scene: Scene) -> None:
    group = await scene.submit_group(nested())
    await group.settle()
    assert await group.claim() == {"s/t/x", "s/y"}
    await group.end("s/y")
    await group.settle()
    assert await group.claim() == set()
    await group.end("s/t/x")
    await group.settle()
    assert await group.claim() == {"d", "e"}


async def test_the_inner_of_two_sub_groups_is_done_before_the_outer(scene: Scene) -> None:
    group = await scene.submit_group(nested())
    await group.settle()
    await group.claim()
    await group.end("s/t/x")
    await group.settle()
    assert await group.claim() == {"e"}
    assert await group.state("d") is S.WAITING


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("size", [1, 3])
async def test_a_sub_group_may_come_in_several_parts(
    scene: Scene, size: int, backwards: bool
) -> None:
    whole = nested()
    some = parts(whole, size)
    for part in reversed(some) if backwards else some:
        for _ in range(2):
            answer = await scene.store.submit_group(part)
            assert isinstance(answer, GroupSubmitted), answer
    group = GroupScene(scene, whole, await scene.attend())
    await group.settle()
    views = await group.look()
    assert (views["s"].open, views["s/t"].open) == (2, 1)
    assert await run_to_the_end(group) == [{"s/t/x", "s/y"}, {"d", "e"}]
    assert await group.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("scope", [0, 1, 7])
@pytest.mark.parametrize("size", [1, 2])
async def test_a_scope_that_is_none_refuses_the_group(scene: Scene, scope: int, size: int) -> None:
    """It is a job like others, or there is no such place."""
    whole = a_group({"a": "", "b": ""})
    nodes = tuple(structs.replace(node, scope=scope) for node in whole.nodes[:1])
    bad = structs.replace(whole, nodes=(*nodes, *whole.nodes[1:]))
    *some, last = parts(bad, size)
    for part in some:
        assert isinstance(await scene.store.submit_group(part), GroupSubmitted)
    answer = await scene.store.submit_group(last)
    assert isinstance(answer, Refused)
    assert f"'{whole.nodes[0].key}'" in answer.message
    await scene.settle()
    shown = await scene.store.group(whole.head.id)
    assert (shown is None) if size == 2 else (shown is not None and shown.state is G.STAGING)


async def test_sub_groups_that_are_in_each_other_refuse_the_group(scene: Scene) -> None:
    jobs, scopes = {"s": A_SCOPE, "t": A_SCOPE}, {"s": "t", "t": "s"}
    answer = await scene.store.submit_group(a_group({"s": "", "t": ""}, jobs=jobs, scopes=scopes))
    assert isinstance(answer, Refused)


async def test_a_part_sent_again_with_another_scope_is_refused(scene: Scene) -> None:
    first, *_ = parts(nested(), 4)
    assert isinstance(await scene.store.submit_group(first), GroupSubmitted)
    nodes = tuple(structs.replace(node, scope=None) for node in first.nodes)
    answer = await scene.store.submit_group(structs.replace(first, nodes=nodes))
    assert isinstance(answer, Refused)
    assert answer.code == "conflict"


async def test_a_failure_in_a_sub_group_is_told_at_once(scene: Scene) -> None:
    after = WHOLE | {"s/z": ""}
    part = a_group(after, jobs={"s": A_SCOPE}, scopes=INSIDE | {"s/z": "s"})
    group = await scene.submit_group(part)
    await group.settle()
    await group.claim()
    await group.end("s/x", how=Failed)
    await group.settle()
    wanted = (Reason.DEPENDENCY_FAILED, "'s/x' failed: ValueError: it did not work")
    assert await error_of(scene, group, "d") == wanted
    assert await group.state("s/z") is S.RUNNING


async def test_a_member_that_failed_before_the_group_was_settled_is_told(scene: Scene) -> None:
    """The node of the sub-group has not ended by then."""
    group = await scene.submit_group(a_sub_group())
    await group.claim()
    await group.end("s/x", how=Failed)
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED
    assert await group.group_state() is G.FAILED


@pytest.mark.parametrize(("on", "state"), [(ON.ENDED, S.READY), (ON.FAILED, S.READY)])
async def test_conditions_on_a_sub_group_that_failed(
    scene: Scene, on: Condition, state: JobState
) -> None:
    group = await scene.submit_group(a_sub_group(on))
    await group.settle()
    await group.claim()
    await group.end("s/x", how=Failed)
    await group.settle()
    assert await group.state("s/y") is S.DEPENDENCY_FAILED
    assert await group.state("d") is state


async def test_a_skip_in_a_sub_group_skips_what_depends_on_it(scene: Scene) -> None:
    group = await scene.submit_group(a_sub_group())
    await group.settle()
    await group.claim()
    await group.end("s/x", how=Skipped)
    await group.settle()
    assert await group.state("d") is S.SKIPPED


async def test_a_sub_group_that_depends_on_others_waits_for_them(scene: Scene) -> None:
    """Its members depend on the same; its own node does too."""
    after = {"a": "", "s": "a", "s/x": "a", "d": "s"}
    one, other = (a_group(after, jobs={"s": A_SCOPE}, scopes={"s/x": "s"}) for _ in range(2))
    group = await scene.submit_group(one)
    await group.settle()
    assert await run_to_the_end(group) == [{"a"}, {"s/x"}, {"d"}]
    group = await scene.submit_group(other)
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    assert set((await group.states()).values()) == {S.FAILED, S.DEPENDENCY_FAILED}
    assert await group.group_state() is G.FAILED


async def test_a_sub_group_waits_for_what_its_members_add(scene: Scene) -> None:
    group = await scene.submit_group(a_sub_group())
    await group.settle()
    await group.claim()
    await group.end("s/x")
    await group.claim()
    await group.end("s/y", adds=additions({"n": ""}))
    await group.settle()
    assert await group.state("d") is S.WAITING
    assert await run_to_the_end(group) == [{"s/y/n"}, {"d"}]


async def test_a_job_adds_a_sub_group_of_jobs_below_it(scene: Scene) -> None:
    """What it adds is its scope: whoever depends on it depends on the whole."""
    group = await scene.submit_group(a_group({"a": "", "d": "a"}))
    await group.claim()
    await group.end("a", adds=additions({"t/x": "", "t/y": "t/x"}))
    assert await run_to_the_end(group) == [{"a/t/x"}, {"a/t/y"}, {"d"}]


async def test_a_cancelled_group_with_sub_groups_ends(scene: Scene) -> None:
    group = await scene.submit_group(nested())
    await group.claim()
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    await group.end(*group.running, how=Cancelled)
    await group.settle()
    assert await group.group_state() is G.CANCELLED
    assert S.WAITING not in (await group.states()).values()


async def test_a_sub_group_in_a_paused_group_goes_on_with_it(scene: Scene) -> None:
    group = await scene.submit_group(nested())
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert set((await group.states()).values()) == {S.WAITING}
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await run_to_the_end(group) == [{"s/t/x", "s/y"}, {"d", "e"}]


async def test_a_retry_of_a_failed_member_opens_what_depends_on_the_sub_group(
    scene: Scene,
) -> None:
    group = await scene.submit_group(nested())
    await group.settle()
    await group.claim()
    await group.end("s/t/x", how=Failed)
    await group.end("s/y")
    await group.settle()
    assert await group.group_state() is G.FAILED
    plan = await scene.store.retry_group(group.id, "me", new_id())
    assert plan is not None
    assert (set(plan.reopened), plan.retired) == ({"s/t/x", "d", "e"}, ())
    await group.settle()
    views = await group.look()
    assert (views["s"].open, views["s/t"].open) == (1, 1)
    assert await run_to_the_end(group) == [{"s/t/x"}, {"d", "e"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_sub_group_is_retried_by_its_prefix(scene: Scene) -> None:
    group = await scene.submit_group(nested())
    await group.settle()
    await run_to_the_end(group)
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["s/t/"])
    assert plan is not None
    assert set(plan.reopened) == {"s/t/x", "d", "e"}
    await group.settle()
    assert await run_to_the_end(group) == [{"s/t/x"}, {"d", "e"}]


async def test_the_key_of_a_sub_group_names_all_of_it(scene: Scene) -> None:
    """Its own node has nothing to do, so to open that one alone would be of no use."""
    group = await scene.submit_group(a_sub_group())
    await group.settle()
    await run_to_the_end(group)
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["s"])
    assert plan is not None
    assert (set(plan.reopened), plan.retired) == ({"s/x", "s/y", "d"}, ())
    await group.settle()
    assert await run_to_the_end(group) == [{"s/x"}, {"s/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_sub_group_on_which_nothing_depends_is_retried_too(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"s/x": "", "s/y": "s/x", "d": ""}))
    await run_to_the_end(group)
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["s"])
    assert plan is not None
    assert (set(plan.reopened), plan.refused) == ({"s/x", "s/y"}, "")


@pytest.mark.parametrize("key", ["s", "s/"])
async def test_a_sub_group_that_was_cancelled_whole_runs_again(scene: Scene, key: str) -> None:
    """Its own node was never reached: it opens with its members, and `d` need not fail."""
    group = await scene.submit_group(a_sub_group())
    await scene.store.pause_group(group.id, True)
    await group.settle()
    await scene.store.cancel_group(group.id)
    await group.settle()
    assert await group.state("s") is S.CANCELLED
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=[key])
    assert plan is not None
    assert set(plan.reopened) == {"s", "s/x", "s/y", "d"}
    await group.settle()
    assert await run_to_the_end(group) == [{"s/x"}, {"s/y"}, {"d"}]


async def test_nothing_is_wrong_with_sub_groups_while_they_run(
    scene: Scene, backend: Backend
) -> None:
    group = await scene.submit_group(nested())
    assert await troubles(scene, group) == []
    await group.settle()
    await group.claim()
    await group.end("s/t/x")
    assert await troubles(scene, group) == []
    await group.settle()
    assert await troubles(scene, group) == []
    await backend.force_open(group.jobs["s"], 7)
    [found] = await scene.store.examine_group(group.id, repair=True)
    assert found.job == group.jobs["s"]
    await group.end("s/y")
    await group.settle()
    assert await group.claim() == {"d", "e"}
