"""The watchdog over groups: it finds a group that stands still though it could go on, and no other.

It is the dispatcher's duty, over every store, with a clock that the test moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from random import Random
from uuid import UUID

import pytest
from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.dispatcher.duties import stalled_groups
from longshore.dispatcher.duties.stalled_groups import StalledGroups
from longshore.dispatcher.environment import Environment
from longshore.model.group import GroupState
from longshore.model.job import JobState
from longshore.testing.backends import Backend, SqlBackend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job

STALL_S = 100.0
LOSE_COUNTS = {
    "": "UPDATE job_group SET ended = 0",
    "longshore.": "DELETE FROM longshore.group_count",
}


class HandClock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def utc(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)


class Watchdog:
    """The duty, the clock it goes by, and the groups that it asked to have settled."""

    def __init__(self, scene: Scene, policy: str = "log", stall_s: float = STALL_S) -> None:
        settings = DispatcherSettings(group_stall_s=stall_s, stalled_groups=policy)
        self.clock = HandClock()
        self.rung: list[UUID] = []
        here = Environment(scene.dispatcher, scene.store, settings, self.clock, Random(1))
        self._duty = StalledGroups(here, self._ring)

    def _ring(self, groups: Collection[UUID]) -> None:
        self.rung += groups

    async def look(self, after_s: float = 0.0) -> None:
        """Looks once, so much later."""
        self.clock.seconds += after_s
        await self._duty.look()

    async def wait(self) -> None:
        """Sees what there is, and looks again when that has not changed for long."""
        await self.look()
        await self.look(STALL_S)


Said = Callable[[], list[str]]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level(logging.WARNING, "longshore.dispatcher")
    return lambda: [
        one.getMessage() for one in caplog.records if one.name == "longshore.dispatcher"
    ]


async def stalled(scene: Scene, backend: Backend) -> GroupScene:
    """A group of which nobody woke 'b' when 'a' ended."""
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "b"}))
    await group.claim()
    await group.end("a")
    await group.settle()
    await backend.force(group.jobs["b"], JobState.WAITING)
    return group


async def test_a_lost_wake_up_is_told_once_and_in_full(
    scene: Scene, backend: Backend, said: Said
) -> None:
    group = await stalled(scene, backend)
    dog = Watchdog(scene)
    await dog.look()
    await dog.look(STALL_S - 1)
    assert said() == []
    await dog.look(1)
    [words] = said()
    shown = await scene.store.group(group.id)
    job = await scene.store.job(group.jobs["b"])
    assert shown is not None
    assert job is not None
    assert words.split("\n") == [
        f"group {shown.number} ({shown.name}) has made no progress for 1 min 40 s though it could: "
        "2 waiting, 1 succeeded; nothing of it runs, and nothing that a worker could take",
        "job 'b' waits although it waits for nothing",
        f"job {job.number} (kind 'work', queue 'default') is waiting; served by w",
        "it is left as it is (stalled_groups); `longshore doctor --repair` counts it anew",
    ]
    for _ in range(3):
        await dog.look(STALL_S)
    assert said() == [words]
    assert await group.group_state() is GroupState.RUNNING
    assert dog.rung == []


async def test_a_repair_lets_the_group_go_on(scene: Scene, backend: Backend, said: Said) -> None:
    group = await stalled(scene, backend)
    dog = Watchdog(scene, "repair")
    await dog.wait()
    assert [words.split("\n")[-1] for words in said()] == ["it is counted anew (stalled_groups)"]
    assert dog.rung == [group.id]
    await group.settle()
    assert await group.claim() == {"b"}


async def test_a_cancel_ends_the_group_though_its_counts_were_wrong(
    scene: Scene, backend: Backend, said: Said
) -> None:
    group = await stalled(scene, backend)
    if isinstance(backend, SqlBackend):
        await backend.execute(LOSE_COUNTS[backend.schema])
    dog = Watchdog(scene, "cancel")
    await dog.wait()
    await group.settle()
    shown = await scene.store.group(group.id)
    assert shown is not None
    assert shown.state is GroupState.CANCELLED
    assert shown.cancelled_by == "a dispatcher, as it made no progress for 1 min 40 s"
    assert shown.counts == {"succeeded": 1, "cancelled": 2}
    assert len(said()) == 1


async def test_a_group_that_did_not_end_with_its_jobs_is_told(scene: Scene, said: Said) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a")
    await Watchdog(scene).wait()
    [words] = said()
    assert "the group is running although all its jobs have ended" in words


async def test_after_progress_a_second_stall_is_told_again(
    scene: Scene, backend: Backend, said: Said
) -> None:
    group = await stalled(scene, backend)
    dog = Watchdog(scene)
    await dog.wait()
    await scene.store.examine_group(group.id, repair=True)
    await group.settle()
    await group.claim()
    await group.end("b")
    await group.settle()
    await backend.force(group.jobs["c"], JobState.WAITING)
    await dog.look(STALL_S)
    assert len(said()) == 1
    await dog.look(STALL_S)
    assert len(said()) == 2
    assert "job 'c' waits although" in said()[1]


@pytest.mark.parametrize("other", ["running", "delayed", "ready", "paused"])
async def test_what_works_or_waits_for_good_reasons_is_no_stall(
    scene: Scene, backend: Backend, said: Said, other: str
) -> None:
    """A job waits for nothing; but another one runs, waits for a time or for a slot."""
    later = {"c": structs.replace(a_job(), delay_s=86_400.0)} if other == "delayed" else {}
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "a"}, jobs=later))
    await group.claim()
    await group.end("a")
    await group.settle()
    await backend.force(group.jobs["b"], JobState.WAITING)
    if other == "running":
        assert await group.claim() == {"c"}
    if other == "paused":
        await scene.store.pause_group(group.id, True)
        await group.settle()
    dog = Watchdog(scene, "cancel")
    for _ in range(5):
        await dog.look(STALL_S)
    assert said() == []
    assert dog.rung == []


async def test_a_paused_queue_is_no_stall(scene: Scene, said: Said) -> None:
    aside = structs.replace(a_job(kind="nobody"), queue="aside")
    await scene.store.submit_group(a_group({"a": "", "b": "a"}, jobs={"a": aside}))
    await scene.store.set_paused("aside", True)
    dog = Watchdog(scene, "cancel")
    for _ in range(3):
        await dog.look(STALL_S)
    assert said() == []
    assert dog.rung == []


async def test_ready_jobs_that_nobody_serves_are_told_once_and_never_cancelled(
    scene: Scene, said: Said
) -> None:
    jobs = {
        "a": a_job(kind="nobody"),
        "b": structs.replace(a_job(kind="nobody"), target="moon"),
    }
    await scene.attend()
    part = a_group({"a": "", "b": "", "c": "a"}, jobs=jobs)
    await scene.store.submit_group(part)
    dog = Watchdog(scene, "cancel")
    for _ in range(4):
        await dog.look(STALL_S)
    [words] = said()
    first, *lines = words.split("\n")
    assert first.endswith("1 waiting, 2 ready; none of the 1 live workers serves")
    assert sorted(lines) == [
        "kind 'nobody', queue 'default', target 'moon': 1 ready",
        "kind 'nobody', queue 'default': 1 ready",
    ]
    group = await scene.store.group(part.head.id)
    assert group is not None
    assert group.state is GroupState.RUNNING


async def test_it_can_be_turned_off(scene: Scene, backend: Backend, said: Said) -> None:
    await stalled(scene, backend)
    dog = Watchdog(scene, "cancel", stall_s=0.0)
    for _ in range(3):
        await dog.look(STALL_S)
    assert said() == []


async def test_it_goes_through_the_groups_in_turn(
    scene: Scene, backend: Backend, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, each look costs the same, and none is forgotten."""
    monkeypatch.setattr(stalled_groups, "MOST_WATCHED", 2)
    monkeypatch.setattr(stalled_groups, "MOST_EXAMINED", 1)
    groups = [await stalled(scene, backend) for _ in range(5)]
    ended = await scene.submit_group(a_group({"a": ""}))
    await ended.claim()
    dog = Watchdog(scene)
    for _ in range(3):
        await dog.look()
    await ended.end("a")
    await ended.settle()
    await dog.look(STALL_S)
    assert len(said()) == 1
    for _ in range(5):
        await dog.look()
    assert len(said()) == len(groups)
    assert len(set(said())) == len(groups)


async def test_progress_is_told_of_groups_that_have_not_ended(scene: Scene) -> None:
    first = await scene.submit_group(a_group({"a": "", "b": "a"}))
    second = await scene.submit_group(a_group({"a": ""}))
    before = await scene.store.group_progress()
    assert [(one.id, one.state) for one in before] == [
        (first.id, GroupState.RUNNING),
        (second.id, GroupState.RUNNING),
    ]
    assert await scene.store.group_progress(before[0].number, 5) == before[1:]
    assert await scene.store.group_progress(0, 1) == before[:1]
    await first.claim()
    await first.end("a")
    await first.settle()
    [after, same] = await scene.store.group_progress()
    assert after.mark != before[0].mark
    assert same == before[1]
    await scene.store.pause_group(second.id, True)
    assert (await scene.store.group_progress())[1].state is GroupState.PAUSED
