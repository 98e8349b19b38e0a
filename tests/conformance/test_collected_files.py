"""What nothing needs goes in the end, and what something needs never does."""

from __future__ import annotations

import pytest

from longshore.model.ends import Failed
from longshore.model.fileset import Holder, Needed, PinVerdict
from longshore.testing.builders import Scene, done, new_id
from longshore.testing.file_builders import (
    FILESET,
    FileScene,
    a_blob,
    a_folder,
    held_by,
    publishing,
)

LONG_S = 86_400.0


@pytest.fixture
def files(scene: Scene) -> FileScene:
    return FileScene(scene.store)


async def test_published_version_keeps_its_blobs(scene: Scene, files: FileScene) -> None:
    folder = a_folder("one", "two")
    await files.pushed(folder)
    assert await files.collect() == set()
    assert await files.is_whole(folder)
    assert await scene.store.unused_bytes() == (0, 0)


async def test_blobs_of_a_removed_version_go_unless_another_lists_them(
    scene: Scene, files: FileScene
) -> None:
    old, new = a_folder("shared", "old"), a_folder("shared", "new")
    await files.pushed(old)
    await files.pushed(new)
    await files.collect()
    await scene.store.remove_versions(FILESET, [1])
    gone = {old.manifest.sha256, a_blob("old").sha256}
    assert await scene.store.unused_bytes() == (2, old.manifest.size + 3)
    assert await files.collect() == gone
    assert await files.is_whole(new)
    await scene.store.remove_versions(FILESET, [2])
    assert a_blob("shared").sha256 in await files.collect()


async def test_nothing_is_collected_before_its_time(scene: Scene, files: FileScene) -> None:
    folder = a_folder("one")
    await files.pin(Holder(new_id()), folder)
    await files.sealed(Holder(new_id()), a_folder("two"))
    assert await scene.store.forget_manifests(LONG_S) == 0
    assert list(await scene.store.doom_blobs(LONG_S)) == []
    await files.collect()
    assert list(await scene.store.doomed_blobs(LONG_S)) == []
    assert len(await scene.store.doomed_blobs(0.0)) == 4


async def test_pin_of_a_live_attempt_holds_however_old_it_is(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("one"))
    assert await files.collect() == set()
    assert await files.collect() == set()
    await scene.finish(publishing(attempt, folder.version()))
    assert await files.collect() == set()
    assert await files.numbers() == [1]
    assert await files.is_whole(folder)


async def test_what_an_attempt_stored_and_did_not_publish_goes(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("one"))
    await scene.finish(done(attempt, Failed))
    assert await files.collect() == {folder.manifest.sha256, a_blob("one").sha256}
    assert not await files.is_whole(folder)


async def test_upload_that_was_given_up_goes(scene: Scene, files: FileScene) -> None:
    holder, folder = Holder(new_id()), a_folder("one")
    needed = await files.pin(holder, folder)
    await files.collect()
    assert await files.seal(holder, folder) is PinVerdict.STALE
    assert await files.upload(holder, folder, needed) is PinVerdict.STALE


async def test_pin_of_a_doomed_blob_means_upload_it_again_under_another_generation(
    scene: Scene, files: FileScene
) -> None:
    folder = a_folder("one")
    await files.pushed(folder)
    before = dict(
        zip(
            (folder.manifest.sha256, folder.blobs[0].sha256),
            await scene.store.blob_generations([folder.manifest.sha256, folder.blobs[0].sha256]),
            strict=True,
        )
    )
    await scene.store.remove_versions(FILESET, [1])
    doomed = await files.collect()
    assert doomed == set(before)
    found = await scene.store.doomed_blobs(0.0)
    assert {one.sha256: one.generation for one in found} == before
    holder = Holder(new_id())
    needed = await files.pin(holder, folder)
    assert {one.sha256 for one in needed} == doomed
    for one in needed:
        assert one.generation > (before[one.sha256] or 0)
    # Who removes the bytes of the old generation harms nobody.
    old = [Needed(one.sha256, one.generation) for one in found]
    assert await scene.store.forget_blobs(old) == 0
    # Nor does who stored the old generation too late.
    late = [Needed(one.sha256, before[one.sha256] or 0) for one in needed]
    assert await files.upload(holder, folder, late) is PinVerdict.INCOMPLETE
    assert await files.upload(holder, folder, needed) is PinVerdict.DONE
    assert await files.seal(holder, folder) is PinVerdict.DONE


async def test_generation_of_a_forgotten_blob_is_never_used_again(
    scene: Scene, files: FileScene
) -> None:
    folder = a_folder("one")
    used = set()
    for _ in range(3):
        holder = Holder(new_id())
        needed = await files.pin(holder, folder)
        used |= {one.generation for one in needed}
        await files.upload(holder, folder, needed)
        await files.collect()
        found = await scene.store.doomed_blobs(0.0)
        gone = [Needed(one.sha256, one.generation) for one in found]
        assert await scene.store.forget_blobs(gone) == 2
        assert await scene.store.forget_blobs(gone) == 0
    assert len(used) == 6


async def test_collection_goes_in_steps(scene: Scene, files: FileScene) -> None:
    for n in range(5):
        await files.pin(Holder(new_id()), a_folder(f"{n}"))
    assert 0 < await scene.store.forget_manifests(0.0, 2) <= 4
    while await scene.store.forget_manifests(0.0, 2):
        pass
    assert len(await scene.store.doom_blobs(0.0, 3)) == 3
    assert len(await scene.store.doom_blobs(0.0, 100)) == 7
    assert len(await scene.store.doomed_blobs(0.0, 4)) == 4
