"""Maps: a list becomes one job for each of its elements, and what depends on it waits for all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from longshore.model.ends import Cancelled, Failed, Skipped
from longshore.model.group import Condition, GroupState
from longshore.model.job import JobFilter, JobState, Options, Reason, Submission
from longshore.payload.maps import grown_id
from longshore.payload.references import MAX_REFERENCED_BYTES, Reference
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

from .test_examined_groups import troubles
from .test_groups import run_to_the_end
from .test_growth import error_of

S = JobState
G = GroupState
ON = Condition

EVERY = Reference("m", is_map=True)
MAPPED = {"m": "", "d": "m"}


async def mapped(
    scene: Scene, over: list[object], after: dict[str, str] = MAPPED, **jobs: Submission
) -> GroupScene:
    """A group with a map `m` over this list, of which nothing runs yet."""
    part = a_group(after, jobs={"m": a_map(over), "d": needs(EVERY)} | jobs)
    group = await scene.submit_group(part)
    await group.settle()
    return group


async def end_with(group: GroupScene, results: dict[str, object]) -> None:
    """These jobs end with these results."""
    for key, result in results.items():
        await group.end(key, result=pack(result, "result"))
    await group.settle()


async def size_of(scene: Scene, group: GroupScene) -> int:
    """How many jobs a group has."""
    shown = await scene.store.group(group.id)
    assert shown is not None
    return shown.jobs


async def test_a_map_becomes_one_job_for_each_element(scene: Scene) -> None:
    group = await mapped(scene, ["p", "q", {"$r": 1}])
    assert await group.state("m") is S.SUCCEEDED
    assert await group.claim() == {"m/0", "m/1", "m/2"}
    args = [unpack(group.running[f"m/{n}"].args) for n in range(3)]
    assert args == [{"x": "p"}, {"x": "q"}, {"x": {"$r": 1}}]
    views = await group.look()
    assert [(view.key, view.scope) for view in views.values()][2:] == [
        ("m/0", "m"),
        ("m/1", "m"),
        ("m/2", "m"),
    ]
    ids = [grown_id(group.jobs["m"], 1, index) for index in range(3)]
    assert [views[f"m/{n}"].job for n in range(3)] == ids
    assert (views["m"].open, await size_of(scene, group)) == (3, 5)


async def test_a_map_is_open_until_its_jobs_have_ended(scene: Scene) -> None:
    """Its own job ends when the list became jobs; `open` says that these have not ended."""
    group = await mapped(scene, ["p", "q"])

    async def told() -> tuple[dict[str, int], int, int, int]:
        shown, job = await scene.store.group(group.id), await scene.job(group.jobs["m"])
        page = await scene.store.jobs(JobFilter(group=group.id))
        assert shown is not None
        return shown.counts, shown.open, job.open, max(one.open for one in page.jobs)

    assert await group.state("m") is S.SUCCEEDED
    assert await told() == ({"succeeded": 1, "ready": 2, "waiting": 1}, 1, 2, 2)
    await group.claim()
    await end_with(group, {"m/0": 1, "m/1": 2})
    assert await told() == ({"succeeded": 3, "ready": 1}, 0, 0, 0)


async def test_what_depends_on_a_map_gets_all_results_in_order(scene: Scene) -> None:
    group = await mapped(scene, ["p", "q", "r"])
    await group.claim()
    await end_with(group, {"m/2": 2, "m/0": 0})
    assert await group.state("d") is S.WAITING
    await end_with(group, {"m/1": 1})
    assert await group.claim() == {"d"}
    assert unpack(group.running["d"].args) == {"a0": [0, 1, 2]}
    await group.end("d")
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_a_map_of_an_empty_list_lets_its_dependents_start_with_an_empty_list(
    scene: Scene,
) -> None:
    group = await mapped(scene, [])
    assert await group.claim() == {"d"}
    assert unpack(group.running["d"].args) == {"a0": []}
    await group.end("d")
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_a_group_of_one_empty_map_ends(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"m": ""}, jobs={"m": a_map([])}))
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_a_map_over_a_result_waits_for_it(scene: Scene) -> None:
    """The batch that ends what the map waits for says that there is something to settle."""
    over = a_map(Reference("list", ("urls",)))
    part = a_group({"list": "", "m": "list", "d": "m"}, jobs={"m": over, "d": needs(EVERY)})
    group = await scene.submit_group(part)
    await group.claim()
    pumped = await group.end("list", result=pack({"urls": ["u", "v"]}, "result"))
    assert group.id in pumped.groups
    await group.settle()
    assert await group.claim() == {"m/0", "m/1"}
    assert unpack(group.running["m/1"].args) == {"x": "v"}


async def test_a_map_goes_over_the_results_of_a_map(scene: Scene) -> None:
    second = a_map(EVERY)
    part = a_group({"m": "", "n": "m", "d": "n"}, jobs={"m": a_map([1, 2]), "n": second})
    group = await scene.submit_group(part)
    await group.settle()
    await group.claim()
    await end_with(group, {"m/0": "one", "m/1": "two"})
    assert await group.claim() == {"n/0", "n/1"}
    assert [unpack(group.running[f"n/{n}"].args) for n in range(2)] == [{"x": "one"}, {"x": "two"}]
    assert await run_to_the_end(group) == []
    await group.end("n/0", "n/1")
    await group.settle()
    assert await run_to_the_end(group) == [{"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_large_map_becomes_jobs_in_bounded_steps(scene: Scene) -> None:
    part = a_group(MAPPED, jobs={"m": a_map(range(2_500)), "d": a_job()})
    group = await scene.submit_group(part)
    sizes = [await size_of(scene, group)]
    for _ in range(10):
        settled = await scene.store.settle([group.id], most=1000)
        sizes.append(await size_of(scene, group))
        if group.id not in settled.groups:
            break
    steps = [after - before for before, after in pairwise(sizes)]
    assert (sizes[-1], max(steps)) == (2_502, 1_000)
    assert (await group.look())["m"].open == 2_500
    assert list(group.jobs)[-1] == "m/2499"
    await group.claim()
    await group.end(*group.running)
    await group.settle()
    assert await group.claim() == {"d"}


async def test_elements_may_end_before_the_map_is_whole(scene: Scene) -> None:
    """The map is not closed by them: its own job has not ended."""
    part = a_group(MAPPED, jobs={"m": a_map(range(5)), "d": needs(EVERY)})
    group = await scene.submit_group(part)
    ran: list[str] = []
    for _ in range(20):
        await scene.store.settle([group.id], most=2)
        keys = sorted(await group.claim())
        ran += keys
        for key in keys:
            await group.end(key, result=pack(key, "result"))
        if "d" in keys:
            break
        assert "m/4" in ran or await group.state("d") is S.WAITING
    assert ran == ["m/0", "m/1", "m/2", "m/3", "m/4", "d"]
    await group.settle()
    assert await group.group_state() is G.SUCCEEDED


async def test_an_element_that_failed_before_the_map_is_whole_is_told(scene: Scene) -> None:
    part = a_group(MAPPED | {"e": "m"}, {"e": ON.ENDED}, jobs={"m": a_map(range(4))})
    group = await scene.submit_group(part)
    while not await group.claim():
        await scene.store.settle([group.id], most=1)
    await group.end("m/0", how=Failed)
    await group.settle()
    wanted = (Reason.DEPENDENCY_FAILED, "'m/0' failed: ValueError: it did not work")
    assert await error_of(scene, group, "d") == wanted
    assert await group.claim() == {"m/1", "m/2", "m/3"}
    await group.end("m/1", "m/2", "m/3")
    await group.settle()
    assert await group.claim() == {"e"}


async def test_a_skipped_element_has_no_result(scene: Scene) -> None:
    group = await mapped(scene, [1, 2], e=needs(EVERY), after=MAPPED | {"e": "m"})
    await group.claim()
    await group.end("m/0", how=Skipped)
    await group.end("m/1")
    await group.settle()
    assert await group.state("d") is S.SKIPPED
    assert await group.group_state() is G.SUCCEEDED


async def test_elements_add_jobs_and_the_map_waits_for_them(scene: Scene) -> None:
    group = await mapped(scene, [1, 2])
    await group.claim()
    await group.end("m/0", "m/1", adds=additions({"x": ""}))
    await group.settle()
    assert await group.claim() == {"m/0/x", "m/1/x"}
    await group.end("m/0/x")
    await group.settle()
    assert await group.state("d") is S.WAITING
    await group.end("m/1/x")
    await group.settle()
    assert await group.claim() == {"d"}


async def test_elements_refer_to_results_of_the_group(scene: Scene) -> None:
    pattern = needs(Reference("first"))
    over = a_map([{"$result": 1}, "p"], pattern)
    part = a_group({"first": "", "m": "first"}, jobs={"m": over})
    group = await scene.submit_group(part)
    await group.claim()
    await end_with(group, {"first": "given"})
    await group.claim()
    args = [unpack(group.running[f"m/{n}"].args) for n in range(2)]
    assert args == [{"a0": "given", "x": {"$result": 1}}, {"a0": "given", "x": "p"}]


async def test_elements_are_jobs_like_the_pattern(scene: Scene) -> None:
    pattern = a_job(priority=3, delay_s=60.0, labels=("l",), timeout_s=9.0)
    group = await mapped(scene, [1, 2], m=a_map([1, 2], pattern))
    await group.look()
    job = await scene.job(group.jobs["m/1"])
    assert (job.state, job.priority, job.kind) == (S.DELAYED, 3, "work")
    assert job.options == Options(timeout_s=9.0, labels=("l",))


async def test_a_job_adds_a_map_over_the_result_of_one_beside_it(scene: Scene) -> None:
    adds = additions({"x": "", "m": "x"}, jobs={"m": a_map(Reference("./x"))})
    group = await scene.submit_group(a_group({"a": "", "d": "a"}))
    await group.claim()
    await group.end("a", adds=adds)
    await group.claim()
    await end_with(group, {"a/x": ["p", "q"]})
    assert await group.claim() == {"a/m/0", "a/m/1"}
    await group.end("a/m/0")
    await group.settle()
    assert await group.state("d") is S.WAITING
    await group.end("a/m/1")
    await group.settle()
    assert await run_to_the_end(group) == [{"d"}]


async def test_a_map_that_was_added_is_settled_at_once(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "d": "a"}))
    await group.claim()
    pumped = await group.end("a", adds=additions({"m": ""}, jobs={"m": a_map([1])}))
    assert group.id in pumped.groups
    await group.settle()
    assert await run_to_the_end(group) == [{"a/m/0"}, {"d"}]


# lists that cannot become jobs


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"urls": 5}, "a map goes over a list, and this is int"),
        ({"urls": None}, "nothing (null)"),
        ({}, "has no 'urls'"),
    ],
)
async def test_a_map_over_no_list_fails_and_says_so(
    scene: Scene, result: object, says: str
) -> None:
    over = a_map(Reference("list", ("urls",)))
    group = await scene.submit_group(a_group({"list": "", "m": "list", "d": "m"}, jobs={"m": over}))
    await group.claim()
    await end_with(group, {"list": result})
    reason, message = await error_of(scene, group, "m")
    assert reason is Reason.INVALID_GROWTH
    assert says in message
    assert await group.state("d") is S.DEPENDENCY_FAILED
    assert await group.group_state() is G.FAILED


async def test_a_map_over_the_result_of_a_job_that_failed_fails(scene: Scene) -> None:
    over = a_map(Reference("list"))
    part = a_group({"list": "", "m": "list"}, {"m": ON.ENDED}, jobs={"m": over})
    group = await scene.submit_group(part)
    await group.claim()
    await group.end("list", how=Failed)
    await group.settle()
    reason, message = await error_of(scene, group, "m")
    assert reason is Reason.INVALID_GROWTH
    assert "'list', which has none: it is failed" in message


async def test_a_map_over_too_many_bytes_fails(scene: Scene) -> None:
    half = b"\xc6" + (MAX_REFERENCED_BYTES // 2).to_bytes(4) + bytes(MAX_REFERENCED_BYTES // 2)
    over = a_map(Reference("l", is_map=True))
    part = a_group({"l": "", "m": "l"}, jobs={"l": a_map([1, 2]), "m": over})
    group = await scene.submit_group(part)
    await group.settle()
    await group.claim()
    for key in ("l/0", "l/1"):
        await group.end(key, result=half)
    await group.settle()
    reason, message = await error_of(scene, group, "m")
    assert reason is Reason.INVALID_GROWTH
    assert "bytes" in message


async def test_a_map_past_the_limit_of_its_group_fails_and_adds_nothing(scene: Scene) -> None:
    """Also one that becomes jobs in several steps: how many it has is known before the first."""
    part = a_group(MAPPED, jobs={"m": a_map(range(10))})
    group = await scene.submit_group(part)
    for _ in range(5):
        await scene.store.settle([group.id], most=2, max_group_jobs=11)
    reason, message = await error_of(scene, group, "m")
    assert reason is Reason.INVALID_GROWTH
    assert "max_group_jobs is 11" in message
    assert set(await group.look()) == {"m", "d"}
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_a_map_up_to_the_limit_of_its_group_is_added(scene: Scene) -> None:
    group = await scene.submit_group(a_group(MAPPED, jobs={"m": a_map(range(10))}))
    for _ in range(9):
        await scene.store.settle([group.id], most=2, max_group_jobs=12)
    assert await size_of(scene, group) == 12
    assert await group.state("m") is S.SUCCEEDED


async def test_elements_stay_when_the_rest_no_longer_fits(scene: Scene) -> None:
    """Others grew meanwhile. The map has failed, and it closes when those elements have ended."""
    jobs = {"m": a_map(range(6)), "e": a_job()}
    part = a_group({"a": "", "m": "", "e": "m"}, {"e": ON.ENDED}, jobs=jobs)
    group = await scene.submit_group(part)
    while await size_of(scene, group) == 3:
        await scene.store.settle([group.id], most=2, max_group_jobs=9)
    assert await group.claim() == {"a", "m/0", "m/1"}
    await group.end("a", adds=additions({"x": ""}))
    for _ in range(5):
        await scene.store.settle([group.id], most=2, max_group_jobs=9)
    assert await group.state("m") is S.FAILED
    await group.claim()
    await group.end("m/0", "a/x")
    await scene.settle()
    assert await group.state("e") is S.WAITING
    await group.end("m/1")
    await scene.settle()
    assert await group.claim() == {"e"}
    await group.end("e")
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_a_unique_key_of_elements_fails_a_map_of_more_than_one(scene: Scene) -> None:
    group = await mapped(scene, [1, 2], m=a_map([1, 2], a_job(unique_key="k")))
    reason, message = await error_of(scene, group, "m")
    assert reason is Reason.INVALID_GROWTH
    assert "'k'" in message
    assert await group.state("d") is S.DEPENDENCY_FAILED


# cancelled, paused, retried


async def test_a_map_in_a_paused_group_becomes_jobs_when_it_goes_on(scene: Scene) -> None:
    part = a_group(MAPPED, jobs={"m": a_map([1, 2])})
    group = await scene.submit_group(part)
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert await group.states() == {"m": S.WAITING, "d": S.WAITING}
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await run_to_the_end(group) == [{"m/0", "m/1"}, {"d"}]


async def test_a_map_that_is_paused_half_way_goes_on_where_it_was(scene: Scene) -> None:
    group = await scene.submit_group(a_group(MAPPED, jobs={"m": a_map(range(6))}))
    while await size_of(scene, group) == 2:
        await scene.store.settle([group.id], most=2)
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert await size_of(scene, group) < 8
    assert await group.claim() == set()
    assert await troubles(scene, group) == []
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await run_to_the_end(group) == [{f"m/{n}" for n in range(6)}, {"d"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_map_that_is_cancelled_half_way_becomes_no_more_jobs(scene: Scene) -> None:
    group = await scene.submit_group(a_group(MAPPED, {"d": ON.ENDED}, jobs={"m": a_map(range(6))}))
    while await size_of(scene, group) == 2:
        await scene.store.settle([group.id], most=2)
    await scene.store.cancel([(await group.look())["m"].job])
    await group.settle()
    size = await size_of(scene, group)
    assert size < 8
    assert await group.state("m") is S.CANCELLED
    assert await group.state("d") is S.WAITING, "it waits for the elements that there are"
    await group.claim()
    await group.end(*group.running)
    await group.settle()
    assert await group.claim() == {"d"}
    assert await size_of(scene, group) == size


@pytest.mark.parametrize("steps", [0, 2])
async def test_a_cancelled_group_with_a_map_ends(scene: Scene, steps: int) -> None:
    group = await scene.submit_group(a_group(MAPPED, jobs={"m": a_map(range(6))}))
    for _ in range(steps):
        await scene.store.settle([group.id], most=2)
    await group.claim()
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    if group.running:
        await group.end(*group.running, how=Cancelled)
    await group.settle()
    await group.look()
    assert await group.group_state() is G.CANCELLED
    assert set((await group.states()).values()) == {S.CANCELLED}


async def test_a_failed_element_is_retried_alone(scene: Scene) -> None:
    group = await mapped(scene, ["p", "q"])
    await group.claim()
    await group.end("m/0", how=Failed)
    await end_with(group, {"m/1": "q"})
    assert await group.group_state() is G.FAILED
    plan = await scene.store.retry_group(group.id, "me", new_id())
    assert plan is not None
    assert (set(plan.reopened), plan.retired) == ({"m/0", "d"}, ())
    await group.settle()
    assert await group.claim() == {"m/0"}
    await end_with(group, {"m/0": "p"})
    assert await group.claim() == {"d"}
    assert unpack(group.running["d"].args) == {"a0": ["p", "q"]}


async def test_a_map_that_is_retried_begins_anew(scene: Scene) -> None:
    """The list may be another now. Elements of the earlier round leave the group."""
    over = a_map(Reference("list"))
    part = a_group({"list": "", "m": "list", "d": "m"}, jobs={"m": over, "d": needs(EVERY)})
    group = await scene.submit_group(part)
    await group.claim()
    await end_with(group, {"list": ["p", "q", "r"]})
    await group.claim()
    await end_with(group, {"m/0": "p1", "m/1": "q1", "m/2": "r1"})
    assert await run_to_the_end(group) == [{"d"}]
    before = group.jobs["m/0"]
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["list"])
    assert plan is not None
    assert (set(plan.reopened), set(plan.retired)) == (
        {"list", "m", "d"},
        {"m/0", "m/1", "m/2"},
    )
    await group.settle()
    assert set(await group.look()) == {"list", "m", "d"}
    await group.claim()
    await end_with(group, {"list": ["s", "t"]})
    assert await group.claim() == {"m/0", "m/1"}
    assert group.jobs["m/0"] == grown_id(group.jobs["m"], 2, 0) != before
    assert unpack(group.running["m/0"].args) == {"x": "s"}
    await end_with(group, {"m/0": "s1", "m/1": "t1"})
    await group.claim()
    assert unpack(group.running["d"].args) == {"a0": ["s1", "t1"]}


async def test_a_failed_map_is_retried_with_another_list(scene: Scene) -> None:
    group = await scene.submit_group(a_group(MAPPED, jobs={"m": a_map([1]), "d": a_job()}))
    await scene.store.settle([group.id], max_group_jobs=2)
    await scene.store.settle([group.id], max_group_jobs=2)
    await group.settle()
    assert await group.group_state() is G.FAILED
    other = a_map([7, 8]).args
    await scene.store.retry_group(group.id, "me", new_id(), keys=["m"], args=other)
    await group.settle()
    assert await group.claim() == {"m/0", "m/1"}
    assert unpack(group.running["m/1"].args) == {"x": 8}
