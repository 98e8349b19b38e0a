"""A paused or cancelled group begins nothing any more, once the dispatcher has answered.

A real dispatcher answers, while another one claims what is ready as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from longshore.config import DispatcherSettings
from longshore.dispatcher.duties import groups as upkeep
from longshore.dispatcher.engine import Dispatcher
from longshore.model.group import Group, GroupState, GroupVerdict
from longshore.model.job import JobState
from longshore.ports import Store
from longshore.run.machine import SystemClock
from longshore.testing.backends import Backend
from longshore.testing.builders import GroupScene, Scene, a_group, new_id
from longshore.testing.loopback import Network
from longshore.wire import messages as m
from longshore.wire.codec import answer_to, encode, to_client

JOBS = 2_500
"""A sweep takes several steps for so many."""
SETTINGS = DispatcherSettings(group_poll_s=1000.0)


class Asked:
    """A dispatcher over a store, and a client that asks it one request at a time."""

    def __init__(self, store: Store) -> None:
        self._network = Network()
        self._answers: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._dispatcher = Dispatcher(
            store, SETTINGS, id=new_id(), name="asked", clock=SystemClock(), random=Random(1)
        )

    async def start(self) -> None:
        """Listens, and connects the client."""
        await self._dispatcher.start(self._network.listen, "workers", "clients")
        self._link = self._network.connect("clients", self._receive)

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _, frames in arrived:
            self._answers.put_nowait(frames)

    async def ask(self, request: m.Request) -> object:
        """The answer to a request."""
        self._link.send(b"", encode(request))
        answer = to_client.decode(await self._answers.get())
        return answer if isinstance(answer, m.Err) else answer_to(request, answer)

    async def stop(self) -> None:
        """Ends the dispatcher."""
        await self._dispatcher.stop()


@pytest.fixture
async def asked(backend: Backend, store: Store) -> AsyncIterator[Asked]:
    async with backend.opened() as other:
        asked = Asked(other)
        await asked.start()
        yield asked
        await asked.stop()


class Claimers:
    """They claim jobs of a group without a pause, and end none of them."""

    def __init__(self, group: GroupScene) -> None:
        self._group = group
        self._began = asyncio.Event()
        self._tasks = [asyncio.create_task(self._claim()) for _ in range(2)]

    async def _claim(self) -> None:
        while True:
            if await self._group.claim(5):
                self._began.set()
            await asyncio.sleep(0)  # the store in memory never lets others have a turn

    async def have_begun(self) -> None:
        """Some jobs run by now."""
        await self._began.wait()

    async def stop(self) -> None:
        """Whatever they had asked for is answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def a_wide_group(scene: Scene) -> GroupScene:
    """A group in which all jobs are ready, but for a last one."""
    part = a_group({f"n{place}": "" for place in range(JOBS)} | {"last": "n0"})
    return await scene.submit_group(part)


@pytest.mark.parametrize("wanted", ["pause", "cancel"])
async def test_nothing_begins_after_the_answer(scene: Scene, asked: Asked, wanted: str) -> None:
    group = await a_wide_group(scene)
    claimers = Claimers(group)
    await claimers.have_begun()
    if wanted == "pause":
        answer = await asked.ask(m.PauseGroup(1, new_id(), group.id, True))
        assert answer is GroupVerdict.PAUSED
    else:
        answer = await asked.ask(m.CancelGroup(1, new_id(), group.id))
        assert answer is GroupVerdict.CANCELLING
    assert await group.claim(JOBS) == set()
    await claimers.stop()
    began = len(group.running)
    assert began < JOBS
    counts = await states(scene, group)
    if wanted == "pause":
        assert counts == {JobState.RUNNING: began, JobState.WAITING: JOBS + 1 - began}
    else:
        assert counts == {JobState.CANCELLING: began, JobState.CANCELLED: JOBS + 1 - began}


async def states(scene: Scene, group: GroupScene) -> dict[JobState, int]:
    found = await scene.store.group(group.id)
    assert found is not None
    return {JobState(state): n for state, n in found.counts.items()}


async def test_a_repeated_pause_lets_the_sweep_go_on_where_it_is(scene: Scene) -> None:
    """A client asks again what it had no answer to. A sweep that began anew would never end."""
    group = await a_wide_group(scene)
    assert await scene.store.pause_group(group.id, True) is GroupVerdict.PAUSED
    for _ in range(10):
        assert await scene.store.is_sweeping(group.id)
        await scene.store.settle()
        await scene.store.pause_group(group.id, True)
        if (await states(scene, group)) == {JobState.WAITING: JOBS + 1}:
            break
    assert await states(scene, group) == {JobState.WAITING: JOBS + 1}
    await group.settle()
    assert not await scene.store.is_sweeping(group.id)
    assert not await scene.store.is_sweeping(new_id())


async def test_an_answer_does_not_wait_for_ever(
    scene: Scene, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of a group that takes longer goes on after the answer."""
    monkeypatch.setattr(upkeep, "TAKEN_WITHIN_S", 0.0)
    group = await a_wide_group(scene)
    answer = await asked.ask(m.PauseGroup(1, new_id(), group.id, True))
    assert answer is GroupVerdict.PAUSED
    waiting = {JobState.WAITING.value: JOBS + 1}
    while True:
        found = await asked.ask(m.ShowGroup(2, group.id))
        assert isinstance(found, Group)
        assert found.state is GroupState.PAUSED
        if found.counts == waiting:
            break
