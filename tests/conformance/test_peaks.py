"""How much kinds use: each store keeps the most of this period and of the one before it."""

from __future__ import annotations

from longshore.core.usage import KEPT_S, PERIOD_S
from longshore.model.usage import Peak
from longshore.testing.backends import Backend, SqlBackend
from longshore.testing.builders import Scene


async def passed(backend: Backend, seconds: float) -> None:
    """So much time passes for the peaks that are kept."""
    if isinstance(backend, SqlBackend) and backend.schema:
        by = f"make_interval(secs => {seconds})"
        await backend.execute(f"UPDATE longshore.peak SET since = since - {by}")
    elif isinstance(backend, SqlBackend):
        await backend.execute(f"UPDATE peak SET since = since - {round(seconds * 1e6)}")
    else:
        await backend.pass_time(seconds)


async def test_the_most_of_all_runs_is_kept(scene: Scene) -> None:
    store = scene.store
    assert await store.peaks() == []
    await store.note_peaks([Peak("pack", 2, 100, 0.5), Peak("fetch", 1, 7, 0.0)])
    await store.note_peaks([Peak("pack", 1, 50, 2.5)])
    assert await store.peaks() == [Peak("fetch", 1, 7, 0.0), Peak("pack", 3, 100, 2.5)]


async def test_a_peak_fades_after_two_periods(scene: Scene, backend: Backend) -> None:
    store = scene.store
    await store.note_peaks([Peak("pack", 1, 1000, 9.0)])
    await passed(backend, PERIOD_S)
    await store.note_peaks([Peak("pack", 1, 10, 1.0)])
    await store.note_peaks([Peak("pack", 1, 20, 1.0)])
    assert await store.peaks() == [Peak("pack", 3, 1000, 9.0)]
    await passed(backend, PERIOD_S)
    await store.note_peaks([Peak("pack", 1, 5, 0.5)])
    assert await store.peaks() == [Peak("pack", 3, 20, 1.0)]


async def test_a_kind_that_is_not_measured_for_long_is_forgotten(
    scene: Scene, backend: Backend
) -> None:
    await scene.store.note_peaks([Peak("old", 1, 1, 1.0)])
    await passed(backend, KEPT_S + 60)
    await scene.store.note_peaks([Peak("new", 1, 1, 1.0)])
    assert await scene.store.peaks() == [Peak("new", 1, 1, 1.0)]
