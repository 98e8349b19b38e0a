"""Filesets for tests of stores: what is to be stored, who holds it, and how it is published."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from longshore.model.attempt import Attempt
from longshore.model.ends import Crashed, End, Failed, Skipped, Succeeded
from longshore.model.fileset import (
    BlobRef,
    FileEntry,
    FilesetVersion,
    Holder,
    Manifest,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
    encode_manifest,
)
from longshore.model.job import JobError, Reason
from longshore.ports import Store
from longshore.testing.builders import new_id

FILESET = "results/model"
BROKEN = JobError(Reason.EXITED, "exited with code 1", exit_code=1)


def a_blob(text: str) -> BlobRef:
    """The blob of a file with this text."""
    return BlobRef(sha256(text.encode()).digest(), len(text))


class Folder(Struct, frozen=True):
    """Some files, as a manifest lists them."""

    manifest: BlobRef
    blobs: tuple[BlobRef, ...]

    def version(self, fileset: str = FILESET, *, partial: bool = False) -> NewVersion:
        """A version of it, to be published."""
        total = sum(blob.size for blob in self.blobs)
        return NewVersion(fileset, self.manifest.sha256, len(self.blobs), total, partial)


def a_folder(*texts: str) -> Folder:
    """A folder with a file for each text."""
    blobs = tuple(a_blob(text) for text in texts)
    files = [FileEntry(f"{n}", blob.size, blob.sha256) for n, blob in enumerate(blobs)]
    encoded = encode_manifest(Manifest(tuple(files)))
    return Folder(BlobRef(sha256(encoded).digest(), len(encoded)), blobs)


def held_by(attempt: Attempt) -> Holder:
    """An attempt as a holder."""
    return Holder(attempt.id, attempt.token)


def publishing(
    attempt: Attempt, *made: NewVersion, how: type[End] = Succeeded, crash_limit: int = 1
) -> End:
    """The end of an attempt that publishes these versions."""
    which = attempt.id, attempt.token
    if how is Crashed:
        return Crashed(*which, BROKEN, attempt.crashes, crash_limit, versions=made)
    if how is Skipped:
        return Skipped(*which, versions=made)
    if how is Failed:
        return Failed(*which, BROKEN, versions=made)
    return Succeeded(*which, versions=made)


class FileScene:
    """A store, as gateways use it for files."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def pin(self, holder: Holder, folder: Folder) -> Sequence[Needed]:
        """Pins a folder; answers what must be uploaded."""
        verdict, needed = await self.store.pin(holder, folder.manifest, folder.blobs)
        assert verdict is PinVerdict.DONE, verdict
        return needed

    async def upload(self, holder: Holder, folder: Folder, needed: Sequence[Needed]) -> PinVerdict:
        """Says that all of what is needed is stored."""
        sizes = {blob.sha256: blob.size for blob in (*folder.blobs, folder.manifest)}
        stored = [StoredBlob(one.sha256, sizes[one.sha256], one.generation) for one in needed]
        return await self.store.note_stored(holder, stored)

    async def seal(self, holder: Holder, folder: Folder) -> PinVerdict:
        """Seals a folder."""
        blobs = len({blob.sha256 for blob in folder.blobs})
        return await self.store.seal(holder, folder.manifest.sha256, blobs)

    async def sealed(self, holder: Holder, folder: Folder) -> Folder:
        """The folder, once it is stored whole and sealed by this holder."""
        needed = await self.pin(holder, folder)
        assert await self.upload(holder, folder, needed) is PinVerdict.DONE
        assert await self.seal(holder, folder) is PinVerdict.DONE
        return folder

    async def pushed(
        self, folder: Folder, fileset: str = FILESET, upload: UUID | None = None
    ) -> FilesetVersion:
        """The version that an upload of a folder became."""
        upload = upload or new_id()
        await self.sealed(Holder(upload), folder)
        version = await self.store.publish(upload, folder.version(fileset), "someone")
        assert version is not None
        return version

    async def collect(self, older_than_s: float = 0.0) -> set[bytes]:
        """Collects until nothing is left to do; answers the blobs that are doomed by then."""
        while await self.store.forget_manifests(older_than_s):
            pass
        while await self.store.doom_blobs(older_than_s):
            pass
        return {one.sha256 for one in await self.store.doomed_blobs(0.0)}

    async def is_whole(self, folder: Folder) -> bool:
        """Whether all blobs of a folder are stored."""
        blobs = [folder.manifest.sha256, *(blob.sha256 for blob in folder.blobs)]
        return None not in await self.store.blob_generations(blobs)

    async def numbers(self, fileset: str = FILESET) -> list[int]:
        """The versions of a fileset, oldest first."""
        found = await self.store.fileset_versions(fileset, None, 1000)
        return sorted(one.version for one in found)
