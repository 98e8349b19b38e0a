"""Old logs go to the file store: archived, then noted, then removed, whoever dies in between."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from longshore.client.file_requests import FileRequests
from longshore.config import DispatcherSettings, FileSettings
from longshore.core.lifecycle import TERMINAL
from longshore.core.logs import page
from longshore.dispatcher.file_service import FileService, perform_for_files
from longshore.errors import NotFound, StoreUnavailable
from longshore.files.blobs import Blobs
from longshore.files.places import FolderPlace
from longshore.gateway.file_keeping import FileKeeping
from longshore.gateway.log_archiving import LogArchiver, read_log
from longshore.model.attempt import Attempt
from longshore.model.ends import Failed
from longshore.model.fileset import BlobRef
from longshore.model.job import LogEntry, LogKind
from longshore.model.log import Line, LogLine, LogPage, pack_line
from longshore.model.log_archive import NewLogPart
from longshore.model.retention import Retention
from longshore.ports import Store
from longshore.testing.builders import Scene, done, new_id
from longshore.testing.faults import Fault, FaultyStore, scripted
from longshore.testing.file_builders import BROKEN, FileScene

SETTINGS = DispatcherSettings(archive_logs_s=1e-6, blob_unused_s=0.0, blob_doomed_s=0.0)
NOW = Retention(seconds=dict.fromkeys(TERMINAL, 0.0))


class Asked:
    """As much of a connection as an archiver needs, straight to a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._service = FileService(store, SETTINGS, lambda: datetime.now(UTC))
        numbers = count(1)
        self.files = FileRequests(self._exchange, lambda: next(numbers), new_id)

    async def _exchange(self, request: Any, within_s: float = 0.0) -> Any:
        return await perform_for_files(self._service, request)

    async def logs(
        self, ref: UUID | int, *, attempt: int | None = None, after: tuple[int, int] = (0, 0)
    ) -> LogPage:
        job = await self._store.job(ref)
        if job is None:
            raise NotFound("it is gone")
        entries = await self._store.logs(job.id, after=after, most=3)
        parts = await self._store.log_parts(job.id)
        return page(entries, 3, job, after, attempt, parts)


