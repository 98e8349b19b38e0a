"""Filesets through a dispatcher: the ticket of a job opens its files, and its end publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from longshore.client.connection import Connection
from longshore.client.tokens import new_token
from longshore.core.access import hash_of
from longshore.errors import InvalidInput, NotAllowed, NotAuthenticated, NotFound, TooLarge
from longshore.model.access import Role, Scope
from longshore.model.checkpoint import NewCheckpoint
from longshore.model.fileset import BlobRef, Needed, NewVersion, PinVerdict, StoredBlob
from longshore.model.job import JobError, JobState, Options, Reason, RetryPolicy, Submission
from longshore.model.reports import FailureReport, SnoozeReport, SuccessReport
from longshore.model.worker import KindInfo, Pool
from longshore.testing.builders import a_group, a_job, new_id
from longshore.testing.file_builders import FILESET, Folder, a_blob, a_folder
from longshore.wire.file_messages import MAX_PINNED
from longshore.wire.messages import Assignment

from . import stage as staging
from .stage import Stage, StagedWorker
from .test_audit import a_token, connection
from .test_stories import tell

UNUSED_S = 60.0
DOOMED_S = 30.0
LOOK_S = 5.0


@pytest.fixture(autouse=True)
def jobs_with_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(staging.KINDS, "work", KindInfo(Pool.COROUTINE, None, files=True))


async def begun(stage: Stage, worker: StagedWorker, job: Submission) -> Assignment:
    """A job as its worker got it."""
    seen = len(worker.jobs.started)
    await stage.client().submit(job)
    await stage.until(lambda: len(worker.jobs.started) > seen)
    return worker.jobs.started[-1]


async def stored(client: Connection, folder: Folder, ticket: str) -> None:
    """Stores and seals a folder, as a gateway does for an attempt."""
    pinned = await client.files.pin(folder.manifest, folder.blobs, ticket=ticket)
    assert pinned.verdict is PinVerdict.DONE
    sizes = {one.sha256: one.size for one in (folder.manifest, *folder.blobs)}
    blobs = [StoredBlob(one.sha256, sizes[one.sha256], one.generation) for one in pinned.needed]
    assert await client.files.note_stored(blobs, ticket=ticket) is PinVerdict.DONE
    count = len(folder.blobs)
    assert await client.files.seal(folder.manifest.sha256, count, ticket=ticket) is PinVerdict.DONE


def test_ticket_opens_files_and_the_end_publishes_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        given = await begun(stage, worker, job := a_job())
        assert given.ticket
        async with connection(stage) as client:
            folder = a_folder("one", "two")
            await stored(client, folder, given.ticket)
            worker.jobs.end(SuccessReport(*given.key, versions=(folder.version(),)))
            await stage.client().wait(job)
            version = await client.files.version(FILESET)
            assert (version.job, version.files) == (job.id, 2)
            assert await client.files.version_of_job(job.id, FILESET) == version
            assert await client.files.versions(FILESET) == (version,)
            [view] = await client.files.filesets()
            assert (view.latest, view.versions) == (version, 1)
            # The attempt is over, and so is what its ticket is good for.
            pinned = await client.files.pin(folder.manifest, (), ticket=given.ticket)
            assert pinned.verdict is PinVerdict.STALE
            located = await client.files.locate([folder.manifest.sha256], ticket=given.ticket)
            assert located == (None,)

    tell(story)


def test_only_kinds_with_files_get_tickets() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        await stage.client().submit(a_job(kind="grind"))
        await stage.until(lambda: worker.processes.started)
        assert worker.processes.started[0].ticket == ""

    tell(story)


def test_ticket_of_one_dispatcher_counts_at_another() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d2")
        await stage.dispatcher("d1")
        worker = await stage.worker(to="d2")
        seen = await begun_at(stage, worker, "d2")
        async with connection(stage) as client:
            await stored(client, a_folder("one"), seen.ticket)

    tell(story)


async def begun_at(stage: Stage, worker: StagedWorker, to: str) -> Assignment:
    await stage.client(to).submit(a_job())
    await stage.until(lambda: worker.jobs.started)
    return worker.jobs.started[-1]


def test_success_that_has_not_sealed_its_files_fails() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        given = await begun(stage, worker, job := a_job())
        worker.jobs.end(SuccessReport(*given.key, versions=(a_folder("one").version(),)))
        [ended] = await stage.client().wait(job)
        assert ended.state is JobState.FAILED
        assert ended.error is not None
        assert ended.error.reason is Reason.OUTPUT_MISSING

    tell(story)


@pytest.mark.parametrize("versions", [("../up",), ("a", "a")])
def test_versions_that_cannot_be_fail_the_job(versions: Sequence[str]) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        given = await begun(stage, worker, job := a_job())
        made = tuple(a_folder("one").version(name) for name in versions)
        worker.jobs.end(SuccessReport(*given.key, versions=made))
        [ended] = await stage.client().wait(job)
        assert ended.error is not None
        assert ended.error.reason is Reason.INVALID_RESULT

    tell(story)


def test_failure_publishes_partly_only_when_it_is_the_last() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        twice = structs.replace(a_job(), options=Options(retry=RetryPolicy(2, 1.0)))
        given = await begun(stage, worker, twice)
        error = JobError(Reason.EXITED, "exited with code 1")
        async with connection(stage) as client:
            folder = a_folder("half")
            await stored(client, folder, given.ticket)
            # A worker may say of its files what it likes: what a failure leaves is partial.
            made = (folder.version(partial=False),)
            worker.jobs.end(FailureReport(*given.key, error, versions=made))
            await stage.until(lambda: len(worker.jobs.started) == 2)
            assert await client.files.filesets() == ()
            again = worker.jobs.started[1]
            assert again.failures == 1
            await stored(client, folder, again.ticket)
            worker.jobs.end(FailureReport(*again.key, error, versions=made))
            await stage.client().wait(twice)
            [version] = await client.files.versions(FILESET)
            assert version.partial

    tell(story)


def test_inputs_are_those_of_the_first_attempt_and_of_a_maker() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        async with connection(stage) as client:
            maker = await begun(stage, worker, a_job())
            folder = a_folder("made")
            await stored(client, folder, maker.ticket)
            worker.jobs.end(SuccessReport(*maker.key, versions=(folder.version(),)))
            reader = await begun(stage, worker, a_job())
            await pushed(client, a_folder("pushed"))
            newest = await client.files.input_version(reader.ticket, FILESET)
            made = await client.files.input_version(reader.ticket, FILESET, maker=maker.job)
            assert newest is not None
            assert made is not None
            assert (newest.version, made.version) == (2, 1)
            assert await client.files.input_version(reader.ticket, "other") is None
            nobody = await client.files.input_version(reader.ticket, FILESET, maker=new_id())
            assert nobody is None
            blobs = [folder.blobs[0].sha256, a_blob("hidden").sha256]
            located = await client.files.locate(blobs, ticket=reader.ticket)
            assert [one is not None for one in located] == [True, False]
            assert await client.files.remove(FILESET, [1, 2]) == (), "a live job reads them"

    tell(story)


def test_checkpoint_of_an_attempt_is_what_the_next_begins_with() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        first = await begun(stage, worker, job := a_job())
        async with connection(stage) as client:
            folder = a_folder("state")
            made = NewCheckpoint(folder.manifest.sha256, 1, 5)
            assert await client.files.save_checkpoint(first.ticket, made) is None, "not sealed"
            await stored(client, folder, first.ticket)
            saved = await client.files.save_checkpoint(first.ticket, made)
            assert saved is not None
            assert await client.files.save_checkpoint(first.ticket, made) == saved
            worker.jobs.end(SnoozeReport(*first.key, 1.0))
            await stage.until(lambda: len(worker.jobs.started) == 2)
            second = worker.jobs.started[1]
            assert await client.files.find_checkpoint(second.ticket) == saved
            assert (await client.job(job.id)).checkpoint == saved.view
            assert await client.files.save_checkpoint(first.ticket, made) is None, "it is over"
            with pytest.raises(InvalidInput):
                await client.files.save_checkpoint(second.ticket, NewCheckpoint(b"x", 1, 5))
            with pytest.raises(NotAuthenticated):
                await client.files.find_checkpoint("forged")

    tell(story)


def test_input_from_a_job_of_the_group_is_what_that_one_made() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await stage.worker()
        part = a_group({"make": "", "use": "make"})
        async with connection(stage) as client:
            await client.submit_group(part, 1)
            await stage.until(lambda: len(worker.jobs.started) == 1)
            maker, folder = worker.jobs.started[0], a_folder("made")
            await stored(client, folder, maker.ticket)
            made = folder.version("a"), folder.version("b")
            worker.jobs.end(SuccessReport(*maker.key, versions=made))
            await stage.until(lambda: len(worker.jobs.started) == 2)
            ticket = worker.jobs.started[1].ticket
            await pushed(client, a_folder("newer"), "a")
            found = await client.files.input_version(ticket, "a", node="make")
            assert found is not None
            assert (found.version, found.job) == (1, maker.job)
            assert await client.files.input_version(ticket, "a", node="other") is None
            for fileset, words in (("", "say which"), ("c", "made no version of 'c'")):
                with pytest.raises(InvalidInput, match=words):
                    await client.files.input_version(ticket, fileset, node="make")

    tell(story)


async def pushed(client: Connection, folder: Folder, fileset: str = FILESET) -> int:
    """The version that an upload becomes."""
    upload = new_id()
    pinned = await client.files.pin(folder.manifest, folder.blobs, upload=upload)
    sizes = {one.sha256: one.size for one in (folder.manifest, *folder.blobs)}
    blobs = [StoredBlob(one.sha256, sizes[one.sha256], one.generation) for one in pinned.needed]
    await client.files.note_stored(blobs, upload=upload)
    await client.files.seal(folder.manifest.sha256, len(folder.blobs), upload=upload)
    version = await client.files.publish(upload, folder.version(fileset))
    assert version is not None
    return version.version


def test_bad_tickets_holders_and_sizes_are_refused() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_fileset_bytes=100)
        worker = await stage.worker()
        given = await begun(stage, worker, a_job())
        async with connection(stage) as client:
            blob = a_blob("one")
            forged = given.ticket[:-4] + "AAAA"
            for ticket in (forged, "x", "é" * 20):
                with pytest.raises(NotAuthenticated):
                    await client.files.pin(blob, (), ticket=ticket)
            with pytest.raises(InvalidInput, match="ticket"):
                await client.files.pin(blob, ())
            with pytest.raises(InvalidInput, match="SHA-256"):
                await client.files.pin(BlobRef(b"short", 1), (), upload=new_id())
            many = [BlobRef(n.to_bytes(32, "big"), 0) for n in range(MAX_PINNED + 1)]
            with pytest.raises(TooLarge):
                await client.files.pin(blob, many, upload=new_id())
            for size in (-1, 101, 2**62):
                large = BlobRef(blob.sha256, size)
                answer = await client.files.pin(large, (), upload=new_id())
                assert answer.verdict is PinVerdict.TOO_LARGE
            over = [BlobRef(n.to_bytes(32, "big"), 60) for n in range(2)]
            answer = await client.files.pin(blob, over, ticket=given.ticket)
            assert answer.verdict is PinVerdict.TOO_LARGE
            with pytest.raises(NotFound, match="filesets ls"):
                await client.files.version("nothing")
            with pytest.raises(InvalidInput):
                await client.files.publish(new_id(), NewVersion("../x", bytes(32), 0, 0))

    tell(story)


def test_what_nothing_needs_is_doomed_in_time_and_its_bytes_go_later() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(blob_unused_s=UNUSED_S, blob_doomed_s=DOOMED_S, filesets_gc_s=LOOK_S)
        async with connection(stage) as client:
            await pushed(client, folder := a_folder("one"))
            assert await client.files.remove(FILESET, [1]) == (1,)
            expected = folder.manifest.size + 3
            plan = await client.files.collect(dry_run=True)
            assert (plan.blobs, plan.total_bytes) == (0, 0), "its upload may still go on"
            await asyncio.sleep(UNUSED_S + 2 * LOOK_S)
            plan = await client.files.collect(dry_run=True)
            assert (plan.blobs, plan.total_bytes) == (2, expected)
            assert await client.files.doomed() == ()
            await asyncio.sleep(DOOMED_S)
            doomed = await client.files.doomed()
            assert {one.sha256 for one in doomed} == {folder.manifest.sha256, a_blob("one").sha256}
            gone = [Needed(one.sha256, one.generation) for one in doomed]
            assert await client.files.forget(gone) == 2
            assert await client.files.collect(dry_run=True) == type(plan)()

    tell(story)


def test_old_versions_go_in_time_if_that_is_set() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(versions_keep=1, versions_older_s=UNUSED_S, filesets_gc_s=LOOK_S)
        async with connection(stage) as client:
            for text in ("one", "two"):
                await pushed(client, a_folder(text))
            await asyncio.sleep(2 * LOOK_S)
            assert len(await client.files.versions(FILESET)) == 2, "they are not so old"
            await asyncio.sleep(UNUSED_S)
            [left] = await client.files.versions(FILESET)
            assert left.version == 2

    tell(story)


def test_versions_stay_unless_that_is_set() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(versions_older_s=0.0, filesets_gc_s=LOOK_S)
        async with connection(stage) as client:
            for text in ("one", "two"):
                await pushed(client, a_folder(text))
            await asyncio.sleep(UNUSED_S)
            assert len(await client.files.versions(FILESET)) == 2

    tell(story)


def test_rights_of_tokens() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        reader = await a_token(stage, "reader", Role.READ)
        async with connection(stage, reader) as client:
            assert await client.files.filesets() == ()
            with pytest.raises(NotAllowed):
                await pushed(client, a_folder("one"))
        pusher = await a_token(stage, "pusher", Role.SUBMIT)
        async with connection(stage, pusher) as client:
            assert await pushed(client, a_folder("one")) == 1
            assert (await client.files.version(FILESET)).by == "token:pusher"
            for refused in (client.files.remove(FILESET, [1]), client.files.doomed()):
                with pytest.raises(NotAllowed):
                    await refused
        secret, new = new_token(new_id(), "narrow", Role.ADMIN, Scope(queues=("mail",)), None)
        await stage.model.create_token(new, "test", most=9)
        async with connection(stage, hash_of(secret)) as client:
            with pytest.raises(NotAllowed, match="concerns all"):
                await client.files.filesets()

    tell(story)


def test_who_sees_no_payloads_gets_neither_files_nor_their_hashes() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage) as client:
            await pushed(client, folder := a_folder("yes"))
        secret, new = new_token(new_id(), "blind", Role.ADMIN, Scope(payloads=False), None)
        await stage.model.create_token(new, "test", most=9)
        async with connection(stage, hash_of(secret)) as client:
            assert (await client.files.version(FILESET)).manifest == b""
            [view] = await client.files.filesets()
            assert view.latest.manifest == b""
            blob = folder.blobs[0]
            for refused in (
                client.files.locate([blob.sha256]),
                client.files.pin(folder.manifest, [blob], upload=new_id()),
                client.files.publish(new_id(), folder.version()),
                client.files.doomed(),
            ):
                with pytest.raises(NotAllowed, match="payloads"):
                    await refused

    tell(story)


def test_folder_is_bound_by_the_first_gateway() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage) as client:
            assert await client.files.bind_folder("one") == "one"
            assert await client.files.bind_folder("two") == "one"

    tell(story)
