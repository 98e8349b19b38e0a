"""A ticket opens the inputs of its attempt and what that pins, while it counts, up to a quota.

Each guard is taken away once, and the story that comes to it notices.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import pytest

from longshore.model.attempt import Attempt
from longshore.model.checkpoint import NewCheckpoint
from longshore.model.ends import Released
from longshore.model.fileset import BlobRef, Holder, PinVerdict
from longshore.store.postgres import files_sql
from longshore.store.postgres.states import OWNED
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot
from longshore.testing.backends import Backend, MemoryBackend, PostgresBackend, SqliteBackend
from longshore.testing.builders import Scene, a_job, done, lanes_of
from longshore.testing.file_builders import FileScene, Folder, a_folder, held_by
from longshore.testing.memory_files import MemoryFiles

Story = Callable[[Scene, FileScene], Awaitable[None]]

MINE, THEIRS = a_folder("mine", "more"), a_folder("theirs")


async def reads(files: FileScene, attempt: Attempt, folder: Folder) -> bool:
    """Whether the ticket of an attempt opens all of a folder; some of it would be a mistake."""
    blobs = [blob.sha256 for blob in (folder.manifest, *folder.blobs)]
    found = await files.store.blob_generations(blobs, held_by(attempt))
    assert len({one is None for one in found}) == 1, "it opens a part of it"
    return found[0] is not None


async def with_input(scene: Scene, files: FileScene, folder: Folder, name: str) -> Attempt:
    """An attempt that has a pushed folder as its input."""
    await files.pushed(folder, name)
    attempt = await scene.running(a_job(), await scene.attend())
    assert await files.store.input_version(held_by(attempt), name, None) is not None
    return attempt


async def next_attempt(scene: Scene, attempt: Attempt) -> Attempt:
    await scene.finish(done(attempt, Released))
    [found] = await scene.claim(await scene.attend(), *lanes_of([a_job()]))
    assert found.id == attempt.id
    return found


async def inputs_of_its_job(scene: Scene, files: FileScene) -> None:
    mine = await with_input(scene, files, MINE, "mine")
    theirs = await with_input(scene, files, THEIRS, "theirs")
    await files.pushed(a_folder("unread"), "unread")
    assert await reads(files, mine, MINE)
    assert await reads(files, theirs, THEIRS)
    assert not await reads(files, mine, THEIRS), "an input of another job"
    assert not await reads(files, mine, a_folder("unread")), "nobody's input"


async def newer_version_of_its_input(scene: Scene, files: FileScene) -> None:
    attempt = await with_input(scene, files, MINE, "mine")
    await files.pushed(THEIRS, "mine")
    assert not await reads(files, attempt, THEIRS)
    assert await reads(files, attempt, MINE)


async def pins_of_its_attempt(scene: Scene, files: FileScene) -> None:
    slot = await scene.attend()
    one, other = [await scene.running(a_job(), slot) for _ in range(2)]
    await files.sealed(held_by(one), MINE)
    await files.sealed(held_by(other), THEIRS)
    assert await reads(files, one, MINE)
    assert not await reads(files, one, THEIRS)


async def pins_of_the_attempt_before(scene: Scene, files: FileScene) -> None:
    first = await scene.running(a_job(), await scene.attend())
    await files.sealed(held_by(first), MINE)
    second = await next_attempt(scene, first)
    assert not await reads(files, second, MINE)


async def checkpoint_of_its_job(scene: Scene, files: FileScene) -> None:
    slot = await scene.attend()
    one, other = [await scene.running(a_job(), slot) for _ in range(2)]
    for attempt, folder in ((one, MINE), (other, THEIRS)):
        await files.sealed(held_by(attempt), folder)
        made = NewCheckpoint(folder.manifest.sha256, len(folder.blobs), 9, 1)
        assert await files.store.save_checkpoint(held_by(attempt), made) is not None
    again = await next_attempt(scene, one)
    assert await reads(files, again, MINE)
    assert not await reads(files, again, THEIRS)


async def attempt_that_is_over(scene: Scene, files: FileScene) -> None:
    first = await with_input(scene, files, MINE, "mine")
    second = await next_attempt(scene, first)
    assert await reads(files, second, MINE)
    assert not await reads(files, first, MINE)


async def more_than_its_quota(scene: Scene, files: FileScene) -> None:
    holder = held_by(await scene.running(a_job(), await scene.attend()))
    manifest, parts = BlobRef(bytes(32), 10), [BlobRef(bytes([n]) * 32, 40) for n in (1, 2, 3)]
    verdicts = []
    for part in parts:
        verdict, _ = await files.store.pin(holder, manifest, [part], 100)
        verdicts.append(verdict)
    assert verdicts == [PinVerdict.DONE, PinVerdict.DONE, PinVerdict.TOO_LARGE]


STORIES: Final[tuple[Story, ...]] = (
    inputs_of_its_job,
    newer_version_of_its_input,
    pins_of_its_attempt,
    pins_of_the_attempt_before,
    checkpoint_of_its_job,
    attempt_that_is_over,
    more_than_its_quota,
)


async def play(backend: Backend, story: Story) -> None:
    await backend.clear()
    async with backend.opened() as store:
        await story(Scene(store), FileScene(store))


@pytest.mark.parametrize("story", STORIES)
async def test_ticket_opens_what_its_attempt_may_have(backend: Backend, story: Story) -> None:
    await play(backend, story)


# the model in memory

_pin = MemoryFiles.pin


def any_token(self: MemoryFiles, holder: Holder) -> int:
    row = self._jobs.get(holder.id)
    return 0 if row is None else row.job.round


def manifests(self: MemoryFiles, found: Collection[bytes]) -> set[bytes]:
    return {blob for one in found for blob in self._files.manifests[one].blobs}


def all_inputs(self: MemoryFiles, _reader: Holder) -> set[bytes]:
    asked = {(name, version) for (_, _, name, _), version in self._files.inputs.items()}
    return manifests(self, [self._files.versions[key].manifest for key in asked])


def all_versions(self: MemoryFiles, reader: Holder) -> set[bytes]:
    names = {name for (job, _, name, _) in self._files.inputs if job == reader.id}
    found = [one.manifest for (name, _), one in self._files.versions.items() if name in names]
    return manifests(self, found)


def all_pins(self: MemoryFiles, _reader: Holder) -> set[bytes]:
    return manifests(self, [key for key, one in self._files.manifests.items() if one.pins])


def pins_of_the_job(self: MemoryFiles, reader: Holder) -> set[bytes]:
    found = self._files.manifests.items()
    return manifests(self, [key for key, one in found if any(p.id == reader.id for p in one.pins)])


def all_checkpoints(self: MemoryFiles, _reader: Holder) -> set[bytes]:
    return manifests(self, [one.kept.manifest for one in self._files.checkpoints.values()])


async def pins_any_size(
    self: MemoryFiles, holder: Holder, manifest: BlobRef, blobs: Sequence[BlobRef], _most: int
) -> object:
    return await _pin(self, holder, manifest, blobs)


IN_MEMORY: Final[dict[str, tuple[Story, str, object]]] = {
    "inputs of all jobs": (inputs_of_its_job, "_readable", all_inputs),
    "any version of an input": (newer_version_of_its_input, "_readable", all_versions),
    "pins of all": (pins_of_its_attempt, "_readable", all_pins),
    "pins of any attempt": (pins_of_the_attempt_before, "_readable", pins_of_the_job),
    "checkpoints of all jobs": (checkpoint_of_its_job, "_readable", all_checkpoints),
    "a stale token reads": (attempt_that_is_over, "_round", any_token),
    "no quota": (more_than_its_quota, "pin", pins_any_size),
}


@pytest.mark.parametrize("guard", IN_MEMORY)
async def test_model_without_a_guard_is_noticed(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, name, twin = IN_MEMORY[guard]
    monkeypatch.setattr(MemoryFiles, name, twin)
    with pytest.raises(AssertionError):
        await play(MemoryBackend(), story)


# SQLite and PostgreSQL: a part of a statement, and what stands there without the guard

IN_SQLITE: Final[dict[str, tuple[Story, str, str]]] = {
    "inputs of all jobs": (inputs_of_its_job, "WHERE i.job = ?2", "WHERE ?2 IS NOT NULL"),
    "any version of an input": (newer_version_of_its_input, "AND v.version = i.version", ""),
    "pins of all": (*(pins_of_its_attempt, "p.holder = ?2 AND p.token = ?3", "?3 IS NOT NULL"),),
    "pins of any attempt": (pins_of_the_attempt_before, "AND p.token = ?3", "AND ?3 IS NOT NULL"),
    "checkpoints of all jobs": (checkpoint_of_its_job, "WHERE c.job = ?2", ""),
    "a stale token reads": (
        attempt_that_is_over,
        f"SELECT round FROM job WHERE id = ? AND token = ? AND state IN {OWNED_LIST}",
        "SELECT round FROM job WHERE id = ? AND ? IS NOT NULL",
    ),
    "no quota": (more_than_its_quota, "total_bytes = total_bytes + ?", "total_bytes = 0 * ?"),
}


@pytest.mark.parametrize("guard", IN_SQLITE)
async def test_sqlite_without_a_guard_is_noticed(
    sqlite_backend: SqliteBackend, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, there, instead = IN_SQLITE[guard]
    opened, met = Snapshot.__init__, set()

    def rewriting(self: Snapshot, connection: Any, now: int) -> None:
        opened(self, connection, now)

        def execute(query: str, *values: Any) -> Any:
            met.add(there in query)
            return connection.execute(query.replace(there, instead), *values)

        self.execute = execute

    monkeypatch.setattr(Snapshot, "__init__", rewriting)
    with pytest.raises(AssertionError):
        await play(sqlite_backend, story)
    assert True in met, "there is no such statement any more"


IN_POSTGRES: Final[dict[str, tuple[Story, str, str, str]]] = {
    "inputs of all jobs": (inputs_of_its_job, "READABLE", "WHERE i.job = $2", ""),
    "any version of an input": (
        *(newer_version_of_its_input, "READABLE", "AND v.version = i.version", ""),
    ),
    "pins of all": (pins_of_its_attempt, "READABLE", "WHERE p.holder = $2 AND p.token = $3", ""),
    "pins of any attempt": (pins_of_the_attempt_before, "READABLE", "AND p.token = $3", ""),
    "checkpoints of all jobs": (checkpoint_of_its_job, "READABLE", "WHERE c.job = $2", ""),
    "a stale token reads": (
        *(attempt_that_is_over, "READABLE", f"AND token = $3 AND state IN ({OWNED})", ""),
    ),
    "no quota": (more_than_its_quota, "LIST_BLOBS", "total_bytes + (", "0 * ("),
}


@pytest.mark.parametrize("guard", IN_POSTGRES)
async def test_postgres_without_a_guard_is_noticed(
    postgres_backend: PostgresBackend, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, name, there, instead = IN_POSTGRES[guard]
    statement: str = getattr(files_sql, name)
    assert there in statement, "there is no such guard any more"
    monkeypatch.setattr(files_sql, name, statement.replace(there, instead))
    with pytest.raises(AssertionError):
        await play(postgres_backend, story)
