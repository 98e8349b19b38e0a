"""Groups: a job runs when its condition holds, a failure reaches all that depend on it, once."""

from __future__ import annotations

import asyncio
from itertools import permutations, product
from random import Random

import pytest
from msgspec import structs

from longshore.core.graph import places, start_order
from longshore.model.ends import Cancelled, Crashed, End, Failed, Retried, Skipped, Succeeded
from longshore.model.group import (
    Condition,
    GroupFilter,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
)
from longshore.model.job import (
    CancelVerdict,
    JobFilter,
    JobState,
    Options,
    Reason,
    Refused,
    RetryPolicy,
    RetryVerdict,
)
from longshore.model.worker import Attended
from longshore.payload.references import MAX_REFERENCED_BYTES, Reference
from longshore.payload.values import pack, unpack
from longshore.ports import Batch
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    a_node,
    a_worker,
    done,
    needs,
    new_id,
)

S = JobState
G = GroupState
ON = Condition

DIAMOND = {"top": "", "left": "top", "right": "top", "bottom": "left right"}


async def test_a_job_starts_when_all_that_it_depends_on_succeeded(scene: Scene) -> None:
    """G5: each job waits for those before it, and the group ends with the last."""
    group = await scene.submit_group(a_group(DIAMOND))
    assert await group.claim() == {"top"}
    assert await group.claim() == set()
    await group.end("top")
    assert await group.claim() == {"left", "right"}
    await group.end("right")
    await group.settle()
    assert await group.claim() == set()
    await group.end("left")
    assert await group.claim() == {"bottom"}
    assert await group.group_state() is G.RUNNING
    pumped = await group.end("bottom")
    assert group.id in pumped.groups, "whoever ends the last job hears that the group may be over"
    settled = await group.settle()
    assert [(one.id, one.state) for one in settled.ended] == [(group.id, S.SUCCEEDED)]
    assert await group.group_state() is G.SUCCEEDED
    assert (await group.settle()).ended == (), "a group ends once"


async def test_what_became_ready_by_an_end_is_told_at_once(scene: Scene) -> None:
    """Otherwise each edge would wait for a poll."""
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "a"}))
    await group.claim()
    pumped = await group.end("a")
    assert sum(pumped.ready_by_ends.values()) == 2


async def test_a_failure_reaches_every_transitive_dependent_and_the_rest_goes_on(
    scene: Scene,
) -> None:
    """Seed 3's diamond: left fails, right completes, bottom cannot run, the group has failed."""
    group = await scene.submit_group(a_group(DIAMOND | {"below": "bottom", "lowest": "below"}))
    await group.claim()
    await group.end("top")
    await group.claim()
    await group.end("left", how=Failed)
    await group.settle()
    wanted = {"bottom": S.DEPENDENCY_FAILED, "below": S.DEPENDENCY_FAILED}
    assert wanted.items() <= (await group.states()).items()
    assert await group.group_state() is G.RUNNING, "right still runs"
    await group.end("right")
    await group.settle()
    assert await group.group_state() is G.FAILED
    for key in ("bottom", "below", "lowest"):
        job = await scene.job(group.jobs[key])
        assert job.error is not None
        assert job.error.reason is Reason.DEPENDENCY_FAILED
        assert job.error.message == "'left' failed: ValueError: it did not work"


ENDINGS: dict[str, tuple[type[End], JobState]] = {
    "succeeds": (Succeeded, S.SUCCEEDED),
    "fails": (Failed, S.FAILED),
    "is cancelled": (Cancelled, S.CANCELLED),
    "skips itself": (Skipped, S.SKIPPED),
}


def expected(on: Condition, ends: set[JobState]) -> JobState:
    """What must become of a job whose dependencies ended so, in the words of the design."""
    if on is ON.ENDED:
        return S.READY
    if on is ON.FAILED:
        return S.READY if ends & {S.FAILED, S.DEPENDENCY_FAILED} else S.SKIPPED
    if ends & {S.FAILED, S.DEPENDENCY_FAILED, S.CANCELLED}:
        return S.DEPENDENCY_FAILED
    return S.SKIPPED if S.SKIPPED in ends else S.READY


