"""Files on a store and on the plain model in memory: the same answers, whatever is asked.

After each step every published version is whole. In the end, when all is removed and all attempts
are over, nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from longshore.model.attempt import Attempt
from longshore.model.checkpoint import NewCheckpoint
from longshore.model.ends import Failed, Released, Succeeded
from longshore.model.fileset import (
    BlobRef,
    FilesetVersion,
    Holder,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.model.worker import Attended, SessionKey
from longshore.ports import Batch, Store
from longshore.testing.backends import Backend, MemoryBackend
from longshore.testing.builders import a_claim, a_job, a_worker, done, new_id
from longshore.testing.file_builders import Folder, a_folder, publishing

from .machines import play

T = TypeVar("T")

DISPATCHER = UUID(int=300)
EXAMPLES = {"memory": 20, "sqlite": 60, "postgres": 25, "pgbouncer": 5}
NAMES = ("a", "b")
FOLDERS = (a_folder(), a_folder("1"), a_folder("1", "2"), a_folder("2", "3", "1"), a_folder("4"))

folders = st.sampled_from(FOLDERS)
names = st.sampled_from(NAMES)
places = st.integers(0, 9)


class Generations:
    """The generations of one store, by their order: stores may leave out numbers."""

    def __init__(self) -> None:
        self.newest: dict[bytes, int] = {}

    def note(self, needed: list[Needed]) -> set[bytes]:
        for one in needed:
            assert one.generation >= self.newest.get(one.sha256, 0), "an old generation"
            self.newest[one.sha256] = one.generation
        return {one.sha256 for one in needed}


class FilesetMachine(RuleBasedStateMachine):
    """Two stores that hear the same."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self.runner = runner
        self.backends = (backend, MemoryBackend())
        self.stores: list[Store] = []
        self.generations = (Generations(), Generations())
        self.running: list[tuple[Attempt, Attempt]] = []
        self.over: list[tuple[Holder, Holder]] = []
        self.uploads: list[UUID] = []
        self.published: dict[tuple[str, int], Folder] = {}
        self.slots: list[SessionKey] = []

    def run(self, work: Awaitable[T]) -> T:
        async def doing() -> T:
            return await work

        return self.runner.run(doing())

    def both(self, ask: Callable[[Store, int], Awaitable[T]]) -> T:
        """What both answer, which is the same."""
        real, plain = (self.run(ask(store, at)) for at, store in enumerate(self.stores))
        assert real == plain
        return real

    @initialize()
    def begin(self) -> None:
        worker = a_worker()

        async def opened(backend: Backend) -> tuple[Store, SessionKey]:
            await backend.clear()
            store = backend.connect()
            await store.open()
            answer = await store.attend(DISPATCHER, worker)
            assert isinstance(answer, Attended)
            return store, SessionKey(worker.id, answer.session)

        for backend in self.backends:
            store, slot = self.run(opened(backend))
            self.stores.append(store)
            self.slots.append(slot)

    def teardown(self) -> None:
        if self.stores:
            self.empty()
        for store in self.stores:
            self.run(store.close())

    # attempts

    @precondition(lambda self: len(self.running) < 4)
    @rule()
    def start_a_job(self) -> None:
        job = a_job()

        def claimed(store: Store, at: int) -> Awaitable[object]:
            batch = Batch(submits=[job], claims=[a_claim([self.slots[at]])])
            return store.pump(DISPATCHER, batch)

        some = [self.run(claimed(store, at)).claimed for at, store in enumerate(self.stores)]  # type: ignore[attr-defined]
        ([real], [plain]) = some
        assert real.id == plain.id
        self.running.append((real, plain))

    @precondition(lambda self: self.running)
    @rule(place=places, fileset=names, folder=folders, how=st.sampled_from([Succeeded, Failed]))
    def end_with_a_version(
        self, place: int, fileset: str, folder: Folder, how: type[Succeeded | Failed]
    ) -> None:
        pair = self.running.pop(place % len(self.running))
        made = folder.version(fileset, partial=how is Failed)
        self.finish(pair, lambda attempt: publishing(attempt, made, how=how))
        new = self.look_for_new()
        assert {one.manifest for one in new} <= {folder.manifest.sha256}
        self.published |= {(one.fileset, one.version): folder for one in new}

    @precondition(lambda self: self.running)
    @rule(place=places, how=st.sampled_from([Succeeded, Failed]))
    def end_without_a_version(self, place: int, how: type[Succeeded | Failed]) -> None:
        pair = self.running.pop(place % len(self.running))
        self.finish(pair, lambda attempt: done(attempt, how))
        assert self.look_for_new() == []

    @precondition(lambda self: self.running)
    @rule(place=places)
    def begin_another_attempt(self, place: int) -> None:
        pair = self.running.pop(place % len(self.running))
        self.finish(pair, lambda attempt: done(attempt, Released))
        batches = [Batch(claims=[a_claim([slot])]) for slot in self.slots]
        real, plain = (
            self.run(store.pump(DISPATCHER, batch)).claimed
            for store, batch in zip(self.stores, batches, strict=True)
        )
        [(one, two)] = zip(real, plain, strict=True)
        assert one.id == two.id
        self.running.append((one, two))

    def finish(self, pair: tuple[Attempt, Attempt], end: Callable[[Attempt], object]) -> None:
        def finished(store: Store, at: int) -> Awaitable[object]:
            async def recorded() -> object:
                batch = Batch(finishes=[end(pair[at])])  # type: ignore[list-item]
                [answer] = (await store.pump(DISPATCHER, batch)).finished
                return answer.verdict, answer.state

            return recorded()

        self.both(finished)
        self.over.append(self.holders(pair))

    def holders(self, pair: tuple[Attempt, Attempt]) -> tuple[Holder, Holder]:
        one, two = (Holder(attempt.id, attempt.token) for attempt in pair)
        return one, two

    def look_for_new(self) -> list[FilesetVersion]:
        return [one for one in self.versions() if (one.fileset, one.version) not in self.published]

    # holders

    def holder(self, place: int) -> tuple[Holder, Holder]:
        """An attempt that runs, one that is over, or an upload."""
        known = [self.holders(pair) for pair in self.running] + self.over[-2:]
        known += [(Holder(id), Holder(id)) for id in self.uploads[-3:]]
        if not known or place % 10 == 9:
            self.uploads.append(new_id())
            return Holder(self.uploads[-1]), Holder(self.uploads[-1])
        return known[place % len(known)]

    @rule(place=places, folder=folders, most=st.sampled_from([None, 20]))
    def pin(self, place: int, folder: Folder, most: int | None) -> None:
        self.pinned(self.holder(place), folder, most)

    def pinned(
        self, holder: tuple[Holder, Holder], folder: Folder, most: int | None = None
    ) -> PinVerdict:
        def answered(store: Store, at: int) -> Awaitable[tuple[PinVerdict, set[bytes]]]:
            async def pinned() -> tuple[PinVerdict, set[bytes]]:
                found = await store.pin(holder[at], folder.manifest, folder.blobs, most)
                return found[0], self.generations[at].note(list(found[1]))

            return pinned()

        return self.both(answered)[0]

    @rule(place=places, folder=folders)
    def store_it(self, place: int, folder: Folder) -> None:
        self.stored(self.holder(place), folder)

    def stored(self, holder: tuple[Holder, Holder], folder: Folder) -> PinVerdict:
        """Says that a folder is stored, under the newest generations that were heard of."""

        def noted(store: Store, at: int) -> Awaitable[PinVerdict]:
            newest = self.generations[at].newest
            blobs: list[BlobRef] = [folder.manifest, *folder.blobs]
            said = [StoredBlob(b.sha256, b.size, newest.get(b.sha256, 0)) for b in blobs]
            return store.note_stored(holder[at], said)

        return self.both(noted)

    @rule(place=places, folder=folders)
    def seal(self, place: int, folder: Folder) -> None:
        self.sealed(self.holder(place), folder)

    def sealed(self, holder: tuple[Holder, Holder], folder: Folder) -> PinVerdict:
        manifest, blobs = folder.manifest.sha256, len(folder.blobs)
        return self.both(lambda store, at: store.seal(holder[at], manifest, blobs))

    @rule(place=places, folder=folders)
    def store_and_seal(self, place: int, folder: Folder) -> None:
        holder = self.holder(place)
        if self.pinned(holder, folder) is PinVerdict.DONE:
            assert self.stored(holder, folder) is PinVerdict.DONE
            assert self.sealed(holder, folder) is PinVerdict.DONE

    @precondition(lambda self: self.uploads)
    @rule(place=places, fileset=names, folder=folders)
    def publish(self, place: int, fileset: str, folder: Folder) -> None:
        upload = self.uploads[place % len(self.uploads)]
        made: NewVersion = folder.version(fileset)

        def asked(store: Store, at: int) -> Awaitable[int | None]:
            async def version() -> int | None:
                found = await store.publish(upload, made, "")
                return None if found is None else found.version

            return version()

        version = self.both(asked)
        if version is not None and (fileset, version) not in self.published:
            self.published[fileset, version] = folder

    @precondition(lambda self: self.running)
    @rule(place=places, fileset=names, version=st.sampled_from([None, 1, 2]))
    def read(self, place: int, fileset: str, version: int | None) -> None:
        holder = self.holders(self.running[place % len(self.running)])

        def asked(store: Store, at: int) -> Awaitable[int | None]:
            async def fixed() -> int | None:
                found = await store.input_version(holder[at], fileset, version)
                return None if found is None else found.version

            return fixed()

        self.both(asked)

    @rule(place=places, folder=folders, sequence=st.integers(1, 3))
    def save_a_checkpoint(self, place: int, folder: Folder, sequence: int) -> None:
        holder = self.holder(place)
        if place % 2 and self.pinned(holder, folder) is PinVerdict.DONE:
            assert self.stored(holder, folder) is PinVerdict.DONE
            assert self.sealed(holder, folder) is PinVerdict.DONE
        made = NewCheckpoint(folder.manifest.sha256, len(folder.blobs), 0, sequence)

        def saved(store: Store, at: int) -> Awaitable[tuple[bytes, int, int] | None]:
            async def answered() -> tuple[bytes, int, int] | None:
                found = await store.save_checkpoint(holder[at], made)
                return None if found is None else (found.manifest, found.number, found.idle)

            return answered()

        self.both(saved)

    # what goes

    @rule(fileset=names, version=st.integers(1, 4))
    def remove(self, fileset: str, version: int) -> None:
        async def removed(store: Store) -> list[int]:
            return list(await store.remove_versions(fileset, [version]))

        for gone in self.both(lambda store, at: removed(store)):
            del self.published[fileset, gone]

    @rule()
    def forget_manifests(self) -> None:
        async def forgotten(store: Store) -> None:
            while await store.forget_manifests(0.0):
                pass

        self.both(lambda store, at: forgotten(store))

    @rule()
    def doom(self) -> None:
        async def doomed(store: Store) -> set[bytes]:
            found: set[bytes] = set()
            while some := await store.doom_blobs(0.0):
                found |= {blob.sha256 for blob in some}
            return found

        self.both(lambda store, at: doomed(store))

    @rule()
    def remove_bytes(self) -> None:
        async def removed(store: Store) -> int:
            doomed = await store.doomed_blobs(0.0)
            return await store.forget_blobs([Needed(b.sha256, b.generation) for b in doomed])

        self.both(lambda store, at: removed(store))

    # what always holds

    def versions(self) -> list[FilesetVersion]:
        """All versions, by the first store."""

        async def listed() -> list[FilesetVersion]:
            store = self.stores[0]
            return [one for name in NAMES for one in await store.fileset_versions(name, None, 100)]

        return self.run(listed())

    @invariant()
    def no_version_lacks_a_blob(self) -> None:
        if not self.stores:
            return
        assert {(one.fileset, one.version) for one in self.versions()} == set(self.published)
        for folder in set(self.published.values()):
            blobs = [folder.manifest.sha256, *(blob.sha256 for blob in folder.blobs)]
            for store in self.stores:
                assert None not in self.run(store.blob_generations(blobs))

    @invariant()
    def no_checkpoint_of_a_live_job_lacks_a_blob(self) -> None:
        folders = {folder.manifest.sha256: folder for folder in FOLDERS}
        for pair in self.running:

            def read(store: Store, at: int, job: UUID = pair[0].id) -> Awaitable[bytes | None]:
                async def manifest() -> bytes | None:
                    found = await store.checkpoint(job)
                    return None if found is None else found.manifest

                return manifest()

            if (kept := self.both(read)) is not None:
                blobs = [kept, *(blob.sha256 for blob in folders[kept].blobs)]
                for store, attempt in zip(self.stores, pair, strict=True):
                    reader = Holder(attempt.id, attempt.token)
                    assert None not in self.run(store.blob_generations(blobs, reader))

    def empty(self) -> None:
        """What nothing needs goes in the end: when nothing is needed, that is all."""
        while self.running:
            self.end_without_a_version(0, Succeeded)
        for fileset, version in list(self.published):
            self.remove(fileset, version)
        assert self.published == {}
        self.forget_manifests()
        self.doom()
        self.remove_bytes()
        for store in self.stores:
            every = [one for folder in FOLDERS for one in (folder.manifest, *folder.blobs)]
            found = self.run(store.blob_generations([blob.sha256 for blob in every]))
            assert set(found) == {None}
            assert self.run(store.unused_bytes()) == (0, 0)
            assert list(self.run(store.doomed_blobs(0.0))) == []


def test_files_are_as_the_model_says(backend: Backend, request: pytest.FixtureRequest) -> None:
    play(FilesetMachine, backend, request, EXAMPLES, steps=30)