class Archives:
    """A store, and a gateway that archives its logs."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.store = scene, scene.store
        self.folder = folder
        self.keeping = FileKeeping(Blobs(FolderPlace(folder)), FileSettings())

    async def archive(self, store: Store | None = None) -> None:
        """One look of a gateway."""
        connection: Any = Asked(store or self.store)
        await LogArchiver(self.keeping, connection, new_id).archive_all()

    async def read(self, job: UUID, keeping: FileKeeping | None = None) -> list[LogLine]:
        """The whole log, as a gateway shows it."""
        connection: Any = Asked(self.store)
        lines, after, more = list[LogLine](), (0, 0), True
        while more:
            shown = await read_log(connection, keeping or self.keeping, job, None, after)
            lines += shown.lines
            after, more = shown.after, shown.more
        return lines

    async def texts(self, job: UUID) -> list[str]:
        return [line.text for line in await self.read(job)]

    async def ended(self, *texts: str) -> Attempt:
        """A job that said this and succeeded."""
        attempt = await self.scene.running()
        await self.said(attempt, *texts)
        await self.scene.finish(done(attempt))
        return attempt

    async def said(self, attempt: Attempt, *texts: str, first: int = 1) -> None:
        entries = [said(attempt, first + n, text) for n, text in enumerate(texts)]
        await self.store.log(entries)


def said(attempt: Attempt, seq: int, text: str, kind: LogKind = LogKind.TEXT) -> LogEntry:
    line = Line(text, "stdout", said_at=1e9 + seq, attempt=attempt.attempt)
    return LogEntry(attempt.id, attempt.token, seq, kind, pack_line(line))


@pytest.fixture
async def archives(scene: Scene, tmp_path: Path) -> AsyncIterator[Archives]:
    made = Archives(scene, tmp_path / "files")
    yield made
    made.keeping.close()


def kept(folder: Path) -> list[str]:
    """What `zcat` shows of all archives."""
    blobs = [path for path in folder.rglob("*") if path.is_file() and len(path.name) > 64]
    return [line for path in blobs for line in gzip.decompress(path.read_bytes()).decode().split()]


async def test_archived_log_leaves_the_store_and_reads_the_same(archives: Archives) -> None:
    texts = [f"line{n}" for n in range(8)]
    one, two = await archives.ended(*texts), await archives.ended("other")
    silent = await archives.ended()
    before = await archives.read(one.id)
    await archives.archive()
    assert await archives.store.logs(one.id) == []
    assert await archives.read(one.id) == before
    assert [line.text for line in before] == texts
    assert await archives.texts(two.id) == ["other"]
    assert await archives.texts(silent.id) == []
    [part] = await archives.store.log_parts(one.id)
    [other] = await archives.store.log_parts(two.id)
    assert (part.lines, other.lines, part.archive) == (8, 1, other.archive)
    shown = "\n".join(kept(archives.folder))
    assert all(text in shown for text in (*texts, "other", str(one.id), str(two.id)))


STEPS = ("old_logs", "pin", "note_stored", "seal", "note_archived", "drop_archived")


async def test_crash_at_any_step_loses_and_doubles_nothing(archives: Archives) -> None:
    texts = ["a", "b", "c", "d"]
    for verb in STEPS:
        for fault in Fault:
            attempt = await archives.ended(*texts, verb, fault)
            with pytest.raises(StoreUnavailable):
                await archives.archive(FaultyStore(archives.store, scripted((verb, fault))))
            assert await archives.texts(attempt.id) == [*texts, verb, fault]
            await archives.archive()
            assert await archives.texts(attempt.id) == [*texts, verb, fault]
            assert await archives.store.logs(attempt.id) == []
            assert len(await archives.store.log_parts(attempt.id)) == 1


async def test_entries_go_only_once_they_are_noted(archives: Archives) -> None:
    """A gateway that dies before it notes leaves bytes that nothing needs, and nothing else."""
    attempt = await archives.ended("a")
    broken = scripted(("note_archived", Fault.BEFORE))
    with pytest.raises(StoreUnavailable):
        await archives.archive(FaultyStore(archives.store, broken))
    assert await archives.store.drop_archived([attempt.id]) == 0
    assert len(await archives.store.logs(attempt.id)) == 1
    assert len(await FileScene(archives.store).collect()) == 1
    await archives.archive()
    assert await archives.texts(attempt.id) == ["a"]


async def test_of_two_gateways_one_is_believed(archives: Archives) -> None:
    attempt = await archives.ended("a", "b")
    await archives.archive()
    [part] = await archives.store.log_parts(attempt.id)
    again = NewLogPart(
        job=attempt.id, after=(0, 0), up_to=(attempt.token, 1), lines=1, start=0, size=part.size
    )
    connection: Any = Asked(archives.store)
    upload = new_id()
    await LogArchiver(archives.keeping, connection)._store(
        upload, BlobRef(part.archive, part.size), b""
    )
    assert list(await archives.store.note_archived(upload, part.archive, [again])) == []
    assert list(await archives.store.note_archived(new_id(), part.archive, [again])) == []
    assert await archives.store.log_parts(attempt.id) == [part]


async def test_late_repeat_of_an_archived_entry_is_not_shown_twice(archives: Archives) -> None:
    attempt = await archives.ended("a", "b")
    await archives.archive()
    await archives.said(attempt, "a", "b")
    assert await archives.texts(attempt.id) == ["a", "b"]
    await archives.archive()
    assert await archives.store.logs(attempt.id) == []
    assert await archives.texts(attempt.id) == ["a", "b"]


async def test_new_round_is_archived_behind_the_old(archives: Archives) -> None:
    slot = await archives.scene.attend()
    old = await archives.scene.running(slot=slot)
    await archives.said(old, "old")
    await archives.scene.finish(Failed(old.id, old.token, BROKEN))
    await archives.archive()
    await archives.store.retry([old.id])
    [new] = await archives.scene.claim(slot)
    await archives.said(new, "new")
    await archives.archive()
    assert len(await archives.store.log_parts(old.id)) == 1, "it runs"
    assert await archives.texts(old.id) == ["old", "new"]
    await archives.scene.finish(done(new))
    await archives.archive()
    assert len(await archives.store.log_parts(old.id)) == 2
    assert await archives.texts(old.id) == ["old", "new"]
    assert await archives.store.logs(old.id) == []


async def test_last_step_and_progress_stay_with_the_job(archives: Archives) -> None:
    attempt = await archives.scene.running()
    kinds = [LogKind.STEP, LogKind.PROGRESS, LogKind.STEP, LogKind.TEXT]
    entries = [said(attempt, n, f"{n}", kind) for n, kind in enumerate(kinds, 1)]
    await archives.store.log(entries)
    await archives.scene.finish(done(attempt))
    before = await archives.read(attempt.id)
    await archives.archive()
    assert [one.seq for one in await archives.store.logs(attempt.id)] == [2, 3]
    assert await archives.read(attempt.id) == before
    assert [line.text for line in before] == ["1", "3", "4"]
    assert (await archives.store.old_logs(0.0, b"", 10)).logs == ()


async def test_removed_job_lets_its_archive_go(archives: Archives) -> None:
    files = FileScene(archives.store)
    attempt = await archives.ended("a")
    await archives.archive()
    [part] = await archives.store.log_parts(attempt.id)
    assert await files.collect() == set()
    assert await archives.store.unused_bytes() == (0, 0)
    await archives.store.prune(NOW)
    assert await archives.store.log_parts(attempt.id) == []
    assert await archives.store.unused_bytes() == (1, part.size)
    assert await files.collect() == {part.archive}


async def test_what_cannot_be_read_says_where_it_is(archives: Archives, tmp_path: Path) -> None:
    attempt = await archives.ended("a", "b")
    await archives.archive()
    [part] = await archives.store.log_parts(attempt.id)
    elsewhere = FileKeeping(Blobs(FolderPlace(tmp_path / "elsewhere")), FileSettings())
    try:
        [note] = await archives.read(attempt.id, elsewhere)
    finally:
        elsewhere.close()
    assert note.stream == "note"
    assert note.text.startswith(
        f"2 lines are archived in the file store (blob {part.archive.hex()}"
    )


async def test_looks_go_on_where_the_last_one_ended(archives: Archives) -> None:
    jobs = {(await archives.ended("a")).id for _ in range(5)}
    running = await archives.scene.running()
    await archives.said(running, "a")
    found, after = list[UUID](), b""
    while True:
        look = await archives.store.old_logs(0.0, after, 2)
        found += [one.job for one in look.logs]
        after = look.next
        if not after:
            break
    assert len(found) == 5
    assert set(found) == jobs
    assert (await archives.store.old_logs(3600.0, b"", 10)).logs == ()
