"""How long kinds run: each store adds up what dispatchers tell it, as the core does."""

from __future__ import annotations

import asyncio

import pytest

from longshore.core.run_times import KEPT_S, MOST_RUNS
from longshore.model.run_time import RunTime
from longshore.testing.backends import Backend, SqlBackend
from longshore.testing.builders import Scene

AGE = {
    "": f"UPDATE run_time SET noted_at = noted_at - {int((KEPT_S + 60) * 1e6)}",
    "longshore.": "UPDATE longshore.run_time "
    f"SET noted_at = noted_at - make_interval(secs => {KEPT_S + 60})",
}


async def test_nothing_is_known_of_kinds_that_never_ran(scene: Scene) -> None:
    assert await scene.store.run_times(["pack"]) == []
    assert await scene.store.run_times([]) == []


async def test_runs_are_added_up_to_a_mean(scene: Scene) -> None:
    await scene.store.note_runs([RunTime("pack", 3, 2.0), RunTime("fetch", 1, 0.5)])
    await scene.store.note_runs([RunTime("pack", 1, 6.0)])
    found = await scene.store.run_times(["pack", "fetch", "pack", "unknown"])
    assert found == [RunTime("fetch", 1, 0.5), RunTime("pack", 4, 3.0)]
    assert await scene.store.run_times(["fetch"]) == [RunTime("fetch", 1, 0.5)]


async def test_older_runs_fade(scene: Scene) -> None:
    await scene.store.note_runs([RunTime("pack", 50 * MOST_RUNS, 1.0)])
    await scene.store.note_runs([RunTime("pack", MOST_RUNS, 3.0)])
    [found] = await scene.store.run_times(["pack"])
    assert found.runs == 2 * MOST_RUNS
    assert found.mean_s == pytest.approx(2.0)


async def test_a_kind_that_did_not_run_for_long_is_forgotten(
    scene: Scene, backend: Backend
) -> None:
    await scene.store.note_runs([RunTime("old", 1, 1.0)])
    if isinstance(backend, SqlBackend):
        await backend.execute(AGE[backend.schema])
    else:
        await backend.pass_time(KEPT_S + 60)
    await scene.store.note_runs([RunTime("new", 1, 1.0)])
    assert await scene.store.run_times(["old", "new"]) == [RunTime("new", 1, 1.0)]


async def test_several_dispatchers_note_the_same_kinds_at_once(
    scene: Scene, backend: Backend
) -> None:
    """Each in an order of its own: no two of them wait for each other."""
    kinds = [f"kind-{place:02}" for place in range(20)]

    async def note(names: list[str]) -> None:
        async with backend.opened() as store:
            for _ in range(5):
                await store.note_runs([RunTime(kind, 1, 2.0) for kind in names])

    await asyncio.gather(note(kinds), note(kinds[::-1]))
    assert await scene.store.run_times(kinds) == [RunTime(kind, 10, 2.0) for kind in kinds]
