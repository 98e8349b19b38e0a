"""Checkpoints: the last of a round counts, of an attempt that counts, until the job has ended."""

from __future__ import annotations

import asyncio

import pytest

from longshore.model.attempt import Attempt
from longshore.model.checkpoint import Checkpoint, NewCheckpoint
from longshore.model.ends import Failed, Released, Retried, Succeeded
from longshore.model.fileset import FilesetVersion
from longshore.model.worker import FreeWorker, OpenSlots, SessionKey
from longshore.ports import Batch, Store
from longshore.testing.builders import Scene, a_group, a_job, done, lane, lanes_of
from longshore.testing.file_builders import FileScene, Folder, a_folder, held_by, publishing

from .test_new_runs import rerun

OLD, NEW = a_folder("step 1"), a_folder("step 2")


@pytest.fixture
def files(scene: Scene) -> FileScene:
    return FileScene(scene.store)


def saving(folder: Folder, sequence: int = 1) -> NewCheckpoint:
    total = sum(blob.size for blob in folder.blobs)
    return NewCheckpoint(folder.manifest.sha256, len(folder.blobs), total, sequence)


async def save(
    files: FileScene, attempt: Attempt, folder: Folder, sequence: int = 1
) -> Checkpoint | None:
    await files.sealed(held_by(attempt), folder)
    return await files.store.save_checkpoint(held_by(attempt), saving(folder, sequence))


async def next_attempt(scene: Scene, attempt: Attempt, slot: SessionKey) -> Attempt:
    await scene.finish(done(attempt, Released))
    [found] = await scene.claim(slot, *lanes_of([a_job()]))
    assert found.id == attempt.id
    return found


async def counts(store: Store, attempt: Attempt) -> tuple[int, int]:
    found = await store.checkpoint(attempt.id)
    assert found is not None
    return found.number, found.idle


async def test_next_attempt_finds_and_may_read_what_the_last_one_saved(
    scene: Scene, files: FileScene
) -> None:
    slot = await scene.attend()
    first = await scene.running(a_job(), slot)
    assert await scene.store.checkpoint(first.id) is None
    saved = await save(files, first, OLD)
    assert saved is not None
    assert (saved.manifest, saved.files, saved.number) == (OLD.manifest.sha256, 1, 1)
    second = await next_attempt(scene, first, slot)
    assert await scene.store.checkpoint(second.id) == saved
    wanted = [OLD.manifest.sha256, OLD.blobs[0].sha256]
    assert None not in await scene.store.blob_generations(wanted, held_by(second))
    assert await scene.store.blob_generations(wanted, held_by(first)) == [None, None]


async def test_checkpoint_stays_while_its_job_lives_and_goes_with_its_end(
    scene: Scene, files: FileScene
) -> None:
    slot = await scene.attend()
    first = await scene.running(a_job(), slot)
    await save(files, first, OLD)
    second = await next_attempt(scene, first, slot)
    assert await files.collect() == set(), "nobody pins it any more"
    assert await files.is_whole(OLD)
    assert await scene.store.unused_bytes() == (0, 0)
    await scene.finish(done(second, Succeeded))
    assert await scene.store.checkpoint(first.id) is None
    assert await files.collect() == {OLD.manifest.sha256, OLD.blobs[0].sha256}


async def test_newer_checkpoint_takes_the_place_of_the_last(scene: Scene, files: FileScene) -> None:
    slot = await scene.attend()
    first = await scene.running(a_job(), slot)
    await save(files, first, OLD)
    second = await next_attempt(scene, first, slot)
    saved = await save(files, second, NEW)
    assert saved is not None
    assert (saved.manifest, saved.number) == (NEW.manifest.sha256, 2)
    third = await next_attempt(scene, second, slot)
    assert await scene.store.checkpoint(third.id) == saved
    assert await files.collect() == {OLD.manifest.sha256, OLD.blobs[0].sha256}
    assert await files.is_whole(NEW)


async def test_stale_attempt_saves_nothing(scene: Scene, files: FileScene) -> None:
    slot = await scene.attend()
    first = await scene.running(a_job(), slot)
    await files.sealed(held_by(first), OLD)
    second = await next_attempt(scene, first, slot)
    assert await scene.store.save_checkpoint(held_by(first), saving(OLD)) is None
    assert await scene.store.checkpoint(second.id) is None


