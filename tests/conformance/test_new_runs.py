"""New runs of groups: what succeeded is taken over, the rest runs anew, and the old run stays."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from msgspec import structs

from longshore.errors import Conflict, StoreUnavailable
from longshore.model.ends import Failed, Skipped
from longshore.model.group import (
    GATE,
    MOST_NAMED,
    SCOPE,
    Condition,
    GateVerdict,
    GroupHead,
    GroupPart,
    GroupState,
    Node,
    RunPlan,
)
from longshore.model.ids import derive_id
from longshore.model.job import JobFilter, JobState, Refused, RetryVerdict
from longshore.model.retention import GroupsPruned
from longshore.payload.references import Reference
from longshore.payload.values import pack, unpack
from longshore.ports import Store
from longshore.testing.backends import Backend
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
from .test_groups import DIAMOND, run_to_the_end
from .test_growth import ONE, TWO, grown
from .test_prune import AT_ONCE
from .test_prune_groups import prune_groups

S = JobState
G = GroupState
ON = Condition

CHAIN = {"a": "", "b": "a", "c": "b"}


async def rerun(
    scene: Scene, group: GroupScene, *keys: str, most: int = 1000
) -> tuple[RunPlan, GroupScene]:
    """A new run of a group, all of whose jobs are there, and what it was planned to do."""
    planned = await scene.store.rerun_group(group.id, new_id(), keys=keys, dry_run=True)
    plan = await all_steps(scene.store, group.id, new_id(), *keys, most=most)
    assert planned == structs.replace(plan, run=None), "the plan is what happens"
    assert plan.run is not None
    assert plan.run.state is G.RUNNING
    run = await group.of_run(plan.run.id)
    assert sorted(key for key, taken in (await taken_from(run)).items() if taken is None) == sorted(
        plan.keys
    )
    return plan, run


async def all_steps(
    store: Store, group: UUID | int, run: UUID, *keys: str, most: int = 1000
) -> RunPlan:
    """Steps towards a new run, until all of it is there."""
    for _ in range(1000):
        plan = await store.rerun_group(group, run, keys=keys, most=most)
        assert plan is not None
        if plan.run is None or plan.run.state is not G.STAGING:
            return plan
    raise AssertionError("there is always another step")


async def taken_from(group: GroupScene) -> dict[str, int | None]:
    """From which job the result of each job was taken over."""
    return {key: view.taken_from for key, view in (await group.look()).items()}


async def numbers(scene: Scene, group: GroupScene, *keys: str) -> list[int]:
    return [(await scene.job(group.jobs[key])).number for key in keys]


async def failed_chain(scene: Scene) -> GroupScene:
    """A chain whose first job succeeded with a result, and whose second failed."""
    group = await scene.submit_group(a_group(CHAIN, jobs={"b": needs(Reference("a"))}))
    await group.claim()
    await group.end("a", result=pack(7, "result"))
    await group.settle()
    await group.claim()
    await group.end("b", how=Failed)
    await group.settle()
    assert await group.group_state() is G.FAILED
    return group


async def everything(scene: Scene, group: GroupScene) -> object:
    """All that can be seen of a group and its jobs."""
    jobs = [await scene.job(id) for id in group.jobs.values()]
    return await scene.store.group(group.id), await scene.store.nodes(group.id), jobs


# what is taken over


async def test_what_succeeded_is_there_with_its_result_and_the_rest_runs(scene: Scene) -> None:
    group = await failed_chain(scene)
    before = await everything(scene, group)
    plan, run = await rerun(scene, group)
    assert (plan.anew, plan.taken_over, plan.left_out, plan.keys) == (2, 1, 0, ("b", "c"))
    [number] = await numbers(scene, group, "a")
    assert await taken_from(run) == {"a": number, "b": None, "c": None}
    old, job = await scene.job(group.jobs["a"]), await scene.job(run.jobs["a"])
    assert (job.state, job.result, job.args) == (S.SUCCEEDED, old.result, old.args)
    assert (job.id != old.id, job.attempt, job.started_at) == (True, 0, None)
    shown, new = await scene.store.group(group.id), await scene.store.group(run.id)
    assert shown is not None
    assert new is not None
    assert [entry.info for entry in job.history] == [
        f"taken over from job {number} of group {shown.number}"
    ]
    assert (new.run_of, new.taken_over, new.name, new.jobs) == (shown.number, 1, shown.name, 3)
    assert (shown.run_of, shown.taken_over) == (None, 0)
    await run.settle()
    assert await run.claim() == {"b"}
    assert unpack(run.running["b"].args) == {"a0": 7}, "its argument is the result taken over"
    await run.end("b")
    await run.settle()
    assert await run_to_the_end(run) == [{"c"}]
    assert await run.group_state() is G.SUCCEEDED
    assert await everything(scene, group) == before, "the old run stays as it ended"


async def test_why_says_from_which_job_a_result_was_taken(scene: Scene) -> None:
    group = await failed_chain(scene)
    _, run = await rerun(scene, group)
    [number] = await numbers(scene, group, "a")
    facts = await scene.store.explain(await scene.job(run.jobs["a"]))
    assert facts.node is not None
    assert facts.node.taken_from == number


async def test_jobs_that_ran_because_others_failed_run_anew(scene: Scene) -> None:
    """What depends on something that runs anew is not taken over, although it succeeded."""
    after = {"a": "", "b": "", "sorry": "b", "last": "a b", "beside": "a"}
    on = {"sorry": ON.FAILED, "last": ON.ENDED}
    group = await scene.submit_group(a_group(after, on))
    await group.claim()
    await group.end("a")
    await group.end("b", how=Failed)
    await group.settle()
    await run_to_the_end(group)
    assert set((await group.states()).values()) == {S.SUCCEEDED, S.FAILED}
    plan, run = await rerun(scene, group)
    assert (set(plan.keys), plan.taken_over) == ({"b", "sorry", "last"}, 2)
    await run.settle()
    assert await run_to_the_end(run) == [{"b"}, {"last"}]
    assert await run.state("sorry") is S.SKIPPED
    assert await run.group_state() is G.SUCCEEDED


async def test_named_jobs_and_all_that_depends_on_them_run_anew(scene: Scene) -> None:
    group = await scene.submit_group(a_group(DIAMOND))
    await run_to_the_end(group)
    plan, run = await rerun(scene, group, "left")
    assert (set(plan.keys), plan.taken_over) == ({"left", "bottom"}, 2)
    await run.settle()
    assert await run_to_the_end(run) == [{"left"}, {"bottom"}]


async def test_what_was_skipped_is_decided_anew(scene: Scene) -> None:
    group = await scene.submit_group(a_group(CHAIN))
    await group.claim()
    await group.end("a", how=Skipped)
    await group.settle()
    plan, run = await rerun(scene, group)
    assert plan.keys == ("a", "b", "c")
    await run.settle()
    assert await run_to_the_end(run) == [{"a"}, {"b"}, {"c"}]


async def test_a_gate_that_was_opened_keeps_its_value(scene: Scene) -> None:
    part = a_group(
        {"gate": "", "b": "gate"}, jobs={"gate": a_job(kind=GATE), "b": needs(Reference("gate"))}
    )
    group = await scene.submit_group(part)
    await group.settle()
    value = pack({"copies": 4}, "value")
    assert await scene.store.open_gate(group.id, "gate", value) is GateVerdict.OPENED
    await group.settle()
    await group.claim()
    await group.end("b", how=Failed)
    await group.settle()
    plan, run = await rerun(scene, group)
    assert plan.keys == ("b",)
    await run.settle()
    assert await run.claim() == {"b"}
    assert unpack(run.running["b"].args) == {"a0": {"copies": 4}}


async def test_a_sub_group_waits_only_for_what_runs_anew(scene: Scene) -> None:
    after = {"s/a": "", "s/b": "", "s": "", "d": "s"}
    part = a_group(after, jobs={"s": a_job(kind=SCOPE)}, scopes={"s/a": "s", "s/b": "s"})
    group = await scene.submit_group(part)
    await group.settle()
    await group.claim()
    await group.end("s/a")
    await group.end("s/b", how=Failed)
    await group.settle()
    plan, run = await rerun(scene, group)
    assert set(plan.keys) == {"s/b", "d"}
    assert (await run.look())["s"].open == 1
    await run.settle()
    assert await troubles(scene, run) == []
    assert await run_to_the_end(run) == [{"s/b"}, {"d"}]
    assert await run.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("key", ["s", "s/"])
@pytest.mark.parametrize("is_depended_on", [True, False])
async def test_the_key_of_a_sub_group_runs_all_of_it_anew(
    scene: Scene, key: str, is_depended_on: bool
) -> None:
    """Also if nothing depends on it: then it has no node of its own."""
    after = {"s/a": "", "s/b": "s/a", "other": ""} | ({"s": "", "d": "s"} if is_depended_on else {})
    jobs = {"s": a_job(kind=SCOPE)} if is_depended_on else {}
    scopes = dict.fromkeys(("s/a", "s/b"), "s") if is_depended_on else {}
    group = await scene.submit_group(a_group(after, jobs=jobs, scopes=scopes))
    await group.settle()
    await run_to_the_end(group)
    assert await group.group_state() is G.SUCCEEDED
    plan, run = await rerun(scene, group, key)
    anew = {"s/a", "s/b", "d"} if is_depended_on else {"s/a", "s/b"}
    assert set(plan.keys) - {"s"} == anew
    await run.settle()
    waves = await run_to_the_end(run)
    assert set().union(*waves) == anew
    assert await run.group_state() is G.SUCCEEDED


# what grew


async def test_what_a_job_added_comes_along_with_it(scene: Scene) -> None:
    """The adder is taken over, so of what it added only the failed one runs."""
    group = await grown(scene)
    await group.end("a/x", how=Failed)
    await group.end("a/y")
    await group.settle()
    plan, run = await rerun(scene, group)
    assert (set(plan.keys), plan.taken_over, plan.left_out) == ({"a/x", "d"}, 2, 0)
    assert (await run.look())["a"].open == 1
    await run.settle()
    assert await troubles(scene, run) == []
    assert await run.claim() == {"a/x"}
    assert await run.state("d") is S.WAITING
    await run.end("a/x", adds=ONE)
    await run.settle()
    assert await run_to_the_end(run) == [{"a/x/x"}, {"d"}]
    assert await run.group_state() is G.SUCCEEDED


async def test_what_an_adder_that_runs_anew_had_added_is_left_out(scene: Scene) -> None:
    group = await grown(scene, additions({"x": "", "y": "", "z": ""}, detached=["z"]))
    await group.end("a/x", adds=ONE)
    await group.claim()
    await group.end("a/y", "a/z", "a/x/x")
    await group.settle()
    await run_to_the_end(group)
    plan, run = await rerun(scene, group, "a")
    assert (set(plan.keys), plan.taken_over, plan.left_out) == ({"a", "d"}, 0, 4)
    assert set(run.jobs) == {"a", "d"}
    await run.settle()
    await run.claim()
    await run.end("a", adds=TWO)
    await run.settle()
    assert await run_to_the_end(run) == [{"a/x", "a/y"}, {"d"}]
    assert await run.group_state() is G.SUCCEEDED


async def test_the_elements_of_a_map_come_along_with_it(scene: Scene) -> None:
    results = needs(Reference("m", is_map=True))
    part = a_group({"m": "", "d": "m"}, jobs={"m": a_map(["p", "q", "r"]), "d": results})
    group = await scene.submit_group(part)
    await group.settle()
    await group.claim()
    await group.end("m/0", result=pack(0, "result"))
    await group.end("m/2", result=pack(2, "result"))
    await group.end("m/1", how=Failed)
    await group.settle()
    plan, run = await rerun(scene, group)
    assert (set(plan.keys), plan.taken_over) == ({"m/1", "d"}, 3)
    await run.settle()
    await run.claim()
    await run.end("m/1", result=pack(1, "result"))
    await run.settle()
    assert await run.claim() == {"d"}
    assert unpack(run.running["d"].args) == {"a0": [0, 1, 2]}


async def test_a_map_that_runs_anew_becomes_jobs_anew(scene: Scene) -> None:
    part = a_group({"m": "", "d": "m"}, jobs={"m": a_map(["p", "q"])})
    group = await scene.submit_group(part)
    await group.settle()
    await run_to_the_end(group)
    plan, run = await rerun(scene, group, "m")
    assert (set(plan.keys), plan.left_out) == ({"m", "d"}, 2)
    await run.settle()
    assert await run_to_the_end(run) == [{"m/0", "m/1"}, {"d"}]


async def test_a_new_run_is_retried_like_any_group(scene: Scene) -> None:
    """Also what it took over, with what that had added; then nothing is taken over any more."""
    group = await grown(scene)
    await group.end("a/x", "a/y")
    await group.settle()
    await group.claim()
    await group.end("d", how=Failed)
    await group.settle()
    _, run = await rerun(scene, group)
    await run.settle()
    assert await run_to_the_end(run) == [{"d"}]
    again = await scene.store.retry_group(run.id, "me", new_id(), keys=["a"])
    assert again is not None
    assert (set(again.reopened), set(again.retired)) == ({"a", "d"}, {"a/x", "a/y"})
    assert await taken_from(run) == {"a": None, "d": None}
    await run.settle()
    assert await run_to_the_end(run) == [{"a"}, {"d"}]


async def test_a_run_of_a_run_names_the_last_one(scene: Scene) -> None:
    group = await failed_chain(scene)
    _, run = await rerun(scene, group)
    await run.settle()
    await run.claim()
    await run.end("b", how=Failed)
    await run.settle()
    shown = await scene.store.group(run.id)
    assert shown is not None
    plan, second = await rerun(scene, run)
    assert plan.taken_over == 1
    latest = await scene.store.group(second.id)
    assert latest is not None
    assert latest.run_of == shown.number
    assert (await taken_from(second))["a"] == (await numbers(scene, run, "a"))[0]


# steps


async def test_a_group_is_copied_in_steps_and_nothing_runs_before_the_last(scene: Scene) -> None:
    group = await failed_chain(scene)
    id = new_id()
    for staged in (1, 2):
        plan = await scene.store.rerun_group(group.id, id, most=1)
        assert plan is not None
        assert plan.run is not None
        assert (plan.run.state, plan.run.staged) == (G.STAGING, staged)
        await scene.settle()
        assert await group.claim() == set()
    plan, run = await rerun(scene, group, most=1)
    await run.settle()
    assert await run_to_the_end(run) == [{"b"}, {"c"}]


async def test_a_new_run_can_be_claimed_in_the_order_of_the_old_one(scene: Scene) -> None:
    group = await scene.submit_group(a_group({f"k{n}": "" for n in range(9)}))
    await group.claim()
    await group.end(*group.running, how=Failed)
    await group.settle()
    _, run = await rerun(scene, group, most=4)
    order = [view.number for view in (await run.look()).values()]
    assert order == sorted(order)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_steps_whose_answers_get_lost_make_one_run(scene: Scene, fault: Fault) -> None:
    group = await failed_chain(scene)
    id = new_id()
    faulty = FaultyStore(
        scene.store, scripted(*[("rerun_group", fault), ("rerun_group", None)] * 20)
    )
    for _ in range(20):
        try:
            await all_steps(faulty, group.id, id, most=1)
            break
        except StoreUnavailable:
            continue
    first = await scene.store.rerun_group(group.id, id)
    assert first is not None
    assert (first.anew, first.taken_over, first.keys) == (2, 1, ("b", "c"))
    run = await group.of_run(id)
    assert list(run.jobs) == ["a", "b", "c"]
    listed = await scene.store.jobs(JobFilter(group=id))
    assert len(listed.jobs) == 3
    await run.settle()
    assert await run_to_the_end(run) == [{"b"}, {"c"}]
    again = await scene.store.rerun_group(group.id, id)
    assert again is not None
    assert again.run is not None
    assert (again.run.state, again.anew, again.keys) == (G.SUCCEEDED, 2, ("b", "c"))


async def test_steps_at_the_same_time_make_one_run(scene: Scene) -> None:
    group = await failed_chain(scene)
    id = new_id()
    await asyncio.gather(*[all_steps(scene.store, group.id, id, most=1) for _ in range(3)])
    run = await group.of_run(id)
    assert list(run.jobs) == ["a", "b", "c"]
    await run.settle()
    assert await troubles(scene, run) == []
    assert await run_to_the_end(run) == [{"b"}, {"c"}]


async def test_a_run_that_nobody_completes_is_cancelled_and_removed(
    scene: Scene, backend: Backend
) -> None:
    group = await failed_chain(scene)
    rows, id = await backend.group_rows(), new_id()
    await scene.store.rerun_group(group.id, id, most=2)
    await backend.pass_time(600)
    assert await scene.store.cancel_abandoned(500) == [id]
    await scene.settle()
    run = await group.of_run(id)
    assert await run.group_state() is G.CANCELLED
    assert await run.states() == {"a": S.SUCCEEDED, "b": S.CANCELLED}
    late = await scene.store.rerun_group(group.id, id)
    assert late is not None
    assert late.run is not None
    assert late.run.state is G.CANCELLED
    never = await scene.store.rerun_group(id, new_id())
    assert never is not None
    assert "did not send all" in never.refused
    assert await prune_groups(scene.store, AT_ONCE) == GroupsPruned(2, 5, done=True)
    assert await backend.group_rows() < rows


async def test_a_group_that_is_retried_meanwhile_is_not_copied_further(scene: Scene) -> None:
    group = await failed_chain(scene)
    id = new_id()
    await scene.store.rerun_group(group.id, id, most=1)
    await scene.store.retry_group(group.id, "me", new_id())
    await group.settle()
    await run_to_the_end(group)
    plan = await scene.store.rerun_group(group.id, id, most=1)
    assert plan is not None
    assert "meanwhile" in plan.refused
    assert plan.run is None


async def test_all_of_a_run_is_removed_in_the_end(scene: Scene, backend: Backend) -> None:
    group = await failed_chain(scene)
    _, run = await rerun(scene, group)
    await run.settle()
    await run_to_the_end(run)
    assert await prune_groups(scene.store, AT_ONCE) == GroupsPruned(2, 6, done=True)
    assert await backend.group_rows() == 0


# what is refused


async def test_only_a_group_that_has_ended_is_run_anew(scene: Scene) -> None:
    group = await scene.submit_group(a_group(CHAIN))
    for dry_run in (False, True):
        plan = await scene.store.rerun_group(group.id, new_id(), dry_run=dry_run)
        assert plan is not None
        assert "it is running" in plan.refused
        assert "wait until it has ended" in plan.refused
    assert await scene.store.rerun_group(new_id(), new_id()) is None
    assert await scene.store.rerun_group(2**70, new_id()) is None


async def test_a_group_of_which_nothing_would_run_is_not_run_anew(scene: Scene) -> None:
    group = await scene.submit_group(a_group(CHAIN))
    await run_to_the_end(group)
    plan = await scene.store.rerun_group(group.id, new_id())
    assert plan is not None
    assert "all of its jobs succeeded" in plan.refused
    wrong = await scene.store.rerun_group(group.id, new_id(), keys=["bb"])
    assert wrong is not None
    assert wrong.refused == "the group has no job 'bb' (nearest: 'b')"


async def test_a_unique_key_that_a_live_job_has_is_not_taken_away(scene: Scene) -> None:
    jobs = {"a": a_job(unique_key="ua"), "b": a_job(unique_key="ub")}
    group = await scene.submit_group(a_group({"a": "", "b": "a"}, jobs=jobs))
    await group.claim()
    await group.end("a")
    await group.settle()
    await group.claim()
    await group.end("b", how=Failed)
    await group.settle()
    await scene.accepted(a_job(unique_key="ua"))
    [holder] = await scene.accepted(a_job(unique_key="ub"))
    plan = await scene.store.rerun_group(group.id, new_id())
    assert plan is not None
    assert "another job has the unique key 'ub'" in plan.refused
    await scene.store.cancel([holder])
    _, run = await rerun(scene, group)
    await run.settle()
    assert await run.claim() == {"b"}


async def test_an_id_that_another_group_has_is_refused(scene: Scene) -> None:
    group, other = await failed_chain(scene), await failed_chain(scene)
    with pytest.raises(Conflict, match="is no run of group"):
        await scene.store.rerun_group(group.id, other.id)
    _, run = await rerun(scene, group)
    with pytest.raises(Conflict, match="is no run of group"):
        await scene.store.rerun_group(other.id, run.id)


async def test_nothing_is_submitted_into_a_run(scene: Scene) -> None:
    group = await failed_chain(scene)
    id = new_id()
    await scene.store.rerun_group(group.id, id, most=1)
    node = Node("c", structs.replace(a_job(), id=derive_id(id, 2)))
    answer = await scene.store.submit_group(GroupPart(GroupHead(id, "g", 3), 2, (node,)))
    assert isinstance(answer, Refused)
    [(_, verdict)] = await scene.store.retry([derive_id(id, 0)])
    assert verdict is not RetryVerdict.RETRIED


async def test_of_very_many_jobs_that_run_anew_the_first_are_named(scene: Scene) -> None:
    """So the answer to a request is small, however large the group is."""
    group = await scene.submit_group(a_group({f"k{n}": "" for n in range(MOST_NAMED + 5)}))
    await scene.store.cancel_group(group.id)
    await scene.settle()
    plan = await scene.store.rerun_group(group.id, new_id(), dry_run=True)
    assert plan is not None
    assert (plan.anew, len(plan.keys)) == (MOST_NAMED + 5, MOST_NAMED)


async def test_a_group_that_is_removed_meanwhile_is_not_copied_further(scene: Scene) -> None:
    group = await failed_chain(scene)
    id = new_id()
    await scene.store.rerun_group(group.id, id, most=1)
    await prune_groups(scene.store, AT_ONCE)
    plan = await scene.store.rerun_group(group.id, id, most=1)
    assert plan is not None
    assert "meanwhile" in plan.refused
    assert await scene.store.rerun_group(group.id, new_id()) is None


async def test_a_repeat_is_answered_although_the_old_group_is_gone(scene: Scene) -> None:
    group = await failed_chain(scene)
    id = new_id()
    await all_steps(scene.store, group.id, id)
    await prune_groups(scene.store, AT_ONCE)
    again = await scene.store.rerun_group(group.id, id)
    assert again is not None
    assert again.run is not None
    assert (again.run.state, again.keys) == (G.RUNNING, ("b", "c"))


async def test_a_retry_and_steps_at_the_same_time_never_mix(scene: Scene) -> None:
    """Either the new run is of the group as it had ended, or there is none."""
    for _ in range(5):
        group = await failed_chain(scene)
        id = new_id()
        plan, retried = await asyncio.gather(
            all_steps(scene.store, group.id, id, most=1),
            scene.store.retry_group(group.id, "me", new_id()),
        )
        assert retried is not None
        assert retried.refused == ""
        if plan.run is None:
            assert plan.refused
            continue
        run = await group.of_run(id)
        assert {key: job is not None for key, job in (await taken_from(run)).items()} == {
            "a": True,
            "b": False,
            "c": False,
        }


async def test_a_new_run_past_max_group_jobs_is_refused(scene: Scene) -> None:
    """A group may have grown while the limit was higher."""
    group = await failed_chain(scene)
    for dry_run in (True, False):
        plan = await scene.store.rerun_group(group.id, new_id(), dry_run=dry_run, max_group_jobs=2)
        assert plan is not None
        assert plan.refused == "it has 3 jobs, and max_group_jobs is 2: raise it"
    plan = await scene.store.rerun_group(group.id, new_id(), max_group_jobs=3)
    assert plan is not None
    assert plan.refused == ""
