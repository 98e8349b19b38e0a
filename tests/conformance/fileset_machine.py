"""Files on two stores that hear the same: they answer alike, and keep what was promised.

What was promised, the machine knows by itself: which attempts are over, what each has sealed, which
inputs are fixed, which bytes lie on a disk. So it also notices what both stores do wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from longshore.model.attempt import Attempt
from longshore.model.checkpoint import NewCheckpoint
from longshore.model.ends import Crashed, End, Failed, Released, Skipped, Succeeded
from longshore.model.fileset import (
    BlobRef,
    FilesetVersion,
    Holder,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.model.job import JobState, RetryVerdict, Verdict
from longshore.model.worker import Attended, SessionKey
from longshore.ports import Batch, Store
from longshore.testing.backends import Backend, MemoryBackend
from longshore.testing.builders import a_claim, a_job, a_worker, done, new_id
from longshore.testing.file_builders import Folder, a_folder, publishing

T = TypeVar("T")

DISPATCHER = UUID(int=300)
NAMES = ("a", "b")
FOLDERS = (a_folder("1"), a_folder("1", "2"), a_folder())

ENDED: dict[type[End], JobState] = {
    Succeeded: JobState.SUCCEEDED,
    Failed: JobState.FAILED,
    Crashed: JobState.FAILED,
    Skipped: JobState.SKIPPED,
}
"""The ends that publish, and what becomes of their jobs."""

folders = st.sampled_from(FOLDERS)
names = st.sampled_from([NAMES[0], *NAMES])
places = st.integers(0, 9)


class Disk:
    """The bytes that one store leads to: files are there under a generation, or are gone."""

    def __init__(self) -> None:
        self.files: set[tuple[bytes, int]] = set()
        self.newest: dict[bytes, int] = {}
        """Under which generation each blob was last asked for."""
        self.old: dict[bytes, int] = {}
        """The generation before that, if there was another."""
        self.doomed: dict[bytes, int] = {}
        """Blobs that were doomed and have not been asked for since."""
        self.going: list[Needed] = []
        """What somebody is about to remove, and may be slow about."""

    def ask(self, wanted: set[bytes], needed: Sequence[Needed]) -> set[bytes]:
        """Notes what is to be uploaded; answers which blobs. What was doomed is among them."""
        for one in needed:
            assert one.generation >= self.newest.get(one.sha256, 0), "an old generation"
            if one.sha256 in self.doomed:
                assert one.generation > self.doomed.pop(one.sha256), "a generation used twice"
            if one.generation > self.newest.get(one.sha256, one.generation):
                self.old[one.sha256] = self.newest[one.sha256]
            self.newest[one.sha256] = one.generation
        assert not wanted & self.doomed.keys(), "a doomed blob counts as stored"
        return {one.sha256 for one in needed}

    def write(self, blobs: Sequence[BlobRef], *, late: bool) -> list[StoredBlob]:
        """Writes blobs, each once it was asked for; `late` under the generation before."""
        known = {**self.newest, **self.old} if late else self.newest
        said = [StoredBlob(one.sha256, one.size, known.get(one.sha256, 0)) for one in blobs]
        self.files |= {(one.sha256, one.generation) for one in said}
        return said

    def doom(self, blobs: Sequence[BlobRef]) -> set[bytes]:
        """Notes which blobs are doomed."""
        self.doomed |= {one.sha256: self.newest.get(one.sha256, 0) for one in blobs}
        return {one.sha256 for one in blobs}

    def unlink(self) -> list[Needed]:
        """Removes the files that are about to go; answers them."""
        gone, self.going = self.going, []
        self.files -= {(one.sha256, one.generation) for one in gone}
        return gone

    def has(self, folder: Folder, generations: Sequence[int | None]) -> bool:
        """Whether all files of a folder lie where the store says."""
        return {
            (one.sha256, generation)
            for one, generation in zip(all_of(folder), generations, strict=True)
        } <= self.files


def all_of(folder: Folder) -> list[BlobRef]:
    """The blobs of a folder, its manifest first."""
    return [folder.manifest, *folder.blobs]


class FilesetMachine(RuleBasedStateMachine):
    """Two stores that hear the same."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self.runner = runner
        self.backends = (backend, MemoryBackend())
        self.stores: list[Store] = []
        self.disks = (Disk(), Disk())
        self.running: list[tuple[Attempt, Attempt]] = []
        self.over: list[tuple[Holder, Holder]] = []
        self.failed: list[UUID] = []
        self.ends: list[tuple[End, End]] = []
        self.pins: dict[Holder, list[Folder]] = {}
        self.seals: set[tuple[Holder, Folder]] = set()
        self.fixed: dict[tuple[UUID, str, int | None], int] = {}
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
        self.start_a_job()

    def teardown(self) -> None:
        try:
            if self.stores:
                self.empty()
        finally:
            self.close()

    def close(self) -> None:
        """Lets both stores go."""
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
    @rule(place=places, fileset=names, folder=folders, how=st.sampled_from([*ENDED]))
    def end_with_a_version(self, place: int, fileset: str, folder: Folder, how: type[End]) -> None:
        """It is published if the attempt has sealed it, and never otherwise."""
        pair = self.running.pop(place % len(self.running))
        holder = self.holders(pair)[0]
        made = folder.version(fileset, partial=how is not Succeeded)
        state = self.end(pair, lambda attempt: publishing(attempt, made, how=how))
        new = self.look_for_new()
        if (holder, folder) in self.seals:
            assert [one.manifest for one in new] == [folder.manifest.sha256]
            assert state is ENDED[how]
        else:
            unsealed = JobState.FAILED if how is Succeeded else ENDED[how]
            assert (new, state) == ([], unsealed)
        self.published |= {(one.fileset, one.version): folder for one in new}

    @precondition(lambda self: self.running)
    @rule(place=places, how=st.sampled_from([Succeeded, Failed]))
    def end_without_a_version(self, place: int, how: type[Succeeded | Failed]) -> None:
        pair = self.running.pop(place % len(self.running))
        self.end(pair, lambda attempt: done(attempt, how))
        assert self.look_for_new() == []

    @precondition(lambda self: self.running)
    @rule(place=places)
    def begin_another_attempt(self, place: int) -> None:
        """What the attempt before it has pinned counts no more; its inputs still do."""
        pair = self.running.pop(place % len(self.running))
        self.finish(pair, lambda attempt: done(attempt, Released))
        self.over.append(self.holders(pair))
        self.claim()

    @precondition(lambda self: self.ends)
    @rule(place=places)
    def repeat_an_end(self, place: int) -> None:
        """A repeat, or a round that is over: nothing is published."""
        pair = self.ends[place % len(self.ends)]
        assert self.both(lambda store, at: recorded(store, pair[at]))[0] is not Verdict.RECORDED
        assert self.look_for_new() == []

    @precondition(lambda self: self.over)
    @rule(place=places, fileset=names, folder=folders)
    def end_too_late(self, place: int, fileset: str, folder: Folder) -> None:
        """An attempt that is over publishes nothing, whatever it has sealed."""
        holders = self.over[place % len(self.over)]
        made = (folder.version(fileset),)
        ends = [Succeeded(one.id, one.token, versions=made) for one in holders]
        assert self.both(lambda store, at: recorded(store, ends[at]))[0] is not Verdict.RECORDED
        assert self.look_for_new() == []

    @precondition(lambda self: self.failed and len(self.running) < 4)
    @rule()
    def open_a_new_round(self) -> None:
        job = self.failed.pop()
        assert self.both(lambda store, at: store.retry([job])) == [(job, RetryVerdict.RETRIED)]
        self.claim()

    def claim(self) -> None:
        """Claims the one job that is ready."""
        batches = [Batch(claims=[a_claim([slot])]) for slot in self.slots]
        real, plain = (
            self.run(store.pump(DISPATCHER, batch)).claimed
            for store, batch in zip(self.stores, batches, strict=True)
        )
        [(one, two)] = zip(real, plain, strict=True)
        assert one.id == two.id
        self.running.append((one, two))

    def end(self, pair: tuple[Attempt, Attempt], end: Callable[[Attempt], End]) -> JobState | None:
        """Ends a job; answers its state."""
        state = self.finish(pair, end)
        self.over.append(self.holders(pair))
        job = pair[0].id
        self.fixed = {key: at for key, at in self.fixed.items() if key[0] != job}
        if state is JobState.FAILED:
            self.failed.append(job)
        return state

    def finish(
        self, pair: tuple[Attempt, Attempt], end: Callable[[Attempt], End]
    ) -> JobState | None:
        one, two = (end(attempt) for attempt in pair)
        self.ends.append((one, two))
        verdict, state = self.both(lambda store, at: recorded(store, (one, two)[at]))
        assert verdict is Verdict.RECORDED
        return state

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

    def judge(self, holder: tuple[Holder, Holder], verdict: PinVerdict) -> PinVerdict:
        """The verdict, which is that an attempt is stale if it is over."""
        if holder in self.over:
            assert verdict is PinVerdict.STALE
        return verdict

    @rule(place=places, folder=folders, most=st.sampled_from([None, 20]))
    def pin(self, place: int, folder: Folder, most: int | None) -> None:
        self.pinned(self.holder(place), folder, most)

    def pinned(
        self, holder: tuple[Holder, Holder], folder: Folder, most: int | None = None
    ) -> PinVerdict:
        def answered(store: Store, at: int) -> Awaitable[tuple[PinVerdict, set[bytes]]]:
            async def pinned() -> tuple[PinVerdict, set[bytes]]:
                verdict, needed = await store.pin(holder[at], folder.manifest, folder.blobs, most)
                is_done = verdict is PinVerdict.DONE
                wanted = {one.sha256 for one in all_of(folder)} if is_done else set()
                return verdict, self.disks[at].ask(wanted, needed)

            return pinned()

        verdict = self.judge(holder, self.both(answered)[0])
        if verdict is not PinVerdict.STALE:
            self.pins.setdefault(holder[0], []).append(folder)
        return verdict

    @rule(place=places, folder=folders)
    def store_it(self, place: int, folder: Folder) -> None:
        holder = self.holder(place)
        self.stored(holder, self.pinned_by(holder, folder))

    @precondition(lambda self: self.disks[0].doomed)
    @rule(place=places, folder=folders)
    def store_it_under_an_old_generation(self, place: int, folder: Folder) -> None:
        """Whatever was doomed meanwhile is missing still, so it cannot be sealed."""
        holder = self.holder(place)
        if self.pinned(holder, folder) is PinVerdict.DONE:
            self.stored(holder, folder, late=True)
            self.sealed(holder, folder)

    def stored(
        self, holder: tuple[Holder, Holder], folder: Folder, *, late: bool = False
    ) -> PinVerdict:
        """Writes a folder, and says so."""

        def noted(store: Store, at: int) -> Awaitable[PinVerdict]:
            return store.note_stored(holder[at], self.disks[at].write(all_of(folder), late=late))

        return self.judge(holder, self.both(noted))

    @rule(place=places, folder=folders)
    def seal(self, place: int, folder: Folder) -> None:
        holder = self.holder(place)
        self.sealed(holder, self.pinned_by(holder, folder))

    def pinned_by(self, holder: tuple[Holder, Holder], folder: Folder) -> Folder:
        """What a holder last pinned; the folder, if it has pinned nothing."""
        return self.pins.get(holder[0], [folder])[-1]

    def sealed(self, holder: tuple[Holder, Holder], folder: Folder) -> PinVerdict:
        """What is sealed is whole."""
        manifest, blobs = folder.manifest.sha256, len(folder.blobs)
        asked = self.both(lambda store, at: store.seal(holder[at], manifest, blobs))
        if self.judge(holder, asked) is PinVerdict.DONE:
            self.check_whole(folder)
            self.seals.add((holder[0], folder))
        return asked

    @rule(place=places, folder=folders)
    def store_and_seal(self, place: int, folder: Folder) -> None:
        self.store_all(self.holder(place), folder)

    def store_all(self, holder: tuple[Holder, Holder], folder: Folder) -> None:
        if self.pinned(holder, folder) is PinVerdict.DONE:
            assert self.stored(holder, folder) is PinVerdict.DONE
            assert self.sealed(holder, folder) is PinVerdict.DONE

    @rule(fileset=names, folder=folders)
    def push(self, fileset: str, folder: Folder) -> None:
        self.uploads.append(new_id())
        self.store_all((Holder(self.uploads[-1]), Holder(self.uploads[-1])), folder)
        self.published_by(self.uploads[-1], fileset, folder)

    @precondition(lambda self: self.uploads)
    @rule(place=places, fileset=names, folder=folders)
    def publish(self, place: int, fileset: str, folder: Folder) -> None:
        self.published_by(self.uploads[place % len(self.uploads)], fileset, folder)

    def published_by(self, upload: UUID, fileset: str, folder: Folder) -> None:
        made: NewVersion = folder.version(fileset)

        def asked(store: Store, at: int) -> Awaitable[int | None]:
            async def version() -> int | None:
                found = await store.publish(upload, made, "")
                return None if found is None else found.version

            return version()

        version = self.both(asked)
        if version is not None and (fileset, version) not in self.published:
            assert (Holder(upload), folder) in self.seals
            self.published[fileset, version] = folder

    @precondition(lambda self: self.running)
    @rule(place=places, fileset=names, version=st.sampled_from([None, None, 1, 2]))
    def read(self, place: int, fileset: str, version: int | None) -> None:
        """All attempts of a round read one version."""
        holder = self.holders(self.running[place % len(self.running)])
        again = [key[1:] for key in self.fixed if key[0] == holder[0].id]
        if again and place % 2:
            fileset, version = again[-1]

        def asked(store: Store, at: int) -> Awaitable[int | None]:
            async def fixed() -> int | None:
                found = await store.input_version(holder[at], fileset, version)
                return None if found is None else found.version

            return fixed()

        found = self.both(asked)
        if found is not None:
            assert self.fixed.setdefault((holder[0].id, fileset, version), found) == found

    @rule(place=places, folder=folders, sequence=st.integers(1, 3))
    def save_a_checkpoint(self, place: int, folder: Folder, sequence: int) -> None:
        """It is saved only by an attempt that counts, and only if the files are sealed."""
        holder = self.holder(place)
        if place % 2:
            self.store_all(holder, folder)
        made = NewCheckpoint(folder.manifest.sha256, len(folder.blobs), 0, sequence)

        def saved(store: Store, at: int) -> Awaitable[tuple[bytes, int, int] | None]:
            async def answered() -> tuple[bytes, int, int] | None:
                found = await store.save_checkpoint(holder[at], made)
                return None if found is None else (found.manifest, found.number, found.idle)

            return answered()

        if self.both(saved) is not None:
            assert holder not in self.over
            self.check_whole(folder)

    # what goes

    @rule(place=places)
    def remove(self, place: int) -> None:
        """A version that is there, or one that is not."""
        read = [(fileset, at) for (_, fileset, _), at in self.fixed.items()]
        known = [*self.published, *(one for one in read if one in self.published), (NAMES[0], 99)]
        self.remove_version(*known[place % len(known)])

    def remove_version(self, fileset: str, version: int) -> None:
        async def removed(store: Store) -> list[int]:
            return list(await store.remove_versions(fileset, [version]))

        is_read = (fileset, version) in {(name, at) for (_, name, _), at in self.fixed.items()}
        for gone in self.both(lambda store, at: removed(store)):
            assert not is_read, "a live job has it as its input"
            del self.published[fileset, gone]

    @rule()
    def forget_manifests(self) -> None:
        async def forgotten(store: Store) -> None:
            while await store.forget_manifests(0.0):
                pass

        self.both(lambda store, at: forgotten(store))

    @rule()
    def doom(self) -> None:
        """No blob is doomed that a version or an attempt needs."""

        async def doomed(store: Store, at: int) -> set[bytes]:
            found: set[bytes] = set()
            while some := await store.doom_blobs(0.0):
                found |= self.disks[at].doom(some)
            return found

        alive = {self.holders(pair)[0] for pair in self.running}
        needed = [folder for holder in alive for folder in self.pins.get(holder, ())]
        needed += self.published.values()
        gone = self.both(doomed)
        assert not gone & {one.sha256 for folder in needed for one in all_of(folder)}

    @rule()
    def collect(self) -> None:
        self.forget_manifests()
        self.doom()
        self.begin_to_remove_bytes()

    @rule()
    def begin_to_remove_bytes(self) -> None:
        async def looked(store: Store, at: int) -> set[bytes]:
            doomed = await store.doomed_blobs(0.0)
            self.disks[at].going = [Needed(one.sha256, one.generation) for one in doomed]
            return {one.sha256 for one in doomed}

        self.both(looked)

    @rule()
    def remove_bytes(self) -> None:
        """Of what was doomed a while ago. Some of it may be wanted again by now."""
        self.both(lambda store, at: store.forget_blobs(self.disks[at].unlink()))

    # what always holds

    def versions(self) -> list[FilesetVersion]:
        """All versions, by the first store."""
        if not self.stores:
            return []

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
            self.check_whole(folder)

    @invariant()
    def no_job_has_two_versions_of_a_fileset_in_a_round(self) -> None:
        made = [(one.job, one.round, one.fileset) for one in self.versions() if one.job is not None]
        assert len(made) == len(set(made))

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
                self.check_whole(folders[kept])

    def check_whole(self, folder: Folder) -> None:
        """All of a folder is stored, and lies on the disk."""
        blobs = [one.sha256 for one in all_of(folder)]
        for store, disk in zip(self.stores, self.disks, strict=True):
            found = self.run(store.blob_generations(blobs))
            assert None not in found
            assert disk.has(folder, found)

    def empty(self) -> None:
        """What nothing needs goes in the end: when nothing is needed, that is all."""
        while self.running:
            self.end_without_a_version(0, Succeeded)
        for fileset, version in list(self.published):
            self.remove_version(fileset, version)
        assert self.published == {}
        self.collect()
        self.remove_bytes()
        for store in self.stores:
            every = [one for folder in FOLDERS for one in (folder.manifest, *folder.blobs)]
            found = self.run(store.blob_generations([blob.sha256 for blob in every]))
            assert set(found) == {None}
            assert self.run(store.unused_bytes()) == (0, 0)
            assert list(self.run(store.doomed_blobs(0.0))) == []


async def recorded(store: Store, end: End) -> tuple[Verdict, JobState | None]:
    """What a store did with an end."""
    [answer] = (await store.pump(DISPATCHER, Batch(finishes=[end]))).finished
    return answer.verdict, answer.state