async def test_what_is_not_sealed_is_no_checkpoint(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    holder = held_by(attempt)
    assert await scene.store.save_checkpoint(holder, saving(OLD)) is None
    await files.pin(holder, OLD)
    assert await scene.store.save_checkpoint(holder, saving(OLD)) is None
    assert await scene.store.checkpoint(attempt.id) is None


async def test_repeat_or_late_one_changes_nothing(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    await save(files, attempt, OLD, 1)
    newer = await save(files, attempt, NEW, 2)
    for late in (saving(OLD, 1), saving(NEW, 2)):
        assert await scene.store.save_checkpoint(held_by(attempt), late) == newer
    assert await scene.store.checkpoint(attempt.id) == newer


async def test_attempts_that_save_what_they_began_with_are_counted(
    scene: Scene, files: FileScene
) -> None:
    slot = await scene.attend()
    attempt = await scene.running(a_job(), slot)
    await save(files, attempt, OLD)
    for idle in (1, 2):
        attempt = await next_attempt(scene, attempt, slot)
        for sequence in (1, 2):
            await save(files, attempt, OLD, sequence)
            assert await counts(scene.store, attempt) == (1, idle), "once for an attempt"
    await save(files, attempt, NEW, 3)
    assert await counts(scene.store, attempt) == (2, 0)


async def test_failure_keeps_the_checkpoint_and_a_new_round_begins_anew(
    scene: Scene, files: FileScene
) -> None:
    slot, job = await scene.attend(), a_job()
    first = await scene.running(job, slot)
    await save(files, first, OLD)
    await scene.finish(done(first, Retried))
    assert await counts(scene.store, first) == (1, 0)
    await scene.store.promote()
    [second] = await scene.claim(slot, *lanes_of([job]))
    await scene.finish(done(second, Failed))
    await scene.store.retry([job.id])
    assert await scene.store.checkpoint(job.id) is None
    [third] = await scene.claim(slot, *lanes_of([job]))
    await save(files, third, NEW)
    assert await counts(scene.store, third) == (1, 0)
    assert await files.collect() == {OLD.manifest.sha256, OLD.blobs[0].sha256}


async def test_two_saves_of_one_attempt_at_once_leave_the_later(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    holder = held_by(attempt)
    for folder in (OLD, NEW):
        await files.sealed(holder, folder)
    saves = [(OLD, 1), (NEW, 2), (OLD, 1)]
    await asyncio.gather(
        *(scene.store.save_checkpoint(holder, saving(folder, n)) for folder, n in saves),
        files.collect(),
    )
    found = await scene.store.checkpoint(attempt.id)
    assert found is not None
    assert found.manifest == NEW.manifest.sha256
    assert await files.is_whole(NEW)


# what a job of the same group has made


async def test_job_of_a_group_finds_what_another_has_made_in_its_last_round(
    scene: Scene, files: FileScene
) -> None:
    group = await scene.submit_group(a_group({"make": "", "use": "make"}))
    await group.claim()
    assert await made(scene.store, group.jobs["use"], "make") == []
    await publish(scene, files, group.running.pop("make"), OLD, "b", "a")
    await files.pushed(NEW, "a")
    found = await scene.store.versions_of_node(group.jobs["use"], "make")
    assert [(one.fileset, one.version) for one in found] == [("a", 1), ("b", 1)]
    assert await made(scene.store, group.jobs["use"], "./make") == ["a", "b"]
    assert await made(scene.store, group.jobs["use"], "other") == []
    assert await made(scene.store, a_job().id, "make") == []


async def test_new_run_finds_what_the_earlier_run_has_made(scene: Scene, files: FileScene) -> None:
    group = await scene.submit_group(a_group({"make": "", "use": "make"}))
    await group.claim()
    await publish(scene, files, group.running.pop("make"), OLD, "a")
    await group.settle()
    await group.claim()
    await group.end("use", how=Failed)
    await group.settle()
    _, run = await rerun(scene, group)
    [found] = await scene.store.versions_of_node(run.jobs["use"], "make")
    assert (found.fileset, found.job) == ("a", group.jobs["make"])


@pytest.mark.parametrize("makes_files", [True, False])
async def test_job_starts_on_the_worker_that_made_its_files_if_that_has_a_slot(
    scene: Scene, files: FileScene, makes_files: bool
) -> None:
    group = await scene.submit_group(a_group({"make": "", "use": "make", "too": "make"}))
    await group.claim()
    made, larger = group.running.pop("make"), await scene.attend()
    smaller = SessionKey(made.worker, made.session)
    await files.sealed(held_by(made), OLD)
    end = publishing(made, *[OLD.version("a")] * makes_files)
    free = [FreeWorker(larger, 5, 0), FreeWorker(smaller, 1, 0)]
    batch = Batch([end], for_dependents=[OpenSlots({lane()}, free)])
    started = (await scene.store.pump(scene.dispatcher, batch)).dependents
    workers = sorted(one.worker == smaller.worker for one in started)
    assert workers == [False, makes_files], "there is room for one; the other does not wait"


async def publish(
    scene: Scene, files: FileScene, attempt: Attempt, folder: Folder, *filesets: str
) -> None:
    await files.sealed(held_by(attempt), folder)
    await scene.finish(publishing(attempt, *(folder.version(name) for name in filesets)))


async def made(store: Store, job: object, key: str) -> list[str]:
    found: list[FilesetVersion] = list(await store.versions_of_node(job, key))  # type: ignore[arg-type]
    return [one.fileset for one in found]
