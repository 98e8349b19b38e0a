"""The verbs of `FaultyStore` about filesets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from longshore.model.checkpoint import Checkpoint, NewCheckpoint
from longshore.model.fileset import (
    BlobRef,
    FilesetVersion,
    FilesetView,
    Holder,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.model.log_archive import LogPart, NewLogPart, OldLogs
from longshore.ports import Store

Answer = TypeVar("Answer")


class FaultyFiles:
    """Calls the store, with faults."""

    store: Store

    @abstractmethod
    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to one call of a verb, or the fault in its place."""

    async def pin(
        self,
        holder: Holder,
        manifest: BlobRef,
        blobs: Sequence[BlobRef],
        most_bytes: int | None = None,
    ) -> tuple[PinVerdict, Sequence[Needed]]:
        return await self._call("pin", lambda: self.store.pin(holder, manifest, blobs, most_bytes))

    async def note_stored(self, holder: Holder, stored: Sequence[StoredBlob]) -> PinVerdict:
        return await self._call("note_stored", lambda: self.store.note_stored(holder, stored))

    async def seal(self, holder: Holder, manifest: bytes, blobs: int) -> PinVerdict:
        return await self._call("seal", lambda: self.store.seal(holder, manifest, blobs))

    async def publish(self, upload: UUID, made: NewVersion, by: str) -> FilesetVersion | None:
        return await self._call("publish", lambda: self.store.publish(upload, made, by))

    async def input_version(
        self, holder: Holder, fileset: str, version: int | None
    ) -> FilesetVersion | None:
        return await self._call(
            "input_version", lambda: self.store.input_version(holder, fileset, version)
        )

    async def version_of_job(self, job: UUID, fileset: str) -> FilesetVersion | None:
        return await self._call("version_of_job", lambda: self.store.version_of_job(job, fileset))

    async def versions_of_node(self, job: UUID, key: str) -> Sequence[FilesetVersion]:
        return await self._call("versions_of_node", lambda: self.store.versions_of_node(job, key))

    async def save_checkpoint(self, holder: Holder, made: NewCheckpoint) -> Checkpoint | None:
        return await self._call("save_checkpoint", lambda: self.store.save_checkpoint(holder, made))

    async def checkpoint(self, job: UUID) -> Checkpoint | None:
        return await self._call("checkpoint", lambda: self.store.checkpoint(job))

    async def filesets(self, after: str, most: int) -> Sequence[FilesetView]:
        return await self._call("filesets", lambda: self.store.filesets(after, most))

    async def fileset_versions(
        self, fileset: str, before: int | None, most: int
    ) -> Sequence[FilesetVersion]:
        return await self._call(
            "fileset_versions", lambda: self.store.fileset_versions(fileset, before, most)
        )

    async def fileset_version(self, fileset: str, version: int | None) -> FilesetVersion | None:
        return await self._call(
            "fileset_version", lambda: self.store.fileset_version(fileset, version)
        )

    async def remove_versions(self, fileset: str, versions: Sequence[int]) -> Sequence[int]:
        return await self._call(
            "remove_versions", lambda: self.store.remove_versions(fileset, versions)
        )

    async def blob_generations(
        self, blobs: Sequence[bytes], reader: Holder | None = None
    ) -> Sequence[int | None]:
        return await self._call(
            "blob_generations", lambda: self.store.blob_generations(blobs, reader)
        )

    async def forget_manifests(self, older_than_s: float, most: int = 1000) -> int:
        return await self._call(
            "forget_manifests", lambda: self.store.forget_manifests(older_than_s, most)
        )

    async def doom_blobs(self, older_than_s: float, most: int = 1000) -> Sequence[BlobRef]:
        return await self._call("doom_blobs", lambda: self.store.doom_blobs(older_than_s, most))

    async def doomed_blobs(self, older_than_s: float, most: int = 1000) -> Sequence[StoredBlob]:
        return await self._call("doomed_blobs", lambda: self.store.doomed_blobs(older_than_s, most))

    async def forget_blobs(self, gone: Sequence[Needed]) -> int:
        return await self._call("forget_blobs", lambda: self.store.forget_blobs(gone))

    async def unused_bytes(self) -> tuple[int, int]:
        return await self._call("unused_bytes", self.store.unused_bytes)

    async def bind_folder(self, folder: str) -> str:
        return await self._call("bind_folder", lambda: self.store.bind_folder(folder))

    async def old_logs(self, older_than_s: float, after: bytes, most: int) -> OldLogs:
        return await self._call("old_logs", lambda: self.store.old_logs(older_than_s, after, most))

    async def note_archived(
        self, upload: UUID, archive: bytes, parts: Sequence[NewLogPart]
    ) -> Sequence[UUID]:
        return await self._call(
            "note_archived", lambda: self.store.note_archived(upload, archive, parts)
        )

    async def drop_archived(self, jobs: Sequence[UUID]) -> int:
        return await self._call("drop_archived", lambda: self.store.drop_archived(jobs))

    async def log_parts(self, job: UUID) -> Sequence[LogPart]:
        return await self._call("log_parts", lambda: self.store.log_parts(job))