@pytest.mark.parametrize("on", list(Condition))
async def test_a_condition_holds_or_not_whatever_the_order_of_ends(
    scene: Scene, on: Condition
) -> None:
    """Every pair of endings, in both orders, and both in one batch."""
    for first, second in product(ENDINGS, repeat=2):
        (one, one_state), (other, other_state) = ENDINGS[first], ENDINGS[second]
        for together in (False, True):
            group = await scene.submit_group(a_group({"a": "", "b": "", "c": "a b"}, {"c": on}))
            await group.claim()
            ends = [done(group.running["a"], one), done(group.running["b"], other)]
            for batch in [ends] if together else [[end] for end in ends]:
                await scene.pump(finishes=batch)
                await group.settle()
            assert await group.state("c") is expected(on, {one_state, other_state}), (first, second)
            await scene.store.cancel([group.jobs["c"]])
            await group.settle()


@pytest.mark.parametrize("order", list(permutations(["skips", "fails", "succeeds"])))
async def test_a_failure_weighs_more_than_a_skip_whichever_comes_first(
    scene: Scene, order: tuple[str, ...]
) -> None:
    """A skip is decided when all have ended, so the order of ends never shows."""
    after = {"ok": "", "skips": "ok", "fails": "", "succeeds": "", "c": "skips fails succeeds"}
    group = await scene.submit_group(a_group(after, {"skips": ON.FAILED}))
    await group.claim()
    for what in order:
        key, how = {"skips": "ok"}.get(what, what), Failed if what == "fails" else Succeeded
        await group.end(key, how=how)
        await group.settle()
    assert await group.state("skips") is S.SKIPPED
    assert await group.state("c") is S.DEPENDENCY_FAILED


async def test_on_failed_starts_at_the_first_failure(scene: Scene) -> None:
    """A repair need not wait for what else runs; that ends later changes nothing."""
    group = await scene.submit_group(a_group({"a": "", "b": "", "c": "a b"}, {"c": ON.FAILED}))
    await group.claim()
    await group.end("a", how=Failed)
    assert await group.claim() == {"c"}
    await group.end("b", how=Failed)
    await group.settle()
    assert await group.state("c") is S.RUNNING
    await group.end("c")
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_an_empty_group_ends_at_once(scene: Scene) -> None:
    """Seed 3's hung for ever."""
    part = a_group({})
    answer = await scene.store.submit_group(part)
    assert isinstance(answer, GroupSubmitted)
    assert answer.state is G.SUCCEEDED
    assert [one.state for one in await scene.store.ended([part.head.id])] == [S.SUCCEEDED]


async def test_a_finish_repeated_after_a_lost_answer_counts_once(scene: Scene) -> None:
    """Seed 3 decremented twice: then a dependent of two started after one."""
    group = await scene.submit_group(a_group({"a": "", "b": "", "c": "a b"}))
    await group.claim()
    end = done(group.running["a"])
    for _ in range(3):
        await scene.pump(finishes=[end])
        await group.settle()
    assert await group.state("c") is S.WAITING
    await group.end("b")
    assert await group.claim() == {"c"}


# every path that ends a job


async def poisoned(group: GroupScene, scene: Scene) -> None:
    """The job's process died too often."""
    await group.end("a", how=Crashed)


async def lost(group: GroupScene, scene: Scene) -> None:
    """The job was being cancelled when its worker was lost."""
    await scene.store.cancel([group.jobs["a"]])
    attempt = group.running["a"]
    await scene.store.harvest(attempt.worker, attempt.session, "gone", crash=True, crash_limit=3)


async def lost_for_good(group: GroupScene, scene: Scene) -> None:
    """The loss of its worker made the job poisonous."""
    attempt = group.running["a"]
    await scene.store.harvest(attempt.worker, attempt.session, "gone", crash=True, crash_limit=1)


async def timed_out(group: GroupScene, scene: Scene) -> None:
    """The dispatcher ended it by force."""
    await scene.pump(finishes=[done(group.running["a"], Failed, forced=True)])


@pytest.mark.parametrize("path", [poisoned, lost, lost_for_good, timed_out])
async def test_dependents_hear_of_every_end(scene: Scene, path: object) -> None:
    """However a job ends, what depends on it is decided, and the group ends."""
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "a"}, {"c": ON.ENDED}))
    await group.claim()
    await path(group, scene)  # type: ignore[operator]
    await group.settle()
    assert await group.states() | {"a": S.FAILED} == {
        "a": S.FAILED,
        "b": S.DEPENDENCY_FAILED,
        "c": S.READY,
    }


async def test_dependents_hear_of_a_job_cancelled_before_it_ran(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "a"}, {"c": ON.ENDED}))
    assert await scene.store.cancel([group.jobs["a"]]) == [
        (group.jobs["a"], CancelVerdict.CANCELLED)
    ]
    await group.settle()
    assert (await scene.job(group.jobs["b"])).error is not None
    assert await group.state("b") is S.DEPENDENCY_FAILED
    assert await group.claim() == {"c"}


