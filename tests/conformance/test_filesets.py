"""Filesets: what is pinned and stored, which ends publish, which versions are read and removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from longshore.errors import InvalidInput
from longshore.model.ends import Crashed, End, Failed, Retried, Skipped, Succeeded
from longshore.model.fileset import BlobRef, Holder, NewVersion, PinVerdict, StoredBlob
from longshore.model.job import JobState, Reason, RetryVerdict, Verdict
from longshore.model.retention import Retention
from longshore.testing.builders import Scene, a_group, a_job, done, lanes_of, new_id
from longshore.testing.file_builders import (
    BROKEN,
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


async def harvest(scene: Scene, worker: object, session: int) -> None:
    await scene.store.harvest(worker, session, "gone", crash=True, crash_limit=3)  # type: ignore[arg-type]


# ends that publish


async def test_success_publishes_what_the_attempt_has_sealed(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("one", "two"))
    [answer] = await scene.finish(publishing(attempt, folder.version()))
    assert (answer.verdict, answer.state) == (Verdict.RECORDED, JobState.SUCCEEDED)
    [version] = await scene.store.fileset_versions(FILESET, None, 10)
    assert (version.version, version.job, version.round) == (1, attempt.id, 1)
    assert (version.files, version.total_bytes, version.partial) == (2, 6, False)
    assert version.manifest == folder.manifest.sha256
    assert abs(version.created_at - datetime.now(UTC)) < timedelta(minutes=10)
    assert await scene.store.version_of_job(attempt.id, FILESET) == version


async def test_one_end_publishes_several_filesets(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    one = await files.sealed(held_by(attempt), a_folder("one"))
    two = await files.sealed(held_by(attempt), a_folder("two"))
    end = publishing(attempt, one.version("b"), two.version("a"), one.version("c"))
    await scene.finish(end)
    views = await scene.store.filesets("", 10)
    assert [(view.latest.fileset, view.versions) for view in views] == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
    ]


async def test_ends_of_one_batch_publish_one_after_the_other(
    scene: Scene, files: FileScene
) -> None:
    attempts = [await scene.running() for _ in range(4)]
    for attempt in attempts:
        await files.sealed(held_by(attempt), a_folder(str(attempt.id)))
    ends = [publishing(one, a_folder(str(one.id)).version()) for one in attempts]
    await scene.finish(*ends)
    made = {one.version: one.job for one in await scene.store.fileset_versions(FILESET, None, 10)}
    assert made == {n: attempt.id for n, attempt in enumerate(attempts, 1)}


async def test_end_without_a_seal_fails_as_output_missing_and_publishes_nothing(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    folder = a_folder("one")
    needed = await files.pin(held_by(attempt), folder)
    await files.upload(held_by(attempt), folder, needed)
    [answer] = await scene.finish(publishing(attempt, folder.version()))
    assert (answer.verdict, answer.state) == (Verdict.RECORDED, JobState.FAILED)
    job = await scene.job(attempt.id)
    assert job.error is not None
    assert job.error.reason is Reason.OUTPUT_MISSING
    assert FILESET in job.error.message
    assert await files.numbers() == []


async def test_one_missing_seal_among_several_publishes_none(
    scene: Scene, files: FileScene
) -> None:
    attempt, other = await scene.running(), await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("one"))
    foreign = await files.sealed(held_by(other), a_folder("two"))
    end = publishing(attempt, folder.version("mine"), foreign.version("foreign"))
    [answer] = await scene.finish(end)
    assert answer.state is JobState.FAILED
    error = (await scene.job(attempt.id)).error
    assert error is not None
    assert "publishes 'foreign', of which" in error.message, "it names the one that is missing"
    assert await scene.store.filesets("", 10) == []


async def test_failure_for_good_publishes_what_is_partial(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("half"))
    await scene.finish(publishing(attempt, folder.version(partial=True), how=Failed))
    job = await scene.job(attempt.id)
    assert (job.state, job.error) == (JobState.FAILED, BROKEN)
    [version] = await scene.store.fileset_versions(FILESET, None, 10)
    assert version.partial
    assert await scene.store.fileset_version(FILESET, None) is None, "the newest is a whole one"
    assert await scene.store.fileset_version(FILESET, 1) == version


@pytest.mark.parametrize(
    ("how", "state"), [(Crashed, JobState.FAILED), (Skipped, JobState.SKIPPED)]
)
async def test_crash_that_is_one_too_many_and_skip_publish_what_is_partial(
    scene: Scene, files: FileScene, how: type[End], state: JobState
) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("half"))
    end = publishing(attempt, folder.version(partial=True), how=how)
    [answer] = await scene.finish(end)
    assert answer.state is state
    [version] = await scene.store.fileset_versions(FILESET, None, 10)
    assert (version.partial, version.job) == (True, attempt.id)
    [again] = await scene.finish(end)
    assert again.verdict is not Verdict.RECORDED
    assert await files.numbers() == [1]


async def test_crash_that_is_tried_again_publishes_nothing(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("half"))
    version = folder.version(partial=True)
    [answer] = await scene.finish(publishing(attempt, version, how=Crashed, crash_limit=3))
    assert answer.state is JobState.READY
    assert await scene.store.filesets("", 10) == []


@pytest.mark.parametrize("how", [Crashed, Skipped])
async def test_crash_and_skip_that_have_not_sealed_end_as_they_are(
    scene: Scene, how: type[End]
) -> None:
    attempt = await scene.running()
    version = a_folder("half").version(partial=True)
    [answer] = await scene.finish(publishing(attempt, version, how=how))
    assert answer.state is (JobState.FAILED if how is Crashed else JobState.SKIPPED)
    job = await scene.job(attempt.id)
    assert job.error is None or job.error.reason is not Reason.OUTPUT_MISSING
    assert await scene.store.filesets("", 10) == []


async def test_failure_that_has_not_sealed_keeps_its_own_error(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.finish(publishing(attempt, a_folder("half").version(partial=True), how=Failed))
    job = await scene.job(attempt.id)
    assert (job.state, job.error) == (JobState.FAILED, BROKEN)
    assert await scene.store.filesets("", 10) == []


async def test_retried_attempt_publishes_nothing_and_the_next_one_publishes_once(
    scene: Scene, files: FileScene
) -> None:
    job = a_job()
    slot = await scene.attend()
    first = await scene.running(job, slot)
    await files.sealed(held_by(first), a_folder("one"))
    await scene.finish(done(first, Retried))
    await scene.store.promote()
    [second] = await scene.claim(slot, *lanes_of([job]))
    await files.sealed(held_by(second), a_folder("one"))
    await scene.finish(publishing(second, a_folder("one").version()))
    assert await files.numbers() == [1]


async def test_finish_repeated_after_a_lost_answer_publishes_once(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("one"))
    end = publishing(attempt, folder.version())
    await scene.finish(end)
    [again] = await scene.finish(end)
    assert again.verdict is Verdict.ALREADY_RECORDED
    assert await files.numbers() == [1]


async def test_new_round_makes_a_new_version(scene: Scene, files: FileScene) -> None:
    job = a_job()
    slot = await scene.attend()
    first = await scene.running(job, slot)
    half = await files.sealed(held_by(first), a_folder("half"))
    await scene.finish(publishing(first, half.version(partial=True), how=Failed))
    [(_, verdict)] = await scene.store.retry([job.id])
    assert verdict is RetryVerdict.RETRIED
    [second] = await scene.claim(slot, *lanes_of([job]))
    whole = await files.sealed(held_by(second), a_folder("whole"))
    await scene.finish(publishing(second, whole.version()))
    made = await scene.store.fileset_versions(FILESET, None, 10)
    assert [(one.version, one.round) for one in made] == [(2, 2), (1, 1)]
    assert await scene.store.version_of_job(job.id, FILESET) == made[0]


async def test_stale_attempt_neither_pins_nor_notes_nor_seals_nor_publishes(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    holder, folder = held_by(attempt), a_folder("one")
    needed = await files.pin(holder, folder)
    await harvest(scene, attempt.worker, attempt.session)
    stale = PinVerdict.STALE
    assert (await scene.store.pin(holder, folder.manifest, folder.blobs))[0] is stale
    assert await files.upload(holder, folder, needed) is stale
    assert await files.seal(holder, folder) is stale
    assert await scene.store.input_version(holder, FILESET, None) is None
    [answer] = await scene.finish(publishing(attempt, folder.version()))
    assert answer.verdict is Verdict.STALE
    assert await scene.store.filesets("", 10) == []


async def test_harvest_between_seal_and_finish_leaves_the_next_attempt_to_publish(
    scene: Scene, files: FileScene
) -> None:
    job, slot = a_job(), await scene.attend()
    first = await scene.running(job, slot)
    folder = await files.sealed(held_by(first), a_folder("one"))
    await harvest(scene, first.worker, first.session)
    [late] = await scene.finish(publishing(first, folder.version()))
    assert late.verdict is Verdict.STALE
    [second] = await scene.claim(await scene.attend(), *lanes_of([job]))
    # Its own seal counts, not that of the attempt before it.
    assert await files.seal(held_by(second), folder) is PinVerdict.STALE
    assert await files.pin(held_by(second), folder) == []
    assert await files.seal(held_by(second), folder) is PinVerdict.DONE
    await scene.finish(publishing(second, folder.version()))
    assert await files.numbers() == [1]


async def test_attempt_that_is_being_cancelled_may_still_store_its_outputs(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.being_cancelled()
    folder = await files.sealed(held_by(attempt), a_folder("one"))
    [answer] = await scene.finish(publishing(attempt, folder.version(partial=True), how=Failed))
    assert answer.state is JobState.CANCELLED
    assert await files.numbers() == [1]


async def test_ends_with_and_without_versions_share_a_batch(scene: Scene, files: FileScene) -> None:
    plain, making, failing = [await scene.running() for _ in range(3)]
    folder = await files.sealed(held_by(making), a_folder("one"))
    await scene.finish(
        done(plain, Succeeded, result=b"1"),
        publishing(making, folder.version()),
        done(failing, Failed),
    )
    states = await scene.states([plain.id, making.id, failing.id])
    assert states == [JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED]
    assert await files.numbers() == [1]


# pins


async def test_pin_names_what_is_to_be_uploaded_until_it_is_stored(
    scene: Scene, files: FileScene
) -> None:
    holder, folder = Holder(new_id()), a_folder("one", "two")
    needed = await files.pin(holder, folder)
    wanted = {folder.manifest.sha256, *(blob.sha256 for blob in folder.blobs)}
    assert {one.sha256 for one in needed} == wanted
    assert await files.pin(holder, folder) == needed, "a repeat answers the same"
    assert await files.seal(holder, folder) is PinVerdict.INCOMPLETE
    assert await files.upload(holder, folder, needed[:1]) is PinVerdict.DONE
    assert await files.pin(holder, folder) == needed[1:]
    assert await files.upload(holder, folder, needed) is PinVerdict.DONE
    assert await files.pin(holder, folder) == []
    assert await files.seal(holder, folder) is PinVerdict.DONE
    assert await files.seal(holder, folder) is PinVerdict.DONE


async def test_manifest_is_listed_by_several_pins(scene: Scene, files: FileScene) -> None:
    holder, folder = Holder(new_id()), a_folder("one", "two", "three")
    for blob in folder.blobs[:2]:
        await scene.store.pin(holder, folder.manifest, [blob])
    _, needed = await scene.store.pin(holder, folder.manifest, folder.blobs[:2])
    await files.upload(holder, folder, needed)
    assert await files.seal(holder, folder) is PinVerdict.INCOMPLETE, "one blob is not listed"
    await files.upload(holder, folder, await files.pin(holder, folder))
    assert await files.seal(holder, folder) is PinVerdict.DONE


async def test_two_holders_of_a_missing_blob_upload_the_same_generation(
    scene: Scene, files: FileScene
) -> None:
    one, two = held_by(await scene.running()), Holder(new_id())
    shared, more = a_folder("same"), a_folder("same", "other")
    first, second = await files.pin(one, shared), await files.pin(two, more)
    same = a_blob("same").sha256
    [mine] = [need for need in first if need.sha256 == same]
    [theirs] = [need for need in second if need.sha256 == same]
    assert mine == theirs
    await files.upload(one, shared, first)
    assert same not in {need.sha256 for need in await files.pin(two, more)}
    assert await files.upload(two, more, second) is PinVerdict.DONE
    assert await files.seal(two, more) is PinVerdict.DONE


async def test_blob_that_was_never_asked_for_is_not_taken(scene: Scene, files: FileScene) -> None:
    holder, folder = Holder(new_id()), a_folder("one")
    [first, *_] = await files.pin(holder, folder)
    later = StoredBlob(first.sha256, 3, first.generation + 100)
    unknown = StoredBlob(a_blob("unknown").sha256, 7, first.generation)
    for stored in (later, unknown):
        assert await scene.store.note_stored(holder, [stored]) is PinVerdict.INCOMPLETE


async def test_size_that_is_not_that_of_the_blob_is_refused(scene: Scene, files: FileScene) -> None:
    await files.sealed(Holder(new_id()), a_folder("one"))
    [blob] = a_folder("one").blobs
    wrong = BlobRef(blob.sha256, 1_000)
    with pytest.raises(InvalidInput, match="3 bytes"):
        await scene.store.pin(Holder(new_id()), a_blob("other manifest"), [wrong])


async def test_size_that_was_said_before_the_upload_must_be_right_to_seal(
    scene: Scene, files: FileScene
) -> None:
    holder, manifest, blob = Holder(new_id()), a_blob("manifest"), a_blob("one")
    _, needed = await scene.store.pin(holder, manifest, [BlobRef(blob.sha256, 1)])
    sizes = {manifest.sha256: manifest.size, blob.sha256: blob.size}
    stored = [StoredBlob(one.sha256, sizes[one.sha256], one.generation) for one in needed]
    assert await scene.store.note_stored(holder, stored) is PinVerdict.DONE
    assert await scene.store.seal(holder, manifest.sha256, 1) is PinVerdict.INCOMPLETE


async def test_wrong_size_that_another_said_keeps_nobody_from_sealing(
    scene: Scene, files: FileScene
) -> None:
    """The newest pin counts: who pins again can always go on."""
    folder = a_folder("one", "two")
    wrong = [BlobRef(one.sha256, one.size + 100) for one in (folder.manifest, *folder.blobs)]
    await scene.store.pin(Holder(new_id()), wrong[0], wrong[1:])
    holder = Holder(new_id())
    needed = await files.pin(holder, folder)
    await files.upload(holder, folder, needed)
    assert await files.seal(holder, folder) is PinVerdict.DONE
    total = folder.manifest.size + sum(blob.size for blob in folder.blobs)
    for most, verdict in ((total, PinVerdict.DONE), (total - 1, PinVerdict.TOO_LARGE)):
        found = await scene.store.pin(holder, folder.manifest, folder.blobs, most)
        assert found[0] is verdict


async def test_holder_may_not_list_more_bytes_than_it_has(scene: Scene) -> None:
    holder, folder = Holder(new_id()), a_folder("12345", "678")
    room = folder.manifest.size + 5
    one, two = folder.blobs
    verdict, _ = await scene.store.pin(holder, folder.manifest, [one], room)
    assert verdict is PinVerdict.DONE
    verdict, needed = await scene.store.pin(holder, folder.manifest, [two], room)
    assert (verdict, list(needed)) == (PinVerdict.TOO_LARGE, [])


async def test_empty_folder_can_be_published(scene: Scene, files: FileScene) -> None:
    version = await files.pushed(a_folder())
    assert (version.version, version.files, version.total_bytes) == (1, 0, 0)


# uploads


async def test_upload_is_published_once_however_often_it_is_asked(
    scene: Scene, files: FileScene
) -> None:
    upload = new_id()
    folder = await files.sealed(Holder(upload), a_folder("one"))
    first = await scene.store.publish(upload, folder.version(), "someone")
    again = await scene.store.publish(upload, folder.version(), "someone")
    assert first is not None
    assert first == again
    assert (first.version, first.job, first.round, first.by) == (1, None, 0, "someone")
    assert await files.numbers() == [1]
    assert (await files.pushed(a_folder("one"))).version == 2, "another upload is another version"


async def test_upload_that_is_not_sealed_is_not_published(scene: Scene, files: FileScene) -> None:
    upload, folder = new_id(), a_folder("one")
    assert await scene.store.publish(upload, folder.version(), "") is None
    needed = await files.pin(Holder(upload), folder)
    await files.upload(Holder(upload), folder, needed)
    assert await scene.store.publish(upload, folder.version(), "") is None
    await files.sealed(Holder(new_id()), folder)
    assert await scene.store.publish(upload, folder.version(), "") is None, "another's seal"


async def test_upload_under_the_id_of_a_job_takes_no_version_from_it(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    await files.pushed(a_folder("pushed"), upload=attempt.id)
    folder = await files.sealed(held_by(attempt), a_folder("made"))
    await scene.finish(publishing(attempt, folder.version()))
    made = await scene.store.version_of_job(attempt.id, FILESET)
    assert made is not None
    assert (made.version, made.manifest) == (2, folder.manifest.sha256)


async def test_upload_under_the_id_of_a_job_that_has_published_makes_a_version(
    scene: Scene, files: FileScene
) -> None:
    attempt = await scene.running()
    made = await files.sealed(held_by(attempt), a_folder("made"))
    await scene.finish(publishing(attempt, made.version()))
    pushed = await files.pushed(a_folder("pushed"), upload=attempt.id)
    assert (pushed.version, pushed.job) == (2, None)
    assert pushed.manifest == a_folder("pushed").manifest.sha256


async def test_upload_that_nobody_pinned_is_stale(scene: Scene, files: FileScene) -> None:
    holder, folder = Holder(new_id()), a_folder("one")
    assert await scene.store.note_stored(holder, []) is PinVerdict.STALE
    assert await files.seal(holder, folder) is PinVerdict.STALE


# inputs


async def test_all_attempts_of_a_round_read_the_same_version(
    scene: Scene, files: FileScene
) -> None:
    job, slot = a_job(), await scene.attend()
    await files.pushed(a_folder("old"))
    first = await scene.running(job, slot)
    fixed = await scene.store.input_version(held_by(first), FILESET, None)
    assert fixed is not None
    assert fixed.version == 1
    await files.pushed(a_folder("new"))
    assert await scene.store.input_version(held_by(first), FILESET, None) == fixed
    await scene.finish(done(first, Retried))
    await scene.store.promote()
    [second] = await scene.claim(slot, *lanes_of([job]))
    assert await scene.store.input_version(held_by(second), FILESET, None) == fixed
    newer = await scene.store.input_version(held_by(second), FILESET, 2)
    assert newer is not None, "one that asks for a version gets that one"
    assert newer.version == 2
    await scene.finish(done(second, Failed))
    await scene.store.retry([job.id])
    [third] = await scene.claim(slot, *lanes_of([job]))
    fresh = await scene.store.input_version(held_by(third), FILESET, None)
    assert fresh is not None, "a new round looks anew"
    assert fresh.version == 2


async def test_input_that_is_not_there_is_none(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    assert await scene.store.input_version(held_by(attempt), FILESET, None) is None
    await files.pushed(a_folder("one"))
    assert await scene.store.input_version(held_by(attempt), FILESET, 7) is None
    found = await scene.store.input_version(held_by(attempt), FILESET, None)
    assert found is not None, "a miss fixes nothing"


async def test_attempt_reads_only_blobs_of_its_inputs_and_of_what_it_pins(
    scene: Scene, files: FileScene
) -> None:
    given, hidden, own = a_folder("given"), a_folder("hidden"), a_folder("own")
    await files.pushed(given, "given")
    await files.pushed(hidden, "hidden")
    attempt = await scene.running()
    holder = held_by(attempt)
    await scene.store.input_version(holder, "given", None)
    await files.sealed(holder, own)
    blobs = [one.blobs[0].sha256 for one in (given, hidden, own)]
    found = await scene.store.blob_generations(blobs, holder)
    assert [one is not None for one in found] == [True, False, True]
    assert None not in await scene.store.blob_generations(blobs)
    await scene.finish(done(attempt))
    assert list(await scene.store.blob_generations(blobs, holder)) == [None, None, None]


# versions


async def test_filesets_and_versions_are_listed_in_pages(scene: Scene, files: FileScene) -> None:
    for name in ("b", "a", "c"):
        for n in range(3):
            await files.pushed(a_folder(f"{name}{n}"), name)
    views = await scene.store.filesets("a", 1)
    assert [(one.latest.fileset, one.latest.version, one.versions) for one in views] == [
        ("b", 3, 3)
    ]
    assert [one.version for one in await scene.store.fileset_versions("a", None, 2)] == [3, 2]
    assert [one.version for one in await scene.store.fileset_versions("a", 2, 5)] == [1]
    newest = await scene.store.fileset_version("c", None)
    assert newest is not None
    assert newest.version == 3
    assert await scene.store.fileset_version("c", 9) is None
    assert await scene.store.fileset_version("nothing", None) is None


async def test_removed_version_is_gone_and_its_number_is_not_used_again(
    scene: Scene, files: FileScene
) -> None:
    await files.pushed(a_folder("one"))
    await files.pushed(a_folder("two"))
    assert list(await scene.store.remove_versions(FILESET, [2, 7])) == [2]
    assert list(await scene.store.remove_versions(FILESET, [2])) == []
    assert (await files.pushed(a_folder("three"))).version == 3


async def test_input_of_a_live_job_is_not_removed(scene: Scene, files: FileScene) -> None:
    await files.pushed(a_folder("one"))
    job, slot = a_job(), await scene.attend()
    attempt = await scene.running(job, slot)
    await scene.store.input_version(held_by(attempt), FILESET, None)
    assert list(await scene.store.remove_versions(FILESET, [1])) == []
    await scene.finish(done(attempt, Retried))
    await scene.store.promote()
    assert list(await scene.store.remove_versions(FILESET, [1])) == [], "it runs again"
    [attempt] = await scene.claim(slot, *lanes_of([job]))
    await scene.finish(done(attempt))
    assert list(await scene.store.remove_versions(FILESET, [1])) == [1]


async def test_pruned_job_leaves_the_versions_that_it_made(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    folder = await files.sealed(held_by(attempt), a_folder("one"))
    await scene.store.input_version(held_by(attempt), FILESET, None)
    await scene.finish(publishing(attempt, folder.version()))
    everything = Retention({JobState.SUCCEEDED: 0.0})
    await scene.store.prune(everything)
    assert await scene.store.job(attempt.id) is None
    assert await files.collect() == set()
    [version] = await scene.store.fileset_versions(FILESET, None, 10)
    assert version.job == attempt.id
    assert await files.is_whole(folder)


async def test_folder_is_bound_once(scene: Scene) -> None:
    assert await scene.store.bind_folder("first") == "first"
    assert await scene.store.bind_folder("second") == "first"


async def test_odd_names_and_numbers_harm_nobody(scene: Scene, files: FileScene) -> None:
    attempt = await scene.running()
    holder = held_by(attempt)
    folder = await files.sealed(holder, a_folder("one"))
    assert await scene.store.fileset_version("a\0b", None) is None
    assert await scene.store.fileset_version("a", 2**70) is None
    assert await scene.store.fileset_versions("a", 2**70, 5) == []
    huge = NewVersion("a\0b", folder.manifest.sha256, 2**70, 2**70)
    [answer] = await scene.finish(publishing(attempt, huge, huge))
    assert answer.state is JobState.SUCCEEDED
    over = Holder(attempt.id, 2**70)
    assert (await scene.store.pin(over, folder.manifest, []))[0] is PinVerdict.STALE


# groups


async def test_jobs_of_groups_publish_and_start_what_depends_on_them(
    scene: Scene, files: FileScene
) -> None:
    """Also when the ends before were plain: PostgreSQL has another way for those."""
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "b", "d": "c"}))
    await group.claim()
    await group.end("a")
    for key, after in (("b", "c"), ("c", "d")):
        assert await group.claim() == {key}
        attempt = group.running[key]
        folder = await files.sealed(held_by(attempt), a_folder(key))
        [answer] = await scene.finish(publishing(attempt, folder.version(key)))
        assert answer.state is JobState.SUCCEEDED
        await group.settle()
        made = await scene.store.version_of_job(group.jobs[key], key)
        assert made is not None, f"what comes before {after}"
    assert await group.claim() == {"d"}
    attempt = group.running["d"]
    await scene.finish(publishing(attempt, a_folder("not stored").version("d")))
    assert await group.state("d") is JobState.FAILED
    assert await scene.store.version_of_job(group.jobs["d"], "d") is None
