"""Files at the same moment as something else: no version ever lacks a blob, and none is twice.

Two connections to one store, again and again. Which of them wins is left to chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from longshore.model.fileset import FilesetVersion, Holder, Needed, PinVerdict
from longshore.model.job import JobState, Verdict
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, done, new_id
from longshore.testing.file_builders import (
    FILESET,
    FileScene,
    Folder,
    a_blob,
    a_folder,
    held_by,
    publishing,
)

ROUNDS = 10
NAMES = ("a", "b", "c")


@pytest.fixture
def files(scene: Scene) -> FileScene:
    return FileScene(scene.store)


@pytest.fixture
async def rival(backend: Backend, files: FileScene) -> AsyncIterator[FileScene]:
    """Another process, on connections of its own."""
    async with backend.opened() as store:
        yield FileScene(store)


async def pushed_at_last(files: FileScene, folder: Folder, name: str) -> FilesetVersion:
    """Pushes as a gateway does: what turns out to be doomed or forgotten, it pins again."""
    holder = Holder(new_id())
    while True:
        await asyncio.sleep(0)  # a store in memory lets nobody else go on
        needed = await files.pin(holder, folder)
        if await files.upload(holder, folder, needed) is not PinVerdict.DONE:
            continue
        if await files.seal(holder, folder) is not PinVerdict.DONE:
            continue
        version = await files.store.publish(holder.id, folder.version(name), "")
        if version is not None:
            return version


async def test_pin_of_what_is_being_doomed_never_publishes_what_goes(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        folder = a_folder(f"{n} one", f"{n} two")
        old = await files.pushed(folder)
        await files.collect()
        await scene.store.remove_versions(FILESET, [old.version])
        name = f"new {n}"
        await asyncio.gather(
            pushed_at_last(rival, folder, name),
            scene.store.forget_manifests(0.0),
            scene.store.doom_blobs(0.0),
            rival.store.doom_blobs(0.0),
        )
        await files.collect()
        assert await files.is_whole(folder), "a version lacks a blob"


async def test_collection_beside_pushes_takes_nothing_from_them(
    files: FileScene, rival: FileScene
) -> None:
    """Even one that counts everything as old: then pins of uploads die at once."""
    is_over = False

    async def collect() -> None:
        while not is_over:
            await rival.store.forget_manifests(0.0)
            await rival.store.doom_blobs(0.0)
            found = await rival.store.doomed_blobs(0.0)
            gone = [Needed(one.sha256, one.generation) for one in found]
            await rival.store.forget_blobs(gone)
            await asyncio.sleep(0)

    folders = [a_folder("shared", f"own {n}", f"pair {n // 2}") for n in range(6)]
    collecting = asyncio.create_task(collect())
    try:
        some = [pushed_at_last(files, folder, f"f{n}") for n, folder in enumerate(folders)]
        await asyncio.gather(*some)
    finally:
        is_over = True
        await collecting
    for folder in folders:
        assert await files.is_whole(folder)


async def test_seal_beside_a_collection(scene: Scene, files: FileScene, rival: FileScene) -> None:
    """What an attempt seals is whole, whatever went on before."""
    for n in range(ROUNDS):
        folder = a_folder(f"{n}", "shared")
        attempt = await scene.running()
        holder = held_by(attempt)
        needed = await files.pin(holder, folder)
        await files.upload(holder, folder, needed)
        verdict, _, _ = await asyncio.gather(
            files.seal(holder, folder),
            rival.store.forget_manifests(0.0),
            rival.store.doom_blobs(0.0),
        )
        assert verdict is PinVerdict.DONE
        [answer] = await scene.finish(publishing(attempt, folder.version()))
        assert answer.state is JobState.SUCCEEDED
        await files.collect()
        assert await files.is_whole(folder)


async def test_end_that_publishes_beside_a_collection(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    """Either the pin or the version is seen, never neither."""
    for n in range(ROUNDS):
        attempt = await scene.running()
        folder = await files.sealed(held_by(attempt), a_folder(f"{n}"))
        await asyncio.gather(
            scene.finish(publishing(attempt, folder.version())),
            rival.collect(),
            files.collect(),
        )
        assert len(await files.numbers()) == n + 1
        assert await files.is_whole(folder)


async def test_two_attempts_pin_the_same_missing_blobs(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        one, two = await scene.running(), await scene.running()
        first = a_folder(*(f"{n} {m}" for m in range(8)))
        second = a_folder(*(f"{n} {m}" for m in reversed(range(8))))
        mine, theirs = await asyncio.gather(
            files.pin(held_by(one), first), rival.pin(held_by(two), second)
        )
        shared = {blob.sha256 for blob in first.blobs}
        assert {need for need in mine if need.sha256 in shared} == {
            need for need in theirs if need.sha256 in shared
        }
        await asyncio.gather(
            files.upload(held_by(one), first, mine), rival.upload(held_by(two), second, theirs)
        )
        done_both = await asyncio.gather(
            files.seal(held_by(one), first), rival.seal(held_by(two), second)
        )
        assert set(done_both) == {PinVerdict.DONE}
        await scene.finish(
            publishing(one, first.version("a")), publishing(two, second.version("b"))
        )
    assert await files.numbers("a") == await files.numbers("b") == [*range(1, ROUNDS + 1)]


async def test_ends_of_two_dispatchers_publish_to_the_same_filesets(
    backend: Backend, scene: Scene, files: FileScene
) -> None:
    async with backend.opened() as store:
        other = Scene(store)
        for n in range(ROUNDS):
            ours = [await scene.running() for _ in range(4)]
            theirs = [await other.running() for _ in range(4)]
            folder = a_folder(f"{n}")
            for attempt in (*ours, *theirs):
                await files.sealed(held_by(attempt), folder)
            mine = [publishing(one, *(folder.version(name) for name in NAMES)) for one in ours]
            rest = [
                publishing(one, *(folder.version(name) for name in reversed(NAMES)))
                for one in theirs
            ]
            await asyncio.gather(scene.finish(*mine), other.finish(*reversed(rest)))
        for name in NAMES:
            assert await files.numbers(name) == [*range(1, 8 * ROUNDS + 1)]


async def test_harvest_at_the_moment_of_a_finish(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    """The one version is of the attempt that was recorded, or there is none."""
    count = 0
    for n in range(ROUNDS):
        attempt = await scene.running()
        folder = await files.sealed(held_by(attempt), a_folder(f"{n}"))
        [finished], _ = await asyncio.gather(
            scene.finish(publishing(attempt, folder.version())),
            rival.store.harvest(attempt.worker, attempt.session, "gone", crash=True, crash_limit=9),
        )
        count += finished.verdict is Verdict.RECORDED
        assert len(await files.numbers()) == count
        await scene.store.cancel([attempt.id])


async def test_seal_at_the_moment_of_a_harvest(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        attempt = await scene.running()
        holder, folder = held_by(attempt), a_folder(f"{n}")
        await files.upload(holder, folder, await files.pin(holder, folder))
        verdict, _ = await asyncio.gather(
            files.seal(holder, folder),
            rival.store.harvest(attempt.worker, attempt.session, "gone", crash=True, crash_limit=9),
        )
        assert verdict in (PinVerdict.DONE, PinVerdict.STALE)
        [late] = await scene.finish(publishing(attempt, folder.version()))
        assert late.verdict is Verdict.STALE
        await scene.store.cancel([attempt.id])
    assert await files.numbers() == []


async def test_same_upload_published_twice_at_once_is_one_version(
    files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        upload = new_id()
        folder = await files.sealed(Holder(upload), a_folder(f"{n}"))
        answers = await asyncio.gather(
            *(one.store.publish(upload, folder.version(), "") for one in (files, rival) * 2)
        )
        assert len({one.version for one in answers if one is not None}) == 1
        assert None not in answers
    assert len(await files.numbers()) == ROUNDS


async def test_input_that_is_fixed_is_not_removed_and_one_that_is_removed_is_not_fixed(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        name = f"f{n}"
        await files.pushed(a_folder("old"), name)
        await files.pushed(a_folder("new"), name)
        attempt = await scene.running()
        fixed, removed = await asyncio.gather(
            scene.store.input_version(held_by(attempt), name, None),
            rival.store.remove_versions(name, [2]),
        )
        assert fixed is not None
        assert fixed.version == (1 if removed else 2)
        assert await scene.store.fileset_version(name, fixed.version) == fixed
        await scene.finish(done(attempt))


async def test_same_attempt_that_asks_twice_at_once_reads_one_version(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        name = f"f{n}"
        await files.pushed(a_folder("old"), name)
        attempt = await scene.running()
        holder = held_by(attempt)
        one, two, _ = await asyncio.gather(
            files.store.input_version(holder, name, None),
            rival.store.input_version(holder, name, None),
            rival.pushed(a_folder("new"), name),
        )
        assert one == two
        assert one is not None
        await scene.finish(done(attempt))


async def test_two_that_forget_a_blob_and_one_that_pins_it(
    scene: Scene, files: FileScene, rival: FileScene
) -> None:
    for n in range(ROUNDS):
        folder = a_folder(f"{n}")
        await files.pin(Holder(new_id()), folder)
        await files.collect()
        found = await scene.store.doomed_blobs(0.0)
        gone = [Needed(one.sha256, one.generation) for one in found]
        holder = Holder(new_id())
        needed, *_ = await asyncio.gather(
            files.pin(holder, folder),
            scene.store.forget_blobs(gone),
            rival.store.forget_blobs(gone),
        )
        assert {one.sha256 for one in needed} == {folder.manifest.sha256, a_blob(f"{n}").sha256}
        assert not {*gone} & {*needed}, "a generation was used twice"
        await files.upload(holder, folder, needed)
        assert await files.seal(holder, folder) is PinVerdict.DONE