async def test_a_delay_counts_from_when_the_dependencies_are_met(
    scene: Scene, backend: Backend
) -> None:
    part = a_group({"a": "", "b": "a"}, jobs={"b": a_job(delay_s=60.0)})
    group = await scene.submit_group(part)
    await backend.pass_time(100)
    await group.claim()
    await group.end("a")
    assert await group.state("b") is S.DELAYED
    assert (await scene.store.promote()).count == 0
    await backend.pass_time(61)
    assert (await scene.store.promote()).count == 1
    assert await group.claim() == {"b"}


# submitting


def parts(part: GroupPart, size: int) -> list[GroupPart]:
    """The group in parts of so many nodes."""
    starts = range(0, len(part.nodes), size)
    return [GroupPart(part.head, at, part.nodes[at : at + size]) for at in starts]


@pytest.mark.parametrize("backwards", [False, True])
async def test_a_group_in_parts_runs_when_all_of_it_is_there(scene: Scene, backwards: bool) -> None:
    """Until then nothing of it starts, and each part may be sent twice."""
    whole = a_group({**{f"r{n}": "" for n in range(5)}, "last": "r0 r1 r2 r3 r4"})
    some = parts(whole, 2)
    slot = await scene.attend()
    for part in reversed(some) if backwards else some:
        assert await scene.claim(slot, most=9) == []
        for _ in range(2):
            answer = await scene.store.submit_group(part)
            assert isinstance(answer, GroupSubmitted), answer
    again = await scene.store.submit_group(some[0])
    assert isinstance(again, GroupSubmitted)
    assert (again.state, again.staged) == (G.RUNNING, 6)
    group = GroupScene(scene, whole, slot)
    await group.settle()
    assert await group.claim() == {f"r{n}" for n in range(5)}
    await group.end(*group.running)
    assert await group.claim() == {"last"}


async def test_a_group_that_differs_is_refused(scene: Scene) -> None:
    part = a_group(DIAMOND)
    await scene.submit_group(part)
    other_name = structs.replace(part, head=structs.replace(part.head, name="other"))
    answer = await scene.store.submit_group(other_name)
    assert isinstance(answer, Refused)
    assert answer.code == "conflict"


async def test_a_part_that_was_written_differently_is_the_same(scene: Scene) -> None:
    """Another program sends what the first did not send to the end."""
    first, second = parts(a_group(DIAMOND), 2)
    await scene.store.submit_group(first)
    options = Options(retry=RetryPolicy())
    again = [
        structs.replace(node, job=structs.replace(node.job, options=options))
        for node in first.nodes
    ]
    answer = await scene.store.submit_group(structs.replace(first, nodes=tuple(again)))
    assert isinstance(answer, GroupSubmitted)
    assert answer.staged == 2
    await scene.store.submit_group(second)
    shown = await scene.store.group(first.head.id)
    assert shown is not None
    assert shown.state is G.RUNNING


async def test_a_staged_part_that_differs_is_refused(scene: Scene) -> None:
    first, _ = parts(a_group(DIAMOND), 2)
    await scene.store.submit_group(first)
    node = structs.replace(first.nodes[0], key="another")
    answer = await scene.store.submit_group(structs.replace(first, nodes=(node, first.nodes[1])))
    assert isinstance(answer, Refused)
    assert answer.code == "conflict"


async def test_a_unique_key_that_a_live_job_holds_refuses_the_group_whole(scene: Scene) -> None:
    await scene.accepted(a_job(unique_key="k"))
    part = a_group({"a": "", "b": "a"}, jobs={"b": a_job(unique_key="k")})
    answer = await scene.store.submit_group(part)
    assert isinstance(answer, Refused)
    assert "'b'" in answer.message
    assert await scene.store.group(part.head.id) is None
    assert await scene.store.job(part.nodes[0].job.id) is None


async def test_two_jobs_of_a_group_with_one_unique_key_refuse_it(scene: Scene) -> None:
    jobs = {"a": a_job(unique_key="k"), "b": a_job(unique_key="k")}
    answer = await scene.store.submit_group(a_group({"a": "", "b": ""}, jobs=jobs))
    assert isinstance(answer, Refused)


async def test_a_job_that_no_store_can_hold_refuses_the_group_and_is_named(scene: Scene) -> None:
    part = a_group({"a": "", "b": "a"}, jobs={"b": a_job(kind="no\0")})
    answer = await scene.store.submit_group(part)
    assert isinstance(answer, Refused)
    assert "'b'" in answer.message
    assert await scene.store.group(part.head.id) is None


