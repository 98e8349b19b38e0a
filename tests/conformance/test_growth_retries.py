"""Retries of groups that grew: what a job added leaves the group when the job runs again."""

from __future__ import annotations

import pytest

from longshore.model.ends import Cancelled, End, Failed, Succeeded
from longshore.model.group import Condition, GroupState, RetryPlan
from longshore.model.job import CancelVerdict, JobState, RetryVerdict
from longshore.model.retention import GroupsPruned
from longshore.payload.maps import grown_id
from longshore.payload.values import pack, unpack
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, additions, done, new_id

from .conftest import ALSO_IN_STEPS
from .test_examined_groups import troubles
from .test_groups import run_to_the_end
from .test_growth import ONE, PAIR, TWO, error_of, grown
from .test_prune import AT_ONCE, counts, prune
from .test_prune_groups import prune_groups

pytestmark = ALSO_IN_STEPS

S = JobState
G = GroupState
ON = Condition


async def retried(
    scene: Scene, group: GroupScene, *keys: str, args: bytes | None = None
) -> RetryPlan:
    """The plan of a retry that was done, and all that follows from it at once."""
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=keys, args=args)
    assert plan is not None
    await group.settle()
    await group.look()
    return plan


async def jobs_of(scene: Scene, group: GroupScene) -> int:
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert sum(shown.counts.values()) == shown.jobs
    return shown.jobs


