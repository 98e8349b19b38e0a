"""Groups that grow: a job adds others with its success, and what depends on it waits for them."""

from __future__ import annotations

from collections import Counter

import pytest

from longshore.core.group_limits import MAX_KEY_CHARS, MAX_MAP_KEY_CHARS
from longshore.model.ends import Cancelled, End, Failed, Retried, Skipped, Succeeded
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobFilter, JobState, Reason, Verdict
from longshore.model.reports import OutboxNode
from longshore.model.retention import GroupsPruned
from longshore.payload.maps import grown_id
from longshore.payload.references import Reference
from longshore.payload.values import pack, unpack
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    a_map,
    additions,
    done,
    needs,
    new_id,
)

from .test_examined_groups import troubles
from .test_groups import run_to_the_end
from .test_prune_groups import prune_groups

S = JobState
G = GroupState
ON = Condition

PAIR = {"a": "", "d": "a"}
ONE = additions({"x": ""})
TWO = additions({"x": "", "y": ""})


async def grown(
    scene: Scene,
    adds: tuple[OutboxNode, ...] = TWO,
    after: dict[str, str] = PAIR,
    on: dict[str, Condition] | None = None,
) -> GroupScene:
    """A group whose job `a` succeeded and added these, which run."""
    group = await scene.submit_group(a_group(after, on))
    await group.settle()
    await group.claim()
    await group.end("a", adds=adds)
    await group.settle()
    await group.claim()
    return group


async def error_of(scene: Scene, group: GroupScene, key: str) -> tuple[Reason, str]:
    """Why a job of a group has failed."""
    error = (await scene.job(group.jobs[key])).error
    assert error is not None
    return error.reason, error.message


# adding


async def test_a_dependent_waits_for_all_that_its_dependency_added(scene: Scene) -> None:
    """G5: neither too early nor for ever, and the group ends after all of them."""
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    pumped = await group.end("a", adds=TWO)
    assert sum(pumped.ready_by_ends.values()) == 2
    assert [one.id for one in pumped.ended] == [group.jobs["a"]]
    assert await group.claim() == {"a/x", "a/y"}
    await group.end("a/x")
    await group.settle()
    assert await group.claim() == set()
    assert await group.state("d") is S.WAITING
    pumped = await group.end("a/y")
    assert group.id in pumped.groups, "whoever closes a scope hears that there is more to settle"
    await group.settle()
    assert await group.claim() == {"d"}
    assert await group.group_state() is G.RUNNING
    await group.end("d")
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_both_last_jobs_of_a_scope_may_end_in_one_batch(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await group.settle()
    assert await group.claim() == {"d"}


async def test_a_dependent_waits_for_what_added_jobs_add(scene: Scene) -> None:
    """However deep, and although those in between ended long ago."""
    group = await grown(scene, ONE)
    key = "a/x"
    for _ in range(5):
        await group.end(key, adds=TWO)
        await group.settle()
        assert await group.claim() == {f"{key}/x", f"{key}/y"}
        await group.end(f"{key}/y")
        await group.settle()
        assert await group.state("d") is S.WAITING
        key = f"{key}/x"
    await group.end(key)
    await group.settle()
    assert await group.claim() == {"d"}


async def test_added_jobs_depend_on_each_other(scene: Scene) -> None:
    adds = additions({"x": "", "y": "x", "z": "x y", "w": "x"}, {"w": ON.FAILED})
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=adds)
    assert await run_to_the_end(group) == [{"a/x"}, {"a/y"}, {"a/z"}]
    assert (await group.state("a/w"), await group.state("d")) == (S.SKIPPED, S.SKIPPED)