async def test_jobs_of_a_group_are_claimed_longest_path_first(scene: Scene) -> None:
    """The order of numbers is that of heights, and older groups come first."""
    after = {"short": "", "long": "", "l1": "long", "l2": "l1", "mid": "", "m1": "mid"}
    older = await scene.submit_group(a_group(after))
    await scene.store.submit_group(a_group({"x": "", "y": "x", "z": "y", "zz": "z"}))
    slot = await scene.attend()
    claimed = await scene.claim(slot, most=3)
    keys = {id: key for key, id in older.jobs.items()}
    assert [keys[one.id] for one in claimed] == ["long", "mid", "short"]


# cancelling


async def test_a_cancelled_group_ends_whole_and_nothing_of_it_wakes_up(scene: Scene) -> None:
    """Seed 3's promotion ignored the group: jobs of a cancelled one woke up."""
    after = {"done": "", "runs": "", "ready": "", "waits": "runs", "deep": "waits"}
    group = await scene.submit_group(a_group(after, {"waits": ON.ENDED}))
    await scene.pump(finishes=[done(one) for one in await scene.claim(group._slot, most=1)])
    [running] = await scene.claim(group._slot, most=1)
    assert await scene.store.cancel_group(group.id, "me") is GroupVerdict.CANCELLING
    [end] = [done(running)]
    await scene.pump(finishes=[end])
    await group.settle()
    states = await group.states()
    assert sorted(states.values()) == sorted([S.SUCCEEDED] * 2 + [S.CANCELLED] * 3)
    assert await group.group_state() is G.CANCELLED
    assert await group.claim() == set()
    assert await scene.store.cancel_group(group.id) is GroupVerdict.ALREADY_ENDED
    assert await scene.store.cancel_group(new_id()) is GroupVerdict.NOT_FOUND


@pytest.mark.parametrize("most", [1, 2, 1000])
async def test_jobs_of_a_cancelled_group_that_never_began_are_cancelled(
    scene: Scene, most: int
) -> None:
    """However small the steps: what a cancelled job tells its dependents comes after the sweep."""
    chain = {"a": "", **{f"b{n}": "a" if n == 0 else f"b{n - 1}" for n in range(6)}}
    group = await scene.submit_group(a_group(chain))
    await scene.store.cancel_group(group.id)
    await scene.settle(most)
    assert set((await group.states()).values()) == {S.CANCELLED}
    assert await group.group_state() is G.CANCELLED


async def test_what_runs_in_a_cancelled_group_is_aborted_and_then_it_ends(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    await scene.store.cancel_group(group.id)
    await group.settle()
    assert await group.states() == {"a": S.CANCELLING, "b": S.CANCELLED}
    assert [one.id for one in await scene.store.cancelling(scene.dispatcher)] == [group.jobs["a"]]
    assert await group.group_state() is G.CANCELLING
    await group.end("a", how=Cancelled)
    await group.settle()
    assert await group.group_state() is G.CANCELLED


async def test_fail_fast_cancels_the_rest_at_the_first_failure(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "", "c": "b"}, fail_fast=True))
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    assert await group.states() == {"a": S.FAILED, "b": S.CANCELLING, "c": S.CANCELLED}
    await group.end("b", how=Cancelled)
    await group.settle()
    assert await group.group_state() is G.FAILED


async def test_a_group_half_staged_can_be_cancelled_and_takes_nothing_more(scene: Scene) -> None:
    first, second = parts(a_group(DIAMOND), 2)
    await scene.store.submit_group(first)
    await scene.store.cancel_group(first.head.id)
    await scene.settle()
    answer = await scene.store.submit_group(second)
    assert isinstance(answer, GroupSubmitted)
    assert (answer.state, answer.staged) == (G.CANCELLED, 2)


