"""Growth at the same moment as something else: whichever comes first, nothing is lost or twice.

Two dispatchers with their own connections, again and again. Which of them wins is left to chance.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from longshore.model.ends import End, Failed
from longshore.model.group import GATE, NOT_RUN, GateVerdict, GroupState
from longshore.model.job import JobState
from longshore.model.reports import OutboxNode
from longshore.ports import Batch
from longshore.testing.backends import Backend
from longshore.testing.builders import (
    GroupScene,
    Scene,
    a_group,
    a_job,
    a_map,
    additions,
    done,
    new_id,
)

from .test_examined_groups import troubles
from .test_growth import ONE, PAIR, TWO, grown

S = JobState
G = GroupState

ROUNDS = 8


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


def ending(
    scene: Scene, group: GroupScene, *keys: str, adds: Sequence[OutboxNode] = (), most: int = 100
) -> asyncio.Task[object]:
    """A dispatcher ends jobs that run, in one batch, at some moment from now on."""
    ends: list[End] = [done(group.running.pop(key), adds=adds) for key in keys]
    pumped = scene.store.pump(scene.dispatcher, Batch(ends, max_group_jobs=most))
    return asyncio.ensure_future(pumped)


async def settled(scene: Scene, rival: Scene, group: GroupScene) -> None:
    """Both dispatchers settle until nothing is left to do."""
    await asyncio.gather(scene.settle(), rival.settle())
    await scene.settle()
    await group.look()


async def claim(group: GroupScene) -> set[str]:
    """Claims what is ready. A store may come a little later to what another process made ready."""
    while True:
        keys = await group.claim()
        left = (await group.look()).values()
        if keys or not any(one.state is S.READY and one.kind not in NOT_RUN for one in left):
            return keys


async def run_to_the_end(group: GroupScene) -> list[set[str]]:
    """Every job that can run succeeds; answers what ran, wave by wave."""
    waves = []
    while keys := await claim(group):
        waves.append(keys)
        await group.end(*keys)
        await group.settle()
    return waves


async def test_the_last_two_ends_of_a_scope_at_once_close_it_once(
    scene: Scene, rival: Scene
) -> None:
    for _ in range(ROUNDS):
        group = await grown(scene)
        await asyncio.gather(ending(scene, group, "a/x"), ending(rival, group, "a/y"))
        await settled(scene, rival, group)
        assert (await group.look())["a"].open == 0
        assert await run_to_the_end(group) == [{"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_two_jobs_of_one_group_add_at_once(scene: Scene, rival: Scene) -> None:
    """No two of the new jobs get one place, and all are counted."""
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a b"}))
        await group.claim()
        await asyncio.gather(
            ending(scene, group, "a", adds=TWO), ending(rival, group, "b", adds=TWO)
        )
        await settled(scene, rival, group)
        shown = await scene.store.group(group.id)
        assert shown is not None
        assert (shown.jobs, len(group.jobs)) == (7, 7)
        wanted = [{"a/x", "a/y", "b/x", "b/y"}, {"d"}]
        assert await run_to_the_end(group) == wanted
        assert await group.group_state() is G.SUCCEEDED


async def test_two_that_add_at_once_do_not_pass_the_limit_together(
    scene: Scene, rival: Scene
) -> None:
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": ""}))
        await group.claim()
        await asyncio.gather(
            ending(scene, group, "a", adds=TWO, most=5), ending(rival, group, "b", adds=TWO, most=5)
        )
        await settled(scene, rival, group)
        assert len(group.jobs) == 4
        states = {await group.state("a"), await group.state("b")}
        assert states == {S.SUCCEEDED, S.FAILED}


async def test_an_end_in_a_scope_while_another_job_of_it_adds(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        group = await grown(scene)
        await asyncio.gather(ending(scene, group, "a/x", adds=ONE), ending(rival, group, "a/y"))
        await settled(scene, rival, group)
        assert await run_to_the_end(group) == [{"a/x/x"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_growth_against_a_cancel_of_the_group(scene: Scene, rival: Scene) -> None:
    """Nothing that was added runs afterwards, and the group ends."""
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a b"}))
        await group.claim()
        await asyncio.gather(
            ending(scene, group, "a", adds=TWO),
            rival.store.cancel_group(group.id, "me"),
            rival.settle(),
            ending(scene, group, "b", adds=ONE),
        )
        await settled(scene, rival, group)
        assert await group.claim() == set()
        assert await group.group_state() is G.CANCELLED
        states = Counter((await group.states()).values())
        assert states == {S.SUCCEEDED: 2, S.CANCELLED: 4}


async def test_growth_against_a_cancel_of_the_job_that_grows(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group(PAIR))
        await group.claim()
        await asyncio.gather(
            ending(scene, group, "a", adds=TWO), rival.store.cancel([group.jobs["a"]], "me")
        )
        await settled(scene, rival, group)
        added = {await group.state("a/x"), await group.state("a/y")}
        assert added in ({S.READY}, {S.CANCELLED})
        if added == {S.READY}:
            assert await run_to_the_end(group) == [{"a/x", "a/y"}, {"d"}]
        await scene.settle()
        state = await group.group_state()
        assert state is (G.SUCCEEDED if added == {S.READY} else G.FAILED)


async def test_growth_against_a_pause_and_a_resume(scene: Scene, rival: Scene) -> None:
    for turn in range(ROUNDS):
        group = await scene.submit_group(a_group(PAIR))
        await group.claim()
        if turn % 2:
            await rival.store.pause_group(group.id, True)
        await asyncio.gather(
            ending(scene, group, "a", adds=additions({"x": "", "y": "x"})),
            rival.store.pause_group(group.id, turn % 2 == 0),
            rival.settle(),
        )
        await settled(scene, rival, group)
        if turn % 2 == 0:
            assert await group.claim() == set()
            await scene.store.pause_group(group.id, False)
            await group.settle()
        assert await run_to_the_end(group) == [{"a/x"}, {"a/y"}, {"d"}]


async def test_growth_against_a_retry_of_another_job(scene: Scene, rival: Scene) -> None:
    """Both count the group anew; the retry is before the growth or after it."""
    for _ in range(ROUNDS):
        after = {"a": "", "bad": "", "d": "a", "e": "bad a"}
        group = await scene.submit_group(a_group(after))
        await group.claim()
        await group.end("bad", how=Failed)
        await group.settle()
        await asyncio.gather(
            ending(scene, group, "a", adds=TWO),
            rival.store.retry_group(group.id, "me", new_id()),
        )
        await settled(scene, rival, group)
        assert await troubles(scene, group) == []
        await run_to_the_end(group)
        states = await group.states()
        assert set(states.values()) == {S.SUCCEEDED}, states
        assert await group.group_state() is G.SUCCEEDED


async def test_an_end_in_a_scope_against_a_retry_in_it(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        group = await grown(scene)
        await group.end("a/x", how=Failed)
        await group.settle()
        await asyncio.gather(
            ending(scene, group, "a/y"), rival.store.retry_group(group.id, "me", new_id())
        )
        await settled(scene, rival, group)
        assert await run_to_the_end(group) == [{"a/x"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_growth_of_an_added_job_against_a_retry_of_its_adder(
    scene: Scene, rival: Scene
) -> None:
    """The retry is refused while the job runs; afterwards all that it added leaves with it."""
    for _ in range(ROUNDS):
        group = await grown(scene, ONE)
        _, plan = await asyncio.gather(
            ending(scene, group, "a/x", adds=ONE),
            rival.store.retry_group(group.id, "me", new_id(), keys=["a"]),
        )
        await settled(scene, rival, group)
        assert plan is not None
        assert await troubles(scene, group) == []
        if plan.refused:
            assert await run_to_the_end(group) == [{"a/x/x"}, {"d"}]
        else:
            assert set(plan.retired) == {"a/x", "a/x/x"}
            assert await run_to_the_end(group) == [{"a"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_growth_against_the_end_of_the_group(scene: Scene, rival: Scene) -> None:
    """The other last job ends at the moment when one adds: the group does not close between."""
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": ""}))
        await group.claim()
        await asyncio.gather(
            ending(scene, group, "a", adds=ONE),
            ending(rival, group, "b"),
            rival.settle(),
            scene.settle(),
        )
        await settled(scene, rival, group)
        assert await group.group_state() is G.RUNNING
        assert await run_to_the_end(group) == [{"a/x"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_two_dispatchers_settle_one_map_at_once(scene: Scene, rival: Scene) -> None:
    """Each element becomes one job, and the map is whole."""
    for _ in range(ROUNDS):
        part = a_group({"m": "", "d": "m"}, jobs={"m": a_map(range(9))})
        group = await scene.submit_group(part)
        await asyncio.gather(
            *(one.store.settle(most=2) for one in (scene, rival) * 3), return_exceptions=False
        )
        await settled(scene, rival, group)
        assert await run_to_the_end(group) == [{f"m/{n}" for n in range(9)}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_a_map_that_grows_while_its_group_is_cancelled_ends(
    scene: Scene, rival: Scene
) -> None:
    for _ in range(ROUNDS):
        part = a_group({"m": "", "d": "m"}, jobs={"m": a_map(range(9))})
        group = await scene.submit_group(part)
        await asyncio.gather(
            scene.store.settle(most=2),
            rival.store.cancel_group(group.id, "me"),
            scene.store.settle(most=2),
            rival.store.settle(most=2),
        )
        await settled(scene, rival, group)
        assert await group.claim() == set()
        assert await group.group_state() is G.CANCELLED


async def test_the_ends_of_elements_while_the_map_still_grows(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        part = a_group({"m": "", "d": "m"}, jobs={"m": a_map(range(4))})
        group = await scene.submit_group(part)
        while not await group.claim():
            await scene.store.settle(most=1)
        for _ in range(6):
            keys = list(group.running)
            await asyncio.gather(ending(scene, group, *keys), rival.store.settle(most=1))
            await claim(group)
            if "d" in group.running:
                break
        await settled(scene, rival, group)
        await claim(group)
        assert set(group.running) == {"d"}
        assert len(group.jobs) == 6


async def test_a_gate_opened_twice_at_once_is_opened_once(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        part = a_group({"gate": "", "d": "gate"}, jobs={"gate": a_job(kind=GATE)})
        group = await scene.submit_group(part)
        await group.settle()
        verdicts = await asyncio.gather(
            scene.store.open_gate(group.id, "gate", b"\xc3"),
            rival.store.open_gate(group.id, "gate", b"\xc2"),
        )
        assert sorted(verdicts) == [GateVerdict.ALREADY_ENDED, GateVerdict.OPENED]
        await settled(scene, rival, group)
        assert await run_to_the_end(group) == [{"d"}]


async def test_a_gate_is_opened_or_cancelled_but_not_both(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        part = a_group({"gate": "", "d": "gate"}, jobs={"gate": a_job(kind=GATE)})
        group = await scene.submit_group(part)
        await group.settle()
        verdict, _, _ = await asyncio.gather(
            scene.store.open_gate(group.id, "gate"),
            rival.store.cancel_group(group.id, "me"),
            rival.settle(),
        )
        await settled(scene, rival, group)
        opened = await group.state("gate") is S.SUCCEEDED
        assert opened == (verdict is GateVerdict.OPENED)
        assert await group.group_state() is G.CANCELLED


@pytest.mark.parametrize("deep", [3])
async def test_many_scopes_in_scopes_close_from_two_sides(
    scene: Scene, rival: Scene, deep: int
) -> None:
    """A tree of scopes: two dispatchers end its leaves, and all of it closes."""
    group = await scene.submit_group(a_group(PAIR))
    await group.claim()
    await group.end("a", adds=TWO)
    for _ in range(deep):
        await group.claim()
        keys = list(group.running)
        await asyncio.gather(
            ending(scene, group, *keys[::2], adds=TWO), ending(rival, group, *keys[1::2], adds=TWO)
        )
        await group.look()
    await group.claim()
    keys = list(group.running)
    assert len(keys) == 2 ** (deep + 1)
    await asyncio.gather(
        *(ending(scene, group, key) for key in keys[::2]),
        *(ending(rival, group, key) for key in keys[1::2]),
    )
    await settled(scene, rival, group)
    assert await run_to_the_end(group) == [{"d"}]
    assert await group.group_state() is G.SUCCEEDED