async def test_a_whole_grown_group_runs_in_waves(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "", "d": "b c"}))
    await group.claim()
    await group.end("a", adds=additions({"x": "", "y": "x"}))
    await group.end("c", adds=ONE)
    assert await run_to_the_end(group) == [{"a/x", "c/x"}, {"a/y"}, {"b"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_added_jobs_are_shown_with_their_scope_and_follow_the_others(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=additions({"x": "", "y": "x", "z": ""}, detached=["z"]))
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert (shown.jobs, sum(shown.counts.values())) == (5, 5)
    views = await group.look()
    assert list(views) == ["a", "d", "a/x", "a/y", "a/z"]
    assert [views[key].scope for key in views] == [None, None, "a", "a", None]
    assert (views["a"].open, views["a/x"].open) == (2, 0)
    assert (views["a/y"].after, views["a/y"].unmet) == (("a/x",), 1)
    ids = [grown_id(group.jobs["a"], 1, index) for index in range(3)]
    assert [view.job for view in views.values()][2:] == ids
    numbers = [view.number for view in views.values()]
    assert numbers == sorted(numbers)
    assert (await scene.job(group.jobs["a/x"])).group == group.id
    listed = (await scene.store.jobs(JobFilter(group=group.id))).jobs
    assert {job.id for job in listed} == set(group.jobs.values())
    later = await scene.store.nodes(group.id, after=2)
    assert [view.key for view in later] == ["a/y", "a/z"]


async def test_why_tells_of_a_scope_that_is_open(scene: Scene) -> None:
    group = await grown(scene)
    facts = (await scene.store.explain(await scene.job(group.jobs["d"]))).node
    assert facts is not None
    assert (facts.unmet, facts.waits_for) == (1, (("a", S.SUCCEEDED),))
    assert facts.group.jobs == 4


async def test_the_delay_of_an_added_job_counts_from_when_it_may_run(
    scene: Scene, backend: Backend
) -> None:
    late, later = a_job(delay_s=60.0, expires_s=30.0), a_job(delay_s=60.0)
    adds = additions({"x": "", "y": "x"}, jobs={"x": late, "y": later})
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=adds)
    await group.settle()
    assert await group.state("a/x") is S.DELAYED
    assert (await group.state("a/y")) is S.WAITING
    await backend.pass_time(61)
    assert (await scene.store.promote()).count == 1
    await backend.pass_time(31)
    assert [one.id for one in await scene.store.expire()] == [group.jobs["a/x"]]
    await group.settle()
    assert await group.state("a/y") is S.DEPENDENCY_FAILED


async def test_other_jobs_of_the_same_outbox_are_submitted_outside_the_group(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    own = a_job(kind="other")
    await scene.pump(finishes=[done(group.running.pop("a"), outbox=[own], adds=ONE)])
    assert (await scene.job(own.id)).group is None
    assert set(await group.look()) == {"a", "d", "a/x"}


async def test_an_added_job_that_is_tried_again_adds_once_it_succeeds(scene: Scene) -> None:
    group = await grown(scene, ONE)
    await group.end("a/x", how=Retried)
    await scene.store.promote()
    await group.settle()
    assert await group.claim() == {"a/x"}
    await group.end("a/x", adds=ONE)
    await group.settle()
    assert await group.state("d") is S.WAITING
    assert await run_to_the_end(group) == [{"a/x/x"}, {"d"}]


# what an attempt may not add, and when it adds nothing


async def test_a_stale_finish_adds_nothing(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    old = group.running.pop("a")
    await scene.store.harvest(old.worker, old.session, "lost", crash=False, crash_limit=3)
    [finished] = await scene.finish(done(old, adds=TWO))
    assert finished.verdict is Verdict.STALE
    assert set(await group.look()) == {"a", "d"}
    assert (await scene.job(group.jobs["a"])).state is S.READY


async def test_a_finish_repeated_after_a_lost_answer_adds_once(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    end = done(group.running.pop("a"), adds=TWO)
    verdicts = [(await scene.finish(end))[0].verdict for _ in range(3)]
    assert verdicts == [Verdict.RECORDED, Verdict.ALREADY_RECORDED, Verdict.ALREADY_RECORDED]
    await group.settle()
    assert (await group.look())["a"].open == 2
    assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]
    await scene.finish(end)
    await group.settle()
    assert (await group.look())["a"].open == 0
    assert await group.group_state() is G.SUCCEEDED


async def test_the_same_finish_twice_in_one_batch_adds_once(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    end = done(group.running.pop("a"), adds=TWO)
    await scene.pump(finishes=[end, end])
    assert (await group.look())["a"].open == 2
    assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]


@pytest.mark.parametrize("how", [Failed, Skipped, Cancelled])
async def test_only_a_success_adds(scene: Scene, how: type[End]) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", how=how, adds=TWO)
    await group.settle()
    assert set(group.jobs) == {"a", "d"}


async def check_refused(scene: Scene, group: GroupScene, says: str) -> None:
    """`a` failed because of what it added, without any of its outbox, and the group ends."""
    reason, message = await error_of(scene, group, "a")
    assert reason is Reason.INVALID_GROWTH
    assert says in message
    assert {"a", "d"} <= set(await group.look())
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED


async def refused(scene: Scene, adds: tuple[OutboxNode, ...], after: dict[str, str] = PAIR) -> str:
    """`a` adds what it may not: why not."""
    group = await scene.submit_group(a_group(after))
    await group.claim()
    sent = a_job(kind="sent")
    [finished] = await scene.finish(done(group.running.pop("a"), outbox=[sent], adds=adds))
    assert (finished.verdict, finished.state) == (Verdict.RECORDED, S.FAILED)
    assert await scene.store.job(sent.id) is None, "nothing of the outbox is stored"
    assert set(await group.look()) == set(after)
    reason, message = await error_of(scene, group, "a")
    assert reason is Reason.INVALID_GROWTH
    job = await scene.job(group.jobs["a"])
    assert (job.result, job.failures) == (None, 1)
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED
    return message


async def test_a_unique_key_that_a_live_job_holds_refuses_the_growth(scene: Scene) -> None:
    await scene.accepted(a_job(unique_key="k"))
    adds = additions({"x": "", "y": ""}, jobs={"y": a_job(unique_key="k")})
    assert "'k'" in await refused(scene, adds)


async def test_two_added_jobs_with_one_unique_key_refuse_the_growth(scene: Scene) -> None:
    jobs = {"x": a_job(unique_key="k"), "y": a_job(unique_key="k")}
    assert "'k'" in await refused(scene, additions({"x": "", "y": ""}, jobs=jobs))


async def test_a_key_that_the_group_has_refuses_the_growth(scene: Scene) -> None:
    assert "'a/x'" in await refused(scene, TWO, PAIR | {"a/x": ""})


async def test_a_key_that_is_too_long_refuses_the_growth(scene: Scene) -> None:
    long = "k" * MAX_KEY_CHARS
    assert f"{MAX_KEY_CHARS} characters" in await refused(scene, additions({"x": "", long: ""}))
    mapped = additions({long[:-5]: ""}, jobs={long[:-5]: a_map([1])})
    assert f"a map whose key below 'a' has more than {MAX_MAP_KEY_CHARS} characters" in (
        await refused(scene, mapped)
    )


async def test_a_job_that_no_store_can_hold_refuses_the_growth(scene: Scene) -> None:
    adds = additions({"x": "", "y": ""}, jobs={"y": a_job(kind="no\0")})
    assert "kind holds a NUL" in await refused(scene, adds)


async def test_a_job_in_no_group_cannot_add_to_one(scene: Scene) -> None:
    attempt = await scene.running()
    sent = a_job(kind="sent")
    [finished] = await scene.finish(done(attempt, outbox=[sent], adds=ONE))
    assert (finished.verdict, finished.state) == (Verdict.RECORDED, S.FAILED)
    error = (await scene.job(attempt.id)).error
    assert error is not None
    assert error.reason is Reason.INVALID_GROWTH
    assert "in no group" in error.message
    assert await scene.store.job(sent.id) is None


async def test_a_group_does_not_grow_past_its_limit(scene: Scene) -> None:
    """What fits is added, and what does not is refused whole."""
    group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a b"}))
    await group.claim()
    await group.end("b", adds=TWO, max_group_jobs=5)
    assert set(group.jobs) == {"a", "b", "d", "b/x", "b/y"}
    await group.end("a", adds=ONE, max_group_jobs=5)
    assert set(group.jobs) == {"a", "b", "d", "b/x", "b/y"}
    await check_refused(scene, group, "max_group_jobs is 5")
    await group.claim()
    await group.end("b/x", "b/y")
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_two_adders_in_one_batch_share_the_limit_and_unique_keys(scene: Scene) -> None:
    """The first of them in the batch comes first."""
    after = {"a": "", "b": "", "c": "", "d": "a"}
    group = await scene.submit_group(a_group(after))
    await group.claim()
    unique = additions({"x": ""}, jobs={"x": a_job(unique_key="k")})
    await group.end("b", "a", adds=unique, max_group_jobs=6)
    await check_refused(scene, group, "'k'")
    assert (await group.look())["b"].open == 1
    await group.claim()
    await group.end("c", "b/x", adds=ONE, max_group_jobs=6)
    reason, message = await error_of(scene, group, "b/x")
    assert reason is Reason.INVALID_GROWTH
    assert "max_group_jobs is 6" in message
    assert set(group.jobs) == {"a", "b", "c", "d", "b/x", "c/x"}


async def test_jobs_added_in_one_batch_are_numbered_in_the_order_of_its_finishes(
    scene: Scene,
) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    await group.claim()
    await group.end("b", "a", adds=TWO)
    numbers = {key: view.number for key, view in (await group.look()).items()}
    assert sorted(numbers, key=numbers.__getitem__)[2:] == ["b/x", "b/y", "a/x", "a/y"]


async def test_growth_that_is_refused_can_be_retried(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=TWO, max_group_jobs=3)
    await group.settle()
    assert await group.group_state() is G.FAILED
    await scene.store.retry_group(group.id, "me", new_id())
    await group.settle()
    await group.claim()
    await group.end("a", adds=TWO)
    assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


# how what was added ends


async def test_a_failure_in_a_scope_is_told_before_the_scope_is_closed(scene: Scene) -> None:
    """What cannot run any more need not wait, and it names the root."""
    group = await grown(scene)
    pumped = await group.end("a/x", how=Failed)
    assert group.id in pumped.groups
    await group.settle()
    assert await group.state("a/y") is S.RUNNING
    wanted = (Reason.DEPENDENCY_FAILED, "'a/x' failed: ValueError: it did not work")
    assert await error_of(scene, group, "d") == wanted
    assert await group.group_state() is G.RUNNING
    await group.end("a/y")
    await group.settle()
    assert await group.group_state() is G.FAILED
    assert (await group.look())["a"].open == 0


async def test_a_failure_deep_in_a_scope_is_told_through_all_around_it(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", adds=TWO)
    await group.claim()
    await group.end("a/x/y", adds=TWO)
    await group.claim()
    await group.end("a/x/y/x", how=Failed)
    await group.settle()
    wanted = (Reason.DEPENDENCY_FAILED, "'a/x/y/x' failed: ValueError: it did not work")
    assert await error_of(scene, group, "d") == wanted
    assert {"a/y", "a/x/x", "a/x/y/y"} == set(group.running)
    await group.end(*group.running)
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_a_dependency_that_was_cancelled_in_a_scope_is_named(scene: Scene) -> None:
    group = await grown(scene)
    await scene.store.cancel([group.jobs["a/x"]])
    await group.end("a/x", how=Cancelled)
    await group.settle()
    assert await error_of(scene, group, "d") == (
        Reason.DEPENDENCY_FAILED,
        "'a/x' was cancelled",
    )


async def test_on_failed_starts_at_the_first_failure_in_a_scope(scene: Scene) -> None:
    group = await grown(scene, after=PAIR | {"f": "a"}, on={"f": ON.FAILED})
    await group.end("a/x", how=Failed)
    await group.settle()
    assert await group.claim() == {"f"}
    await group.end("a/y", how=Failed)
    await group.settle()
    assert await group.state("f") is S.RUNNING
    assert await run_to_the_end(group) == []
    await group.end("f")
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_on_failed_is_skipped_when_all_in_a_scope_succeeded(scene: Scene) -> None:
    group = await grown(scene, after={"a": "", "f": "a"}, on={"f": ON.FAILED})
    await group.end("a/x")
    await group.settle()
    assert await group.state("f") is S.WAITING
    await group.end("a/y")
    await group.settle()
    assert await group.state("f") is S.SKIPPED
    assert await group.group_state() is G.SUCCEEDED


async def test_on_ended_waits_for_all_in_a_scope_however_they_end(scene: Scene) -> None:
    group = await grown(scene, after={"a": "", "e": "a"}, on={"e": ON.ENDED})
    await group.end("a/x", how=Failed)
    await group.settle()
    assert await group.state("e") is S.WAITING
    await scene.store.cancel([group.jobs["a/y"]])
    await group.end("a/y", how=Cancelled)
    await group.settle()
    assert await group.claim() == {"e"}


@pytest.mark.parametrize("order", [("a/x", "a/y"), ("a/y", "a/x")])
async def test_a_skip_in_a_scope_is_told_when_it_closes(
    scene: Scene, order: tuple[str, str]
) -> None:
    group = await grown(scene)
    for key in order:
        assert await group.state("d") is S.WAITING
        await group.end(key, how=Skipped if key == "a/x" else Succeeded)
        await group.settle()
    assert await group.state("d") is S.SKIPPED
    assert await group.group_state() is G.SUCCEEDED


async def test_a_failure_weighs_more_than_a_skip_in_a_scope(scene: Scene) -> None:
    group = await grown(scene)
    await group.end("a/x", how=Skipped)
    await group.settle()
    await group.end("a/y", how=Failed)
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED


async def test_nobody_waits_for_a_detached_job_but_the_group(scene: Scene) -> None:
    adds = additions({"x": "", "y": ""}, detached=["y"])
    group = await grown(scene, adds)
    await group.end("a/x")
    await group.settle()
    assert await group.claim() == {"d"}
    await group.end("d")
    await group.settle()
    assert await group.group_state() is G.RUNNING
    await group.end("a/y", how=Failed)
    await group.settle()
    assert await group.state("d") is S.SUCCEEDED
    assert await group.group_state() is G.FAILED


async def test_dependents_start_at_once_if_all_that_was_added_is_detached(scene: Scene) -> None:
    adds = additions({"x": "", "y": "x"}, detached=["x", "y"])
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=adds)
    assert await run_to_the_end(group) == [{"d", "a/x"}, {"a/y"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_group_does_not_end_with_the_job_that_adds(scene: Scene) -> None:
    """It was the last one, as far as the submitter knew."""
    for adds in (ONE, additions({"x": ""}, detached=["x"])):
        group = await scene.submit_group(a_group({"a": ""}))
        await group.claim()
        await group.end("a", adds=adds)
        await group.settle()
        assert await group.group_state() is G.RUNNING
        assert await run_to_the_end(group) == [{"a/x"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_fail_fast_cancels_what_was_added(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR, fail_fast=True))
    await group.claim()
    await group.end("a", adds=additions({"x": "", "y": "", "z": "y"}))
    await group.claim()
    await group.end("a/x", how=Failed)
    await group.settle()
    assert await group.state("a/y") is S.CANCELLING
    assert await group.state("a/z") is S.CANCELLED
    assert await group.state("d") in (S.CANCELLED, S.DEPENDENCY_FAILED)
    await group.end("a/y", how=Cancelled)
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_many_dependents_of_a_scope_are_all_reached(scene: Scene) -> None:
    wide = {f"w{n}": "a" for n in range(1_200)}
    group = await grown(scene, after={"a": ""} | wide)
    await group.end("a/x", "a/y")
    await group.settle()
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert shown.counts == {"succeeded": 3, "ready": 1_200}


async def test_an_attempt_adds_many_jobs_that_depend_on_each_other(scene: Scene) -> None:
    many = {f"r{n}": "" for n in range(300)} | {f"s{n}": f"r{n}" for n in range(300)}
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=additions(many))
    for _ in range(2):
        assert len(await group.claim()) == 300
        await group.end(*group.running)
        await group.settle()
    assert await group.claim() == {"d"}


# a group that is cancelled or paused


async def test_what_is_added_to_a_group_that_is_being_cancelled_never_runs(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await scene.store.cancel_group(group.id, "me")
    await group.end("a", adds=additions({"x": "", "y": "x", "z": ""}, detached=["z"]))
    assert await group.claim() == set()
    await group.settle()
    assert await group.claim() == set()
    assert Counter((await group.states()).values()) == {S.SUCCEEDED: 1, S.CANCELLED: 4}
    assert await group.group_state() is G.CANCELLED


async def test_what_is_added_after_the_sweep_of_a_cancel_is_cancelled_too(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a b"}))
    await group.claim()
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    assert await group.state("a") is S.CANCELLING
    await group.end("a", adds=TWO)
    await group.settle()
    assert await group.state("a/x") is await group.state("a/y") is S.CANCELLED
    assert await group.group_state() is G.CANCELLING, "b has not ended"
    await group.end("b", how=Cancelled)
    await group.settle()
    assert await group.group_state() is G.CANCELLED


async def test_a_cancel_ends_what_was_added_before(scene: Scene) -> None:
    group = await grown(scene, additions({"x": "", "y": "x"}))
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    assert await group.states() == {
        "a": S.SUCCEEDED,
        "d": S.CANCELLED,
        "a/x": S.CANCELLING,
        "a/y": S.CANCELLED,
    }
    await group.end("a/x", adds=TWO)
    await group.settle()
    assert await group.state("a/x/x") is S.CANCELLED
    assert await group.group_state() is G.CANCELLED


async def test_a_job_that_is_being_cancelled_adds_its_jobs_as_cancelled(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR | {"e": "a"}, {"e": ON.ENDED}))
    await group.claim()
    await scene.store.cancel([group.jobs["a"]])
    await group.end("a", adds=additions({"x": "", "y": "x", "z": ""}, detached=["z"]))
    await group.settle()
    assert await group.state("a") is S.SUCCEEDED
    assert {await group.state(f"a/{key}") for key in "xyz"} == {S.CANCELLED}
    assert await group.state("d") is S.DEPENDENCY_FAILED
    assert await run_to_the_end(group) == [{"e"}]
    assert await group.group_state() is G.FAILED


async def test_refused_growth_of_a_job_that_is_being_cancelled_cancels_it(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await scene.store.cancel([group.jobs["a"]])
    await group.end("a", adds=TWO, max_group_jobs=3)
    await group.settle()
    assert await group.states() == {"a": S.CANCELLED, "d": S.DEPENDENCY_FAILED}


async def test_what_is_added_to_a_paused_group_waits_until_it_goes_on(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await scene.store.pause_group(group.id, True)
    await group.end("a", adds=additions({"x": "", "y": "x"}))
    await group.settle()
    assert await group.state("a/x") is S.WAITING
    assert await group.claim() == set()
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await run_to_the_end(group) == [{"a/x"}, {"a/y"}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_scope_may_close_while_its_group_is_paused(scene: Scene) -> None:
    group = await grown(scene)
    await scene.store.pause_group(group.id, True)
    await group.end("a/x", "a/y")
    await group.settle()
    assert await group.state("d") is S.WAITING
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"d"}


async def test_a_cancel_of_added_jobs_that_have_not_begun_closes_their_scope(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR, {"d": ON.ENDED}))
    await group.claim()
    await group.end("a", adds=TWO)
    await scene.store.cancel([group.jobs["a/x"], group.jobs["a/y"]])
    await group.settle()
    assert await group.claim() == {"d"}


# results


async def test_an_added_job_refers_to_results_beside_it_and_of_the_group(scene: Scene) -> None:
    wanted = needs(Reference("./x"), Reference("first", ("n",)), Reference("a"))
    adds = additions({"x": "", "y": "x"}, jobs={"y": wanted})
    group = await scene.submit_group(a_group({"first": "", "a": "first"}))
    await group.claim()
    await group.end("first", result=pack({"n": 7}, "result"))
    await group.claim()
    await group.end("a", adds=adds, result=pack("of a", "result"))
    await group.claim()
    await group.end("a/x", result=pack("of x", "result"))
    await group.claim()
    attempt = group.running["a/y"]
    assert (unpack(attempt.args), attempt.problem) == ({"a0": "of x", "a1": 7, "a2": "of a"}, "")


async def test_a_job_that_nobody_added_refers_beside_it_at_the_top(scene: Scene) -> None:
    part = a_group({"x": "", "y": "x"}, jobs={"y": needs(Reference("./x"))})
    group = await scene.submit_group(part)
    await group.claim()
    await group.end("x", result=pack(5, "result"))
    await group.claim()
    assert unpack(group.running["y"].args) == {"a0": 5}


async def test_the_results_of_all_that_a_job_added_come_in_order(scene: Scene) -> None:
    every = Reference("a", is_map=True)
    after = {"a": "", "d": "a"}
    group = await scene.submit_group(a_group(after, jobs={"d": needs(every)}))
    await group.claim()
    await group.end("a", adds=additions({"z": "", "y": "", "x": ""}))
    await group.claim()
    for key in ("x", "z", "y"):
        await group.end(f"a/{key}", result=pack(key, "result"))
    await group.settle()
    await group.claim()
    assert unpack(group.running["d"].args) == {"a0": ["z", "y", "x"]}


# upkeep


async def test_nothing_is_wrong_while_a_group_grows(scene: Scene) -> None:
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=TWO)
    assert await troubles(scene, group, repair=True) == []
    await group.claim()
    await group.end("a/x", adds=TWO)
    assert await troubles(scene, group) == []
    await group.claim()
    await group.end("a/y", how=Failed)
    assert await troubles(scene, group) == []
    await group.settle()
    assert await troubles(scene, group) == []
    await group.end("a/x/x")
    assert await troubles(scene, group, repair=True) == []
    await group.end("a/x/y")
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_a_wrong_count_of_a_scope_is_found_and_counted_anew(
    scene: Scene, backend: Backend
) -> None:
    group = await grown(scene)
    await backend.force_open(group.jobs["a"], 3)
    [found] = await scene.store.examine_group(group.id)
    assert found.job == group.jobs["a"]
    assert found.words.endswith("but there are 2")
    await scene.store.examine_group(group.id, repair=True)
    assert await troubles(scene, group) == []
    await group.end("a/x", "a/y")
    await group.settle()
    assert await group.claim() == {"d"}


async def test_a_scope_that_closed_unseen_is_told_after_a_repair(
    scene: Scene, backend: Backend
) -> None:
    group = await grown(scene)
    await backend.force_open(group.jobs["a"], 3)
    await group.end("a/x", "a/y")
    await group.settle()
    assert await group.state("d") is S.WAITING
    await scene.store.examine_group(group.id, repair=True)
    await group.settle()
    assert await group.claim() == {"d"}
    await group.end("d")
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_a_grown_group_is_pruned_whole(scene: Scene, backend: Backend) -> None:
    group = await grown(scene)
    await run_to_the_end(group)
    await group.end("a/x", "a/y", adds=ONE)
    await group.settle()
    await run_to_the_end(group)
    assert await prune_groups(scene.store, most=2) == GroupsPruned(1, 6, done=True)
    assert await backend.group_rows() == 0
    assert await scene.store.ended([group.id, *group.jobs.values()]) == []