async def test_a_job_of_a_group_is_retried_only_through_its_group(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a", how=Failed)
    [(_, verdict)] = await scene.store.retry([group.jobs["a"]])
    assert verdict is RetryVerdict.IN_GROUP


# showing


async def test_a_group_is_shown_with_its_counts_and_its_nodes(scene: Scene) -> None:
    group = await scene.submit_group(a_group(DIAMOND, {"bottom": ON.ENDED}, name="nightly"))
    await group.claim()
    await group.end("top")
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert (shown.name, shown.jobs, shown.state) == ("nightly", 4, G.RUNNING)
    assert shown.counts == {"succeeded": 1, "ready": 2, "waiting": 1}
    assert await scene.store.group(shown.number) == shown
    nodes = {node.key: node for node in await scene.store.nodes(group.id)}
    assert set(nodes["bottom"].after) == {"left", "right"}
    assert (nodes["bottom"].on, nodes["bottom"].unmet) == (ON.ENDED, 2)
    assert nodes["top"].state is S.SUCCEEDED
    assert [node.key for node in await scene.store.nodes(group.id, after=2)] == ["bottom"]
    assert (await scene.job(group.jobs["left"])).group == group.id
    await scene.accepted(a_job())
    jobs = (await scene.store.jobs(JobFilter(group=group.id))).jobs
    assert {job.id for job in jobs} == set(group.jobs.values())
    ready = await scene.store.jobs(JobFilter(group=group.id, states=(S.READY,), limit=1))
    assert [job.id for job in ready.jobs] == [group.jobs["right"]]
    listed = await scene.store.groups(GroupFilter(name="nightly"))
    assert [one.id for one in listed] == [group.id]
    assert await scene.store.groups(GroupFilter(states=(G.FAILED,))) == []


# many, deep, wide


async def test_a_failure_at_the_top_of_a_deep_chain_reaches_its_end(scene: Scene) -> None:
    keys = [f"k{n}" for n in range(60)]
    after = {keys[0]: ""} | dict(zip(keys[1:], keys, strict=False))
    group = await scene.submit_group(a_group(after))
    await group.claim()
    await group.end("k0", how=Failed)
    await scene.settle(most=7)
    assert set((await group.states()).values()) == {S.FAILED, S.DEPENDENCY_FAILED}
    assert await group.group_state() is G.FAILED


async def test_a_job_that_depends_on_very_many_starts_after_the_last(scene: Scene) -> None:
    """Whoever asks why it waits hears of a few of them."""
    wide = 4_000
    after = {f"p{n}": "" for n in range(wide)}
    group = await scene.submit_group(a_group(after | {"d": " ".join(after)}))
    await group.settle()
    *most, last = await group.claim()
    assert len(most) == wide - 1
    await group.end(*most)
    await group.settle()
    assert (await group.look())["d"].unmet == 1
    facts = await scene.store.explain(await scene.job(group.jobs["d"]))
    assert facts.node is not None
    assert (facts.node.unmet, facts.node.waits_for) == (1, ((last, S.RUNNING),))
    await group.end(last)
    assert await group.claim() == {"d"}


async def test_a_job_with_very_many_dependents_reaches_all_of_them(scene: Scene) -> None:
    wide = 2_500
    after = {"root": ""} | {f"w{n}": "root" for n in range(wide)}
    group = await scene.submit_group(a_group(after))
    await group.settle()
    await group.claim()
    await group.end("root")
    await group.settle()
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert shown.counts == {"succeeded": 1, "ready": wide}


def a_random_group(random: Random, size: int) -> GroupPart:
    """A graph in which each node depends on up to three earlier ones, with any condition."""
    keys = [f"n{n}" for n in range(size)]
    after = {
        key: random.sample(keys[:n], min(n, random.randrange(4))) for n, key in enumerate(keys)
    }
    order, group = start_order(after), new_id()
    nodes = tuple(
        a_node(group, place, key, wanted, random.choices(list(ON), [6, 2, 2])[0])
        for place, (key, wanted) in enumerate(zip(order, places(order, after), strict=True))
    )
    return GroupPart(GroupHead(group, "random", size), 0, nodes)


def outcomes(part: GroupPart, own: dict[str, JobState]) -> dict[str, JobState]:
    """What must become of each job, if those that run end as `own` says."""
    ended: list[JobState] = []
    for node in part.nodes:
        state = expected(node.on, {ended[place] for place in node.after})
        if not node.after:
            state = S.READY if node.on is not ON.FAILED else S.SKIPPED
        ended.append(own[node.key] if state is S.READY else state)
    return {node.key: state for node, state in zip(part.nodes, ended, strict=True)}


@pytest.mark.parametrize("seed", range(6))
async def test_random_graphs_end_as_a_plain_model_says(scene: Scene, seed: int) -> None:
    """Ends in random batches, repeated at random: the outcome follows from the graph alone."""
    random = Random(seed)
    part = a_random_group(random, 40)
    ways: dict[JobState, type[End]] = dict(
        zip(
            (S.SUCCEEDED, S.FAILED, S.CANCELLED, S.SKIPPED),
            (Succeeded, Failed, Cancelled, Skipped),
            strict=True,
        )
    )
    own = {node.key: random.choices(list(ways), [8, 2, 1, 1])[0] for node in part.nodes}
    group = await scene.submit_group(part)
    for _ in range(200):
        await group.claim()
        if not group.running:
            break
        some = random.sample(sorted(group.running), random.randint(1, len(group.running)))
        ends = [done(group.running.pop(key), ways[own[key]]) for key in some]
        for _ in range(random.randint(1, 2)):
            await scene.pump(finishes=ends)
        if random.random() < 0.5:
            await scene.settle(most=random.randint(1, 20))
        await scene.settle()
    assert await group.states() == outcomes(part, own)
    failed = {S.FAILED, S.DEPENDENCY_FAILED} & set((await group.states()).values())
    cancelled = S.CANCELLED in (await group.states()).values()
    wanted = G.FAILED if failed else G.CANCELLED if cancelled else G.SUCCEEDED
    assert await group.group_state() is wanted


async def test_two_dispatchers_end_the_parents_of_one_job_at_once(
    scene: Scene, backend: Backend
) -> None:
    """No decrement is lost, and the job starts once."""
    async with backend.opened() as store:
        rival = Scene(store)
        for _ in range(20):
            group = await scene.submit_group(a_group({"a": "", "b": "", "c": "a b"}))
            await group.claim()
            one, other = group.running.pop("a"), group.running.pop("b")
            await asyncio.gather(
                scene.store.pump(scene.dispatcher, Batch([done(one)])),
                rival.store.pump(rival.dispatcher, Batch([done(other)])),
            )
            await asyncio.gather(group.settle(), rival.settle())
            assert await group.claim() == {"c"}
            await group.end("c")
            await asyncio.gather(group.settle(), rival.settle())
            assert await group.group_state() is G.SUCCEEDED


async def test_a_cancel_against_dispatchers_that_end_jobs_of_the_group(
    scene: Scene, backend: Backend
) -> None:
    """They do not wait for each other for ever, and the group ends."""
    async with backend.opened() as store:
        rival = Scene(store)
        for _ in range(5):
            after = {f"p{n}": "" for n in range(20)} | {f"c{n}": f"p{n}" for n in range(20)}
            group = await scene.submit_group(a_group(after))
            await group.claim()
            ends = [done(one) for one in group.running.values()]
            await asyncio.gather(
                *(scene.pump(finishes=ends[at : at + 5]) for at in range(0, 20, 5)),
                rival.store.cancel(list(group.jobs.values())),
                rival.store.cancel_group(group.id),
                rival.settle(),
            )
            await scene.settle()
            assert await group.group_state() is G.CANCELLED
            assert await group.claim() == set()


# pausing


async def test_a_paused_group_starts_nothing_until_it_goes_on(scene: Scene) -> None:
    """What runs may end; what that would start waits, and so does what was ready."""
    after = {"runs": "", "ready": "", "waits": "runs", "last": "waits ready"}
    group = await scene.submit_group(a_group(after))
    [running] = await scene.claim(group._slot, most=1)
    assert await scene.store.pause_group(group.id, True) is GroupVerdict.PAUSED
    await group.settle()
    await scene.pump(finishes=[done(running)])
    await group.settle()
    assert await group.claim() == set()
    assert await group.group_state() is G.PAUSED
    assert set((await group.states()).values()) == {S.SUCCEEDED, S.WAITING}
    assert await scene.store.pause_group(group.id, False) is GroupVerdict.RUNNING
    await group.settle()
    assert await group.claim() == {"ready", "waits"}
    await group.end("ready", "waits")
    assert await group.claim() == {"last"}


async def test_a_retry_that_comes_due_in_a_paused_group_waits(
    scene: Scene, backend: Backend
) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await scene.store.pause_group(group.id, True)
    await scene.pump(finishes=[done(group.running.pop("a"), Retried, delay_s=5.0)])
    await group.settle()
    await backend.pass_time(10)
    await scene.store.promote()
    await group.settle()
    assert await group.claim() == set()
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"a"}


