"""Groups in time: an ended one goes whole or not at all, and an abandoned one is cancelled."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from longshore.core.lifecycle import TERMINAL
from longshore.errors import StoreUnavailable
from longshore.model.ends import End, Failed, Succeeded
from longshore.model.group import GroupFilter, GroupState, GroupSubmitted, GroupVerdict
from longshore.model.job import JobState, LogEntry, LogKind
from longshore.model.retention import GroupsPruned, Retention
from longshore.ports import Store
from longshore.store.postgres import group_upkeep as postgres_upkeep
from longshore.store.sqlite import group_upkeep as sqlite_upkeep
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, done, new_id, some_jobs
from longshore.testing.faults import Fault, FaultyStore, scripted

from .test_groups import DIAMOND, parts
from .test_prune import AT_ONCE, DAY_S, counts, prune

S = JobState
G = GroupState


async def prune_groups(store: Store, kept: Retention = AT_ONCE, most: int = 1000) -> GroupsPruned:
    """All that a pruning of groups removes."""
    groups = jobs = 0
    step = GroupsPruned(0, 0, done=False)
    while not step.done:
        step = await store.prune_groups(kept, most=most)
        assert step.jobs <= most
        groups, jobs = groups + step.groups, jobs + step.jobs
    return GroupsPruned(groups, jobs, done=True)


async def ended(scene: Scene, how: type[End] = Succeeded) -> GroupScene:
    """A diamond whose first job ended so, and all others as it lets them."""
    group = await scene.submit_group(a_group(DIAMOND))
    await group.claim()
    await group.end("top", how=how)
    while keys := await group.claim():
        await group.end(*keys)
    await group.settle()
    return group


async def exists(scene: Scene, group: GroupScene) -> bool:
    """Whether a group is there; its jobs are if and only if it is."""
    there = [await scene.store.job(id) is not None for id in group.jobs.values()]
    found = await scene.store.group(group.id) is not None
    assert there == [found] * len(there)
    return found


async def test_an_ended_group_goes_with_all_that_belongs_to_it(
    scene: Scene, backend: Backend
) -> None:
    group = await ended(scene, Failed)
    await scene.store.retry_group(group.id, request=new_id())
    await group.settle()
    await group.claim()
    top = group.running["top"]
    await scene.store.log([LogEntry(top.id, top.token, 1, LogKind.TEXT, b"hello")])
    await group.end("top", how=Failed)
    await group.settle()
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert await backend.group_rows() > 0
    assert await prune_groups(scene.store) == GroupsPruned(1, 4, done=True)
    assert not await exists(scene, group)
    assert await scene.store.group(shown.number) is None
    assert await scene.store.job(top.number) is None
    assert await scene.store.ended([group.id, *group.jobs.values()]) == []
    assert await backend.group_rows() == await backend.logged() == 0
    assert await counts(scene.store) == {}


@pytest.mark.parametrize(("how", "state"), [(Succeeded, S.SUCCEEDED), (Failed, S.FAILED)])
async def test_a_group_is_kept_as_long_as_a_job_that_ended_so(
    scene: Scene, backend: Backend, how: type[End], state: JobState
) -> None:
    group = await ended(scene, how)
    others = Retention(seconds=dict.fromkeys(TERMINAL - {state}, 0.0))
    assert await prune_groups(scene.store, others) == GroupsPruned(0, 0, done=True)
    await backend.pass_time(DAY_S / 2)
    a_day = Retention(seconds={state: DAY_S})
    assert await prune_groups(scene.store, a_day) == GroupsPruned(0, 0, done=True)
    assert await exists(scene, group)
    await backend.pass_time(DAY_S / 2)
    assert await prune_groups(scene.store, a_day) == GroupsPruned(1, 4, done=True)
    assert not await exists(scene, group)


async def test_no_job_of_a_live_group_is_removed(scene: Scene, backend: Backend) -> None:
    """Whatever the group is, and although a job of it ended long ago."""
    live = []
    for _ in range(3):
        group = await scene.submit_group(a_group({"a": "", "b": "", "c": "a b"}))
        assert await group.claim() == {"a", "b"}
        await group.end("a")
        live.append(group)
    _, paused, cancelling = live
    staged, _ = parts(a_group(DIAMOND), 2)
    await scene.store.submit_group(staged)
    await scene.store.cancel([staged.nodes[0].job.id])
    await scene.store.pause_group(paused.id, True)
    await scene.store.cancel_group(cancelling.id)
    await scene.settle()
    await backend.pass_time(100 * DAY_S)
    before = await counts(scene.store)
    assert await prune_groups(scene.store) == GroupsPruned(0, 0, done=True)
    assert await prune(scene.store, AT_ONCE) == {}
    assert await counts(scene.store) == before
    assert all([await exists(scene, group) for group in live])
    states = {one.state for one in await scene.store.groups(GroupFilter())}
    assert states == {G.RUNNING, G.PAUSED, G.CANCELLING, G.STAGING}


async def test_nobody_sees_half_a_group_and_another_process_removes_the_rest(
    scene: Scene, backend: Backend
) -> None:
    part = a_group(DIAMOND)
    group = await scene.submit_group(part)
    await scene.store.cancel_group(group.id)
    await group.settle()
    last = await scene.job(group.jobs["bottom"])
    [shown] = await scene.store.groups(GroupFilter())
    assert (await scene.store.prune_groups(AT_ONCE, most=2)).groups == 1
    assert (await scene.store.prune_groups(AT_ONCE, most=2)).jobs == 2
    for ref in (group.id, shown.number):
        assert await scene.store.group(ref) is None
    assert await scene.store.groups(GroupFilter()) == []
    assert await scene.store.nodes(group.id) == []
    assert await scene.store.ended([group.id]) == []
    assert await scene.store.retry_group(group.id) is None
    assert await scene.store.cancel_group(group.id) is GroupVerdict.NOT_FOUND
    assert await scene.store.pause_group(group.id, True) is GroupVerdict.NOT_FOUND
    assert (await scene.store.explain(last)).node is None
    async with backend.opened() as other:
        assert await prune_groups(other) == GroupsPruned(0, 2, done=True)
    assert await backend.group_rows() == 0
    assert await counts(scene.store) == {}


async def test_a_group_submitted_again_while_it_goes_loses_no_job(scene: Scene) -> None:
    """It is the old group until nothing of that is left, and a new one afterwards."""
    part = a_group(DIAMOND)
    group = await scene.submit_group(part)
    await scene.store.cancel_group(group.id)
    await group.settle()
    for _ in range(2):
        await scene.store.prune_groups(AT_ONCE, most=2)
    answer = await scene.store.submit_group(part)
    assert isinstance(answer, GroupSubmitted)
    assert answer.state is G.CANCELLED
    assert (await prune_groups(scene.store)).jobs == 2
    again = await scene.store.submit_group(part)
    assert isinstance(again, GroupSubmitted)
    assert again.number > answer.number
    assert await prune_groups(scene.store) == GroupsPruned(0, 0, done=True)
    assert await counts(scene.store) == {"waiting": 3, "ready": 1}


async def test_several_at_once_remove_nothing_twice(scene: Scene, backend: Backend) -> None:
    groups = [await ended(scene) for _ in range(5)]

    async def by(most: int) -> GroupsPruned:
        async with backend.opened() as other:
            return await prune_groups(other, most=most)

    removed = await asyncio.gather(*map(by, (1, 2, 3, 100)))
    rest = await prune_groups(scene.store)
    assert sum(one.groups for one in (*removed, rest)) == len(groups)
    assert sum(one.jobs for one in (*removed, rest)) == 4 * len(groups)
    assert await counts(scene.store) == {}
    assert await backend.group_rows() == 0


async def test_a_step_whose_answer_got_lost_is_not_done_again(scene: Scene) -> None:
    await ended(scene)
    faulty = FaultyStore(scene.store, scripted(*[("prune_groups", Fault.AFTER)] * 2))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await faulty.prune_groups(AT_ONCE, most=3)
    assert await prune_groups(faulty) == GroupsPruned(0, 1, done=True)
    assert await counts(scene.store) == {}


async def test_many_dependents_go_in_several_steps(
    scene: Scene, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (postgres_upkeep, sqlite_upkeep):
        monkeypatch.setattr(module, "MOST_EDGES", 3)
    wide = {"a": "", **{f"b{n}": "a" for n in range(10)}}
    for _ in range(2):
        group = await scene.submit_group(a_group(wide))
        await scene.store.cancel_group(group.id)
    await scene.settle()
    assert await prune_groups(scene.store) == GroupsPruned(2, 22, done=True)
    assert await backend.group_rows() == 0


async def test_a_dry_run_counts_and_removes_nothing(scene: Scene) -> None:
    groups = [await ended(scene), await ended(scene, Failed)]
    both = await scene.store.prune_groups(AT_ONCE, dry_run=True)
    assert both == GroupsPruned(2, 8, done=True)
    good = Retention(seconds={S.SUCCEEDED: 0.0})
    assert await scene.store.prune_groups(good, dry_run=True) == GroupsPruned(1, 4, done=True)
    assert all([await exists(scene, group) for group in groups])


async def test_claims_go_on_while_groups_are_pruned(scene: Scene, backend: Backend) -> None:
    for _ in range(5):
        await ended(scene)
    waiting = await scene.accepted(*some_jobs(20))
    slot = await scene.attend()

    async def work() -> list[int]:
        taken: list[int] = []
        while len(taken) < len(waiting):
            claimed = await scene.claim(slot, most=2)
            taken += [one.number for one in claimed]
            await scene.finish(*map(done, claimed))
        return taken

    async with backend.opened() as other:
        taken, pruned = await asyncio.gather(work(), prune_groups(other, most=1))
    assert taken == waiting
    assert pruned == GroupsPruned(5, 20, done=True)


# abandoned


async def cancelled_by(scene: Scene, group: UUID) -> str:
    shown = await scene.store.group(group)
    assert shown is not None
    return shown.cancelled_by


async def test_a_group_whose_submitter_sends_no_more_is_cancelled(
    scene: Scene, backend: Backend
) -> None:
    """The time counts from its last part."""
    first, second, _ = parts(a_group(DIAMOND | {"e": "", "f": ""}), 2)
    whole = await scene.submit_group(a_group(DIAMOND))
    for part in (first, second):
        assert await scene.store.cancel_abandoned(600.0) == []
        await scene.store.submit_group(part)
        await backend.pass_time(400.0)
    assert await scene.store.cancel_abandoned(600.0) == []
    await backend.pass_time(250.0)
    assert await scene.store.cancel_abandoned(600.0) == [first.head.id]
    assert await scene.store.cancel_abandoned(600.0) == []
    settled = await scene.settle()
    assert [one.state for one in settled.ended] == [S.CANCELLED] * 5
    assert await cancelled_by(scene, first.head.id) == "its submitter did not send the rest"
    assert await whole.group_state() is G.RUNNING


async def test_several_at_once_cancel_each_abandoned_group_once(
    scene: Scene, backend: Backend
) -> None:
    staged = [parts(a_group(DIAMOND), 2)[0] for _ in range(5)]
    for part in staged:
        await scene.store.submit_group(part)

    async def by() -> list[UUID]:
        async with backend.opened() as other:
            return [*await other.cancel_abandoned(0.0, 2), *await other.cancel_abandoned(0.0, 2)]

    found = [group for one in await asyncio.gather(by(), by(), by()) for group in one]
    found += await scene.store.cancel_abandoned(0.0)
    assert sorted(found) == sorted(part.head.id for part in staged)
    await scene.settle()
    assert {one.state for one in await scene.store.groups(GroupFilter())} == {G.CANCELLED}


async def test_the_last_part_comes_while_the_group_is_given_up(
    scene: Scene, backend: Backend
) -> None:
    """The group is whole and runs, or it is cancelled and nothing of it is left to run."""
    async with backend.opened() as other:
        for _ in range(8):
            first, second = parts(a_group(DIAMOND), 2)
            await scene.store.submit_group(first)
            answer, given_up = await asyncio.gather(
                scene.store.submit_group(second), other.cancel_abandoned(0.0)
            )
            await scene.settle()
            assert isinstance(answer, GroupSubmitted)
            shown = await scene.store.group(first.head.id)
            assert shown is not None
            if given_up:
                assert answer.staged == 2
                assert (shown.state, set(shown.counts)) == (G.CANCELLED, {"cancelled"})
            else:
                assert (shown.state, shown.counts) == (G.RUNNING, {"ready": 1, "waiting": 3})
