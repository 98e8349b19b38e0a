"""An addition at the same moment as something else: whichever comes first, nothing is lost.

Two dispatchers with their own connections, again and again. Which of them wins is left to chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from longshore.errors import WrongState
from longshore.model.ends import Failed
from longshore.model.group import AddedNode, GroupState, GroupSubmitted
from longshore.model.job import JobState, Refused
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, additions, new_id

from .test_additions import ON, new, with_a_sub_group
from .test_examined_groups import troubles
from .test_growth_races import ROUNDS, claim, ending, run_to_the_end, settled

S = JobState
G = GroupState


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


def adding(scene: Scene, group: GroupScene, *nodes: AddedNode) -> asyncio.Task[object]:
    """A client of this dispatcher adds these, at some moment from now on."""
    return asyncio.ensure_future(scene.store.add_to_group(group.id, new_id(), nodes))


async def test_an_outside_add_against_the_close_of_the_group(scene: Scene, rival: Scene) -> None:
    """It is refused, or the group does not close before what was added has ended."""
    nodes = [new("b", "a"), new("c", "b")]
    for turn in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": ""}))
        await group.claim()
        await ending(scene, group, "a")
        first = adding(scene, group, *nodes) if turn % 2 else None
        close = asyncio.ensure_future(rival.settle())
        answer, _ = await asyncio.gather(first or adding(scene, group, *nodes), close)
        await settled(scene, rival, group)
        if isinstance(answer, Refused):
            assert answer.code == WrongState.code
            assert set(group.jobs) == {"a"}
        else:
            assert await group.group_state() is G.RUNNING
            assert await run_to_the_end(group) == [{"b"}, {"c"}]
        assert await group.group_state() is G.SUCCEEDED


@pytest.mark.parametrize("how", ["one", "many"])
async def test_an_edge_is_added_while_its_parent_ends(scene: Scene, rival: Scene, how: str) -> None:
    """The new job hears of the end once: it neither waits for ever nor starts too early."""
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": "", "d": "a"}))
        await group.claim()
        nodes = [new("x", "a"), new("y", "a b")] if how == "one" else [new("y", "b a", ON.ENDED)]
        await asyncio.gather(ending(rival, group, "a"), adding(scene, group, *nodes))
        await settled(scene, rival, group)
        views = await group.look()
        assert (views["y"].state, views["y"].unmet) == (S.WAITING, 1)
        assert await claim(group) == {"d"} | ({"x"} if how == "one" else set())
        await group.end("b")
        await group.settle()
        assert await claim(group) == {"y"}


async def test_an_edge_is_added_while_a_cancel_of_its_parent_is_told(
    scene: Scene, rival: Scene
) -> None:
    """The end is noted, and told by somebody else."""
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": ""}))
        [running] = await group.claim(1)
        [gone] = {"a", "b"} - {running}
        await scene.store.cancel([group.jobs[gone]], "me")
        await asyncio.gather(rival.store.settle(), adding(scene, group, new("y", "a b", ON.ENDED)))
        await settled(scene, rival, group)
        views = await group.look()
        assert (views["y"].state, views["y"].unmet) == (S.WAITING, 1)
        await group.end(running)
        assert await claim(group) == {"y"}


async def test_an_edge_is_added_while_the_scope_of_its_parent_closes(
    scene: Scene, rival: Scene
) -> None:
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": ""}))
        await group.claim()
        await group.end("a", adds=additions({"x": ""}))
        await group.claim()
        await asyncio.gather(
            ending(rival, group, "a/x"), adding(scene, group, new("y", "a b")), rival.store.settle()
        )
        await settled(scene, rival, group)
        views = await group.look()
        assert (views["y"].state, views["y"].unmet) == (S.WAITING, 1)
        await group.end("b")
        await group.settle()
        assert await claim(group) == {"y"}


async def test_a_job_joins_a_sub_group_while_that_closes(scene: Scene, rival: Scene) -> None:
    """It is refused, or those that depend on the sub-group wait for it too."""
    for _ in range(ROUNDS):
        group = await with_a_sub_group(scene)
        await group.settle()
        await group.claim()
        _, answer, _ = await asyncio.gather(
            ending(rival, group, "part/x"),
            adding(scene, group, new("part/y", "part/x")),
            rival.store.settle(),
        )
        await settled(scene, rival, group)
        assert await troubles(scene, group) == []
        waves = await run_to_the_end(group)
        assert waves == ([{"d"}] if isinstance(answer, Refused) else [{"part/y"}, {"d"}])
        assert await group.group_state() is G.SUCCEEDED


async def test_an_addition_against_cancel_and_pause(scene: Scene, rival: Scene) -> None:
    for turn in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "b": ""}))
        await group.claim()
        await group.end("b")
        is_cancel = turn % 2 == 0
        change = rival.store.cancel_group if is_cancel else rival.store.pause_group
        answer, *_ = await asyncio.gather(
            adding(scene, group, new("x", "b"), new("y", "a")),
            change(group.id, "me" if is_cancel else True),  # type: ignore[arg-type]
            rival.store.settle(),
        )
        await settled(scene, rival, group)
        assert await group.claim() == set()
        if not is_cancel:
            assert isinstance(answer, GroupSubmitted)
            await rival.store.pause_group(group.id, False)
            await settled(scene, rival, group)
            assert await claim(group) == {"x"}
        await group.end("a")
        await run_to_the_end(group)
        if is_cancel:
            await settled(scene, rival, group)
            assert await group.group_state() is G.CANCELLED
            assert {await group.state(key) for key in group.jobs} == {S.SUCCEEDED, S.CANCELLED} or (
                isinstance(answer, Refused)
            )


async def test_an_addition_against_a_retry_and_growth(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": "", "bad": "", "d": "a"}))
        await group.claim()
        await group.end("bad", how=Failed)
        await group.settle()
        await asyncio.gather(
            adding(scene, group, new("x", "bad a"), new("y", "a")),
            rival.store.retry_group(group.id, "me", new_id()),
            ending(rival, group, "a", adds=additions({"k": ""})),
        )
        await settled(scene, rival, group)
        assert await troubles(scene, group) == []
        await run_to_the_end(group)
        if await group.state("x") is S.DEPENDENCY_FAILED:
            # It was added before the retry heard of it, and is retried like any other.
            await scene.store.retry_group(group.id, "me", new_id())
            await settled(scene, rival, group)
            await run_to_the_end(group)
        assert set((await group.states()).values()) == {S.SUCCEEDED}
        assert await group.group_state() is G.SUCCEEDED


async def test_two_additions_at_once_do_not_pass_the_limit_together(
    scene: Scene, rival: Scene
) -> None:
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": ""}))
        answers = await asyncio.gather(
            *(
                one.store.add_to_group(group.id, new_id(), [new(key, "a")], max_group_jobs=2)
                for key, one in (("x", scene), ("y", rival))
            )
        )
        assert sorted(type(one).__name__ for one in answers) == ["GroupSubmitted", "Refused"]
        assert len(await group.look()) == 2


async def test_one_request_sent_twice_at_once_is_one_addition(scene: Scene, rival: Scene) -> None:
    for _ in range(ROUNDS):
        group = await scene.submit_group(a_group({"a": ""}))
        request, nodes = new_id(), [new("x", "a"), new("y")]
        one, other = await asyncio.gather(
            *(at.store.add_to_group(group.id, request, nodes) for at in (scene, rival))
        )
        assert one == other
        assert set(await group.look()) == {"a", "x", "y"}