async def test_a_delay_that_was_paused_does_not_begin_anew(scene: Scene, backend: Backend) -> None:
    group = await scene.submit_group(a_group({"a": ""}, jobs={"a": a_job(delay_s=60.0)}))
    await scene.store.pause_group(group.id, True)
    await group.settle()
    assert await group.state("a") is S.WAITING
    await backend.pass_time(61)
    await scene.store.pause_group(group.id, False)
    await group.settle()
    assert await group.claim() == {"a"}


async def test_a_paused_group_can_be_cancelled_and_an_ended_one_not_paused(scene: Scene) -> None:
    group = await scene.submit_group(a_group(DIAMOND))
    await scene.store.pause_group(group.id, True)
    await group.settle()
    await scene.store.cancel_group(group.id)
    await group.settle()
    assert await group.group_state() is G.CANCELLED
    assert await scene.store.pause_group(group.id, True) is GroupVerdict.ALREADY_ENDED
    assert await scene.store.pause_group(group.id, False) is GroupVerdict.ALREADY_ENDED
    assert await scene.store.pause_group(new_id(), True) is GroupVerdict.NOT_FOUND


# retrying


async def failed_diamond(scene: Scene) -> GroupScene:
    """A group of which left failed, so bottom and below did not run."""
    group = await scene.submit_group(a_group(DIAMOND | {"below": "bottom"}))
    await group.claim()
    await group.end("top")
    await group.claim()
    await group.end("left", how=Failed)
    await group.end("right")
    await group.settle()
    assert await group.group_state() is G.FAILED
    return group


