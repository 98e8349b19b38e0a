"""Old versions go, except those that live jobs and groups may need, whoever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from longshore.dispatcher.duties import filesets
from longshore.dispatcher.duties.filesets import remove_old_versions
from longshore.model.ends import Failed
from longshore.model.fileset import Holder
from longshore.ports import Store
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_group, done, new_id
from longshore.testing.file_builders import FILESET, FileScene, a_folder, held_by, publishing

ROUNDS = 10


@pytest.fixture
def files(scene: Scene) -> FileScene:
    return FileScene(scene.store)


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Store]:
    """Another dispatcher, on connections of its own."""
    async with backend.opened() as store:
        yield store


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of two, and no pauses."""
    monkeypatch.setattr(filesets, "STEP", 2)
    monkeypatch.setattr(filesets, "PAUSE_S", 0.0)


async def expire(store: Store, keep: int, older_s: float = -3600.0) -> int:
    """A test's clock may be a little behind that of its store."""
    return await remove_old_versions(store, keep, older_s, lambda: datetime.now(UTC))


async def test_all_but_the_newest_versions_of_every_fileset_go(
    scene: Scene, files: FileScene
) -> None:
    for name, count in (("a", 5), ("b", 1), ("c", 3), ("d", 7)):
        for n in range(count):
            await files.pushed(a_folder(f"{name} {n}"), name)
    assert await expire(scene.store, 2, older_s=3600.0) == 0, "none is so old"
    assert await expire(scene.store, 2) == 3 + 0 + 1 + 5
    found = [await files.numbers(name) for name in "abcd"]
    assert found == [[4, 5], [1], [2, 3], [6, 7]]
    assert await expire(scene.store, 2) == 0


async def test_bytes_of_a_version_that_went_are_collected(files: FileScene) -> None:
    old, new = a_folder("old", "both"), a_folder("new", "both")
    await files.pushed(old)
    await files.pushed(new)
    assert await expire(files.store, 1) == 1
    assert await files.collect() == {old.manifest.sha256, old.blobs[0].sha256}
    assert await files.is_whole(new)


async def test_input_of_a_live_job_stays_until_it_has_ended(scene: Scene, files: FileScene) -> None:
    for n in range(3):
        await files.pushed(a_folder(f"{n}"))
    attempt = await scene.running()
    assert await files.store.input_version(held_by(attempt), FILESET, 1) is not None
    assert await expire(scene.store, 1) == 1
    assert await files.numbers() == [1, 3]
    await scene.finish(done(attempt))
    assert await expire(scene.store, 1) == 1
    assert await files.numbers() == [3]


async def test_what_a_job_of_a_live_group_made_stays_for_those_after_it(
    scene: Scene, files: FileScene
) -> None:
    group = await scene.submit_group(a_group({"make": "", "use": "make"}))
    await group.claim()
    make = group.running.pop("make")
    await files.sealed(held_by(make), a_folder("made"))
    await scene.finish(publishing(make, a_folder("made").version()))
    await group.settle()
    await files.pushed(a_folder("newer"))
    assert await expire(scene.store, 1) == 0
    await group.claim()
    reader = held_by(group.running["use"])
    [made] = await files.store.versions_of_node(reader.id, "make")
    assert await files.store.input_version(reader, FILESET, made.version) == made
    await group.end("use", how=Failed)
    await group.settle()
    assert await expire(scene.store, 1) == 1


async def test_version_that_becomes_an_input_meanwhile_stays_or_is_none(
    scene: Scene, files: FileScene, rival: Store
) -> None:
    for n in range(ROUNDS):
        name = f"f{n}"
        for text in ("old", "new"):
            await files.pushed(a_folder(text), name)
        attempt = await scene.running()
        fixed, removed = await asyncio.gather(
            scene.store.input_version(held_by(attempt), name, 1), expire(rival, 1)
        )
        assert (fixed is None) == bool(removed)
        assert await files.numbers(name) == ([2] if fixed is None else [1, 2])
        await scene.finish(done(attempt))
        await expire(scene.store, 1)


async def test_upload_under_the_id_of_a_job_is_no_version_of_its_group(
    scene: Scene, files: FileScene
) -> None:
    group = await scene.submit_group(a_group({"make": ""}))
    await files.sealed(Holder(group.jobs["make"]), a_folder("forged"))
    made = a_folder("forged").version()
    assert await files.store.publish(group.jobs["make"], made, "") is not None
    await files.pushed(a_folder("newer"), upload=new_id())
    assert await expire(scene.store, 1) == 1