async def test_an_added_job_that_failed_is_retried_alone(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", how=Failed)
    await group.end("a/y")
    await group.settle()
    assert await group.group_state() is G.FAILED
    plan = await retried(scene, group)
    assert (set(plan.reopened), plan.retired) == ({"a/x", "d"}, ())
    assert (await group.look())["a"].open == 1
    assert await group.claim() == {"a/x"}
    assert await group.state("d") is S.WAITING
    await group.end("a/x", adds=ONE)
    await group.settle()
    assert await run_to_the_end(group) == [{"a/x/x"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_an_added_job_is_retried_while_others_in_its_scope_run(scene: Scene) -> None:
    """Its dependent was told early of the failure; now it waits again."""
    group = await grown(scene)
    await group.end("a/x", how=Failed)
    await group.settle()
    plan = await retried(scene, group)
    assert (set(plan.reopened), plan.refused) == ({"a/x", "d"}, "")
    await group.end("a/y")
    await group.settle()
    assert await group.state("d") is S.WAITING
    assert await run_to_the_end(group) == [{"a/x"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("how", [Failed, Cancelled])
async def test_what_cannot_run_after_a_retry_names_what_failed_before(
    scene: Scene, how: type[End]
) -> None:
    """`a` is not retried: `d` ends by what it heard of it in the round before."""
    group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a b"}))
    await group.claim()
    await group.end("a", how=how)
    await group.end("b")
    await group.settle()
    before = await error_of(scene, group, "d")
    assert "'a' " in before[1]
    plan = await retried(scene, group, "b")
    assert set(plan.reopened) == {"b", "d"}
    assert await error_of(scene, group, "d") == before


async def test_what_cannot_run_after_a_retry_names_what_failed_in_a_scope(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a b"}))
    await group.claim()
    await group.end("a", adds=TWO)
    await group.claim()
    await group.end("a/x", how=Failed)
    await group.end("b")
    await group.settle()
    before = await error_of(scene, group, "d")
    assert "'a/x' failed" in before[1]
    await retried(scene, group, "b")
    assert await error_of(scene, group, "d") == before


async def test_a_second_failure_after_a_retry_is_told_again(scene: Scene) -> None:
    group = await grown(scene)
    for _ in range(2):
        await group.end("a/x", how=Failed)
        await group.settle()
        assert await group.state("d") is S.DEPENDENCY_FAILED
        await retried(scene, group)
        assert await group.claim() == {"a/x"}
    await group.end("a/x", "a/y")
    await group.settle()
    assert await run_to_the_end(group) == [{"d"}]


async def test_the_adder_that_is_retried_retires_what_it_added(scene: Scene) -> None:
    """The second round adds other jobs with the same keys; the first ones are in no group."""
    group = await grown(scene)
    await group.end("a/x", how=Failed)
    await group.end("a/y")
    await group.settle()
    first = [group.jobs["a/x"], group.jobs["a/y"]]
    plan = await retried(scene, group, "a")
    assert (set(plan.reopened), set(plan.retired)) == ({"a", "d"}, {"a/x", "a/y"})
    assert set(group.jobs) == {"a", "d"}
    assert await jobs_of(scene, group) == 2
    assert await scene.states(first) == [S.FAILED, S.SUCCEEDED]
    assert [(await scene.job(id)).group for id in first] == [None, None]
    assert await group.claim() == {"a"}
    await group.end("a", adds=TWO)
    await group.settle()
    second = [group.jobs["a/x"], group.jobs["a/y"]]
    assert second == [grown_id(group.jobs["a"], 2, index) for index in range(2)]
    assert await group.state("d") is S.WAITING
    assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_second_round_may_add_nothing(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await group.settle()
    await retried(scene, group, "a")
    assert await run_to_the_end(group) == [{"a"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_all_below_an_added_job_leaves_with_it(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", adds=TWO)
    await group.claim()
    await group.end("a/x/x", "a/x/y", "a/y")
    await group.settle()
    await run_to_the_end(group)
    plan = await retried(scene, group, "a/x")
    assert (set(plan.reopened), set(plan.retired)) == ({"a/x", "d"}, {"a/x/x", "a/x/y"})
    assert set(group.jobs) == {"a", "d", "a/x", "a/y"}
    assert (await group.look())["a"].open == 1
    await group.claim()
    await group.end("a/x", adds=ONE)
    await group.settle()
    assert await run_to_the_end(group) == [{"a/x/x"}, {"d"}]
    plan = await retried(scene, group, "a")
    assert set(plan.retired) == {"a/x", "a/y", "a/x/x"}
    assert set(group.jobs) == {"a", "d"}
    assert await run_to_the_end(group) == [{"a"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_retired_jobs_that_have_not_begun_are_cancelled(scene: Scene) -> None:
    """Ready, delayed and waiting ones. How they end does not count for the group."""
    adds = additions({"x": "", "y": "x", "z": ""}, jobs={"z": a_job(delay_s=60.0)})
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=adds)
    await group.settle()
    old = [group.jobs[f"a/{key}"] for key in "xyz"]
    plan = await retried(scene, group, "a")
    assert set(plan.retired) == {"a/x", "a/y", "a/z"}
    assert await scene.states(old) == [S.CANCELLED] * 3
    assert await jobs_of(scene, group) == 2
    assert await run_to_the_end(group) == [{"a"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_waiters_of_a_retired_job_hear_of_its_end(scene: Scene) -> None:
    group = await grown(scene, ONE)
    await group.end("a/x", adds=ONE)
    old = group.jobs["a/x/x"]
    await retried(scene, group, "a/x")
    assert [one.state for one in await scene.store.ended([old])] == [S.CANCELLED]


async def test_a_retry_is_refused_while_an_added_job_runs(scene: Scene) -> None:
    group = await grown(scene)
    plan = await retried(scene, group, "a")
    assert (set(plan.running), plan.retired) == ({"a/x", "a/y"}, ())
    assert plan.refused
    assert set(group.jobs) == {"a", "d", "a/x", "a/y"}
    await scene.store.cancel([group.jobs["a/x"]])
    await group.end("a/y")
    assert (await retried(scene, group, "a")).running == ("a/x",)
    await group.end("a/x")
    await group.settle()
    assert (await retried(scene, group, "a")).refused == ""


async def test_a_dry_run_tells_what_would_leave_and_changes_nothing(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await group.settle()
    plan = await scene.store.retry_group(group.id, "me", keys=["a"], dry_run=True)
    assert plan is not None
    assert set(plan.retired) == {"a/x", "a/y"}
    assert set(await group.look()) == {"a", "d", "a/x", "a/y"}
    assert await run_to_the_end(group) == [{"d"}]


async def test_a_repeated_retry_gets_the_same_answer_and_retires_once(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await group.settle()
    request = new_id()
    first = await scene.store.retry_group(group.id, "me", request, keys=["a"])
    await group.settle()
    await group.claim()
    await group.end("a", adds=TWO)
    await group.settle()
    assert await scene.store.retry_group(group.id, "me", request, keys=["a"]) == first
    assert first is not None
    assert set(first.retired) == {"a/x", "a/y"}
    assert set(await group.look()) == {"a", "d", "a/x", "a/y"}
    assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]


async def test_detached_jobs_leave_with_what_else_their_adder_added(scene: Scene) -> None:
    """The second round adds them again under the same keys."""
    adds = additions({"x": "", "y": "x", "z": "y"}, detached=["y"])
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=adds)
    await run_to_the_end(group)
    plan = await retried(scene, group, "a")
    assert set(plan.retired) == {"a/x", "a/y", "a/z"}
    await group.claim()
    await group.end("a", adds=adds)
    assert await run_to_the_end(group) == [{"a/x"}, {"a/y"}, {"a/z"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_job_of_the_submitter_below_an_adder_does_not_leave(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR | {"a/own": ""}))
    await group.claim()
    await group.end("a/own")
    await group.end("a", adds=ONE)
    await run_to_the_end(group)
    plan = await retried(scene, group, "a")
    assert plan.retired == ("a/x",)
    assert set(group.jobs) == {"a", "d", "a/own"}


async def test_a_cancelled_group_that_grew_is_retried_where_it_stopped(scene: Scene) -> None:
    group = await grown(scene, additions({"x": "", "y": "x"}))
    await group.end("a/x")
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    assert await group.group_state() is G.CANCELLED
    plan = await retried(scene, group)
    assert (set(plan.reopened), plan.retired) == ({"a/y", "d"}, ())
    assert await run_to_the_end(group) == [{"a/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_what_a_cancelled_job_added_as_cancelled_runs_after_a_retry(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await scene.store.cancel([group.jobs["a"]])
    await group.end("a", adds=TWO)
    await group.settle()
    assert await group.group_state() is G.FAILED
    assert set((await retried(scene, group)).reopened) == {"a/x", "a/y", "d"}
    assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]


async def test_a_paused_group_that_grew_is_retried_and_stays_paused(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await scene.store.pause_group(group.id, True)
    await group.settle()
    await retried(scene, group, "a")
    assert await group.claim() == set()
    assert await group.group_state() is G.PAUSED
    await scene.store.pause_group(group.id, False)
    await group.settle()
    await group.claim()
    await group.end("a", adds=ONE)
    assert await run_to_the_end(group) == [{"a/x"}, {"d"}]


async def test_a_finish_of_an_earlier_round_adds_nothing(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    late = done(group.running["a"], adds=TWO)
    await group.end("a", how=Failed)
    await group.settle()
    await retried(scene, group, "a")
    await scene.finish(late)
    await group.claim()
    await scene.finish(late)
    assert set(await group.look()) == {"a", "d"}
    assert await group.state("a") is S.RUNNING


async def test_a_retired_job_is_a_job_like_others(scene: Scene) -> None:
    """It is listed, retried and pruned by itself, and its group is not."""
    group = await grown(scene)
    await group.end("a/x", how=Failed)
    await group.end("a/y")
    await group.settle()
    failed, succeeded = group.jobs["a/x"], group.jobs["a/y"]
    await retried(scene, group, "a")
    assert await scene.store.retry([failed]) == [(failed, RetryVerdict.RETRIED)]
    await group.claim()
    await scene.settle()
    attempts = {one.id: one for one in await scene.store.placed([group._slot])}
    await scene.finish(done(attempts[failed]), done(attempts[group.jobs["a"]]))
    assert await scene.store.cancel([failed]) == [(failed, CancelVerdict.ALREADY_ENDED)]
    assert await prune(scene.store, AT_ONCE) == {S.SUCCEEDED: 2}
    assert await scene.store.job(succeeded) is None
    assert await run_to_the_end(group) == [{"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_group_is_pruned_without_what_left_it(scene: Scene, backend: Backend) -> None:
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await group.settle()
    await retried(scene, group, "a")
    await run_to_the_end(group)
    assert await prune_groups(scene.store) == GroupsPruned(1, 2, done=True)
    assert await counts(scene.store) == {"succeeded": 2}
    assert await prune(scene.store, AT_ONCE) == {S.SUCCEEDED: 2}
    assert await backend.group_rows() == 0


@pytest.mark.parametrize("how", [Failed, Succeeded])
async def test_a_group_ends_as_the_last_round_did(scene: Scene, how: type[Failed]) -> None:
    """What retired jobs came to is not counted, and nothing is counted twice."""
    group = await grown(scene, additions({"x": "", "y": "", "z": ""}))
    await group.end("a/x", how=Failed)
    await group.end("a/y")
    await scene.store.cancel([group.jobs["a/z"]])
    await group.end("a/z")
    await group.settle()
    await retried(scene, group, "a")
    assert await troubles(scene, group) == []
    await group.claim()
    await group.end("a", adds=TWO)
    await group.claim()
    await group.end("a/y")
    await group.settle()
    assert await group.group_state() is G.RUNNING
    assert await troubles(scene, group) == []
    await group.end("a/x", how=how)
    await group.settle()
    await run_to_the_end(group)
    assert await group.group_state() is (G.FAILED if how is Failed else G.SUCCEEDED)
    assert await jobs_of(scene, group) == 4


async def test_nodes_are_listed_by_pages_although_some_left_the_group(scene: Scene) -> None:
    """Whoever lists them counts those that came, and asks for those after."""
    group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a", "e": "b"}))
    await group.claim()
    await group.end("a", adds=TWO)
    await group.end("b", adds=TWO)
    await run_to_the_end(group)
    await retried(scene, group, "a")
    found: list[str] = []
    while page := await scene.store.nodes(group.id, len(found) - 1, 2):
        found += [node.key for node in page]
    assert found == [*(key for key in group.jobs if "/" not in key), "b/x", "b/y"]


async def test_places_that_are_free_again_do_not_confuse_what_is_added_later(
    scene: Scene,
) -> None:
    """Of two adders, the first is retried: what the second added stays, with its edges."""
    after = {"a": "", "b": "", "d": "a", "e": "b"}
    group = await scene.submit_group(a_group(after))
    await group.claim()
    adds = additions({"x": "", "y": "x"})
    await group.end("a", adds=adds)
    await group.end("b", adds=adds)
    await group.claim()
    await group.end("a/x", "b/x")
    await group.claim()
    await group.end("a/y")
    await group.settle()
    await retried(scene, group, "a")
    assert set(group.jobs) == {"a", "b", "d", "e", "b/x", "b/y"}
    await group.claim()
    await group.end("a", adds=adds)
    views = await group.look()
    assert views["a/y"].after == ("a/x",)
    assert views["b/y"].after == ("b/x",)
    assert (views["a/x"].scope, views["b/x"].scope) == ("a", "b")
    assert list(views)[-2:] == ["a/x", "a/y"]
    plan = await scene.store.retry_group(group.id, "me", keys=["b/x"], dry_run=True)
    assert plan is not None
    assert plan.running == ("b/y",)
    await group.end("b/y")
    await group.settle()
    assert await run_to_the_end(group) == [{"a/x", "e"}, {"a/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


# other arguments


async def test_one_job_is_retried_with_other_arguments(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    other = pack({"n": 2}, "arguments")
    plan = await retried(scene, group, "a", args=other)
    assert set(plan.reopened) == {"a", "d"}
    await group.claim()
    assert unpack(group.running["a"].args) == {"n": 2}
    assert (await scene.job(group.jobs["a"])).args == other
    assert await run_to_the_end(group) == []
    await group.end("a")
    await group.claim()
    assert unpack(group.running["d"].args) == {}


async def test_a_refused_or_dry_retry_leaves_the_arguments(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    before = (await scene.job(group.jobs["a"])).args
    other = pack({"n": 2}, "arguments")
    await group.claim()
    assert (await retried(scene, group, "a", args=other)).refused
    await group.end("a", how=Failed)
    await group.settle()
    await scene.store.retry_group(group.id, "me", keys=["a"], args=other, dry_run=True)
    assert (await scene.job(group.jobs["a"])).args == before


async def test_a_group_with_other_arguments_is_still_the_same_to_its_submitter(
    scene: Scene,
) -> None:
    part = a_group(PAIR)
    group = await scene.submit_group(part)
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    await retried(scene, group, "a", args=pack({"n": 2}, "arguments"))
    again = await scene.store.submit_group(part)
    assert getattr(again, "state", None) is G.RUNNING