async def run_to_the_end(group: GroupScene) -> list[set[str]]:
    """Every job that can run succeeds; answers what ran, wave by wave."""
    waves = []
    while keys := await group.claim():
        waves.append(keys)
        await group.end(*keys)
        await group.settle()
    return waves


async def test_a_retry_runs_only_what_did_not_succeed(scene: Scene) -> None:
    group = await failed_diamond(scene)
    plan = await scene.store.retry_group(group.id, "me", dry_run=True)
    assert plan is not None
    assert set(plan.reopened) == {"left", "bottom", "below"}
    assert await group.group_state() is G.FAILED, "a dry run changes nothing"
    request = new_id()
    for _ in range(2):
        again = await scene.store.retry_group(group.id, "me", request)
        assert again is not None
        assert (set(again.reopened), again.refused) == (set(plan.reopened), "")
    await group.settle()
    assert await run_to_the_end(group) == [{"left"}, {"bottom"}, {"below"}]
    assert await group.group_state() is G.SUCCEEDED
    assert [(await scene.job(group.jobs[key])).round for key in ("left", "right")] == [2, 1]
    nothing = await scene.store.retry_group(group.id, "me", new_id())
    assert nothing is not None
    assert nothing.reopened == ()
    assert nothing.refused


async def test_a_retry_from_a_job_down_runs_all_below_it_again(scene: Scene) -> None:
    group = await scene.submit_group(a_group(DIAMOND))
    await run_to_the_end(group)
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["left"])
    assert plan is not None
    assert set(plan.reopened) == {"left", "bottom"}
    await group.settle()
    assert await group.group_state() is G.RUNNING
    assert await run_to_the_end(group) == [{"left"}, {"bottom"}]
    assert await group.group_state() is G.SUCCEEDED


async def test_a_retry_is_refused_while_a_job_that_it_would_open_runs(scene: Scene) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    await group.end("a")
    await group.claim()
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["a"])
    assert plan is not None
    assert plan.running == ("b",)
    assert plan.refused
    assert await group.state("a") is S.SUCCEEDED


async def test_a_retry_of_unknown_keys_or_groups_says_so(scene: Scene) -> None:
    group = await failed_diamond(scene)
    plan = await scene.store.retry_group(group.id, "me", new_id(), keys=["lfet"])
    assert plan is not None
    assert "lfet" in plan.refused
    assert await scene.store.retry_group(new_id(), "me", new_id()) is None


async def test_a_failed_part_is_retried_while_the_rest_still_runs(scene: Scene) -> None:
    """The dependents that wait count again what they wait for."""
    after = {"bad": "", "good": "", "end": "bad good", "bad2": "bad"}
    group = await scene.submit_group(a_group(after, {"end": ON.ENDED}))
    await group.claim()
    await group.end("bad", how=Failed)
    await group.settle()
    assert await group.state("end") is S.WAITING
    plan = await scene.store.retry_group(group.id, "me", new_id())
    assert plan is not None
    assert set(plan.reopened) == {"bad", "bad2"}
    await group.settle()
    await group.end("good")
    await group.settle()
    assert await group.state("end") is S.WAITING, "bad runs again"
    assert await group.claim() == {"bad"}
    await group.end("bad")
    await group.settle()
    assert await group.claim() == {"bad2", "end"}


async def test_a_cancelled_group_is_retried_where_it_stopped(scene: Scene) -> None:
    group = await scene.submit_group(a_group(DIAMOND))
    await group.claim()
    await group.end("top")
    await scene.store.cancel_group(group.id, "me")
    await group.settle()
    await scene.store.retry_group(group.id, "me", new_id())
    await group.settle()
    assert await run_to_the_end(group) == [{"left", "right"}, {"bottom"}]
    assert await group.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("seed", range(4))
async def test_random_graphs_retried_until_all_is_well(scene: Scene, seed: int) -> None:
    """Rounds of failures, then none: everything ends as it would have without them."""
    random = Random(seed)
    part = a_random_group(random, 25)
    part = structs.replace(
        part, nodes=tuple(structs.replace(n, on=ON.SUCCEEDED) for n in part.nodes)
    )
    group = await scene.submit_group(part)
    for badly in (0.5, 0.3, 0.0):
        for _ in range(100):
            if not await group.claim() and not group.running:
                break
            some = random.sample(sorted(group.running), random.randint(1, len(group.running)))
            hows: dict[str, type[End]] = {
                key: Failed if random.random() < badly else Succeeded for key in some
            }
            await scene.pump(finishes=[done(group.running.pop(key), hows[key]) for key in some])
            await scene.settle(most=random.randint(1, 9))
            if random.random() < 0.3:
                await scene.store.retry_group(group.id, "me", new_id())
        await group.settle()
        await scene.store.retry_group(group.id, "me", new_id())
        await group.settle()
    assert set((await group.states()).values()) == {S.SUCCEEDED}
    assert await group.group_state() is G.SUCCEEDED


# results as arguments


async def test_results_are_filled_in_wherever_an_attempt_is_answered(scene: Scene) -> None:
    """At the claim, when it is read back, and when another dispatcher takes the worker over."""
    wanted = needs(Reference("a"), Reference("a", ("pages", 1)), own={"$$result": "mine"})
    group = await scene.submit_group(a_group({"a": "", "b": "a"}, jobs={"b": wanted}))
    await group.claim()
    result = {"pages": ["x", "y"]}
    await scene.pump(finishes=[done(group.running.pop("a"), result=pack(result, "result"))])
    await group.claim()
    args = {"a0": result, "a1": "y", "own": {"$result": "mine"}}
    attempt = group.running["b"]
    assert (unpack(attempt.args), attempt.problem) == (args, "")
    [placed] = await scene.store.placed([group._slot])
    assert unpack(placed.args) == args
    adopted = await scene.store.attend(new_id(), a_worker(id=attempt.worker))
    assert isinstance(adopted, Attended)
    assert [unpack(one.args) for one in adopted.placed] == [args]
    stored = await scene.job(group.jobs["b"])
    assert unpack(stored.args) == unpack(wanted.args), "what was submitted stays as it was"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (Reference("failed"), "'failed', which has none: it is failed"),
        (Reference("skipped"), "'skipped', which has none: it is skipped"),
        (Reference("nobody"), "no job 'nobody'"),
        (Reference("ok", ("x",)), "'ok' has no 'x': it is a list of 2"),
        (Reference("ok", (5,)), "has no 5"),
    ],
)
async def test_a_result_that_is_not_there_is_told_with_the_attempt(
    scene: Scene, reference: Reference, says: str
) -> None:
    after, on = {"ok": "", "failed": "", "skipped": "", "b": "ok failed skipped"}, {"b": ON.ENDED}
    group = await scene.submit_group(a_group(after, on, jobs={"b": needs(reference)}))
    await group.claim()
    await group.end("skipped", how=Skipped)
    await scene.pump(finishes=[done(group.running.pop("ok"), result=pack([1, 2], "result"))])
    await group.end("failed", how=Failed)
    await group.claim()
    assert says in group.running["b"].problem


async def test_results_past_the_limit_are_told_with_the_attempt_that_refers_to_them(
    scene: Scene,
) -> None:
    """Together they are not even read; what one takes counts as arguments, too."""
    half = b"\xc6" + (MAX_REFERENCED_BYTES // 2).to_bytes(4) + bytes(MAX_REFERENCED_BYTES // 2)
    wanted = {"c": needs(Reference("a"), Reference("b")), "d": needs(Reference("a"))}
    part = a_group({"a": "", "b": "", "c": "a b", "d": "a"}, jobs=wanted)
    group = await scene.submit_group(part)
    await group.claim()
    for key in ("a", "b"):
        await group.end(key, result=half)
    await group.settle()
    assert await group.claim() == {"c", "d"}
    assert "take 16,777,226 bytes, more than 16,777,216" in group.running["c"].problem
    assert "8,388,617 bytes, more than max_value_bytes" in group.running["d"].problem
