"""What clients and gateways ask of dispatchers about filesets.

Pins, notes and seals name their holder: the ticket of an attempt, or the id of an upload. A stale
holder is a verdict; a ticket that nobody signed, or that expired, raises `NotAuthenticated`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from longshore.model.checkpoint import Checkpoint, NewCheckpoint
from longshore.model.fileset import (
    BlobRef,
    Collected,
    FilesetVersion,
    FilesetView,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.model.log_archive import NewLogPart
from longshore.wire import file_messages as f


class Exchange(Protocol):
    """Sends a request and gets the answer."""

    def __call__(
        self, request: f.FileRequest | f.BlobRequest, within_s: float = 0.0
    ) -> Awaitable[Any]:
        """The answer."""


class FileRequests:
    """The requests about filesets, each a method. Those about blobs are for gateways alone."""

    def __init__(
        self, exchange: Exchange, next_rid: Callable[[], int], new_id: Callable[[], UUID]
    ) -> None:
        self._exchange = exchange
        self._next_rid = next_rid
        self._new_id = new_id

    # versions

    async def filesets(self, after: str = "", most: int = 100) -> tuple[FilesetView, ...]:
        """Filesets by name, after this one, each with its newest version."""
        request = f.ListFilesets(self._next_rid(), after, most)
        answer: tuple[FilesetView, ...] = await self._exchange(request)
        return answer

    async def versions(
        self, fileset: str, before: int | None = None, most: int = 100
    ) -> tuple[FilesetVersion, ...]:
        """The versions of a fileset, newest first, below this number."""
        request = f.ListVersions(self._next_rid(), fileset, before, most)
        answer: tuple[FilesetVersion, ...] = await self._exchange(request)
        return answer

    async def version(self, fileset: str, version: int | None = None) -> FilesetVersion:
        """One version, or the newest; raises `NotFound`."""
        request = f.ShowVersion(self._next_rid(), fileset, version)
        answer: FilesetVersion = await self._exchange(request)
        return answer

    async def version_of_job(self, job: UUID, fileset: str) -> FilesetVersion | None:
        """The version of a fileset that the last round of a job made."""
        request = f.ShowVersionOfJob(self._next_rid(), job, fileset)
        answer: FilesetVersion | None = await self._exchange(request)
        return answer

    async def remove(self, fileset: str, versions: Sequence[int]) -> tuple[int, ...]:
        """Removes versions, except those that a live job has as its input; answers which."""
        request = f.RemoveVersions(self._next_rid(), self._new_id(), fileset, tuple(versions))
        answer: tuple[int, ...] = await self._exchange(request)
        return answer

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Collects what nothing needs, in part if that is much (`Collected.is_over`)."""
        request = f.CollectFiles(self._next_rid(), self._new_id(), dry_run)
        answer: Collected = await self._exchange(request)
        return answer

    # blobs, for gateways

    async def pin(
        self,
        manifest: BlobRef,
        blobs: Sequence[BlobRef],
        *,
        ticket: str = "",
        upload: UUID | None = None,
    ) -> f.Pinned:
        """Pins a manifest and lists at most `MAX_PINNED` of its blobs; answers what to upload."""
        rid = self._next_rid()
        request = f.PinFiles(rid, manifest, tuple(blobs), ticket=ticket, upload=upload)
        answer: f.Pinned = await self._exchange(request)
        return answer

    async def note_stored(
        self, stored: Sequence[StoredBlob], *, ticket: str = "", upload: UUID | None = None
    ) -> PinVerdict:
        """Says that blobs are stored whole, under the generations that the pin named."""
        request = f.NoteStored(self._next_rid(), tuple(stored), ticket=ticket, upload=upload)
        answer: PinVerdict = await self._exchange(request)
        return answer

    async def seal(
        self, manifest: bytes, blobs: int, *, ticket: str = "", upload: UUID | None = None
    ) -> PinVerdict:
        """Says that all blobs of a manifest are listed: so many, its own not counted.

        Who asks has read the manifest, and listed the blobs that it names.
        """
        request = f.SealManifest(self._next_rid(), manifest, blobs, ticket=ticket, upload=upload)
        answer: PinVerdict = await self._exchange(request)
        return answer

    async def publish(self, upload: UUID, made: NewVersion) -> FilesetVersion | None:
        """Makes a version of what an upload has sealed, once; None if it has not."""
        request = f.PublishUpload(self._next_rid(), upload, made)
        answer: FilesetVersion | None = await self._exchange(request)
        return answer

    async def input_version(
        self,
        ticket: str,
        fileset: str,
        version: int | None = None,
        maker: UUID | None = None,
        node: str = "",
    ) -> FilesetVersion | None:
        """The version that an attempt reads: this one, the one that `maker` made, or the newest.

        With `node` the one that the job with this key made. None if there is none, or if the
        attempt is over.
        """
        request = f.FixInput(self._next_rid(), ticket, fileset, version, maker, node)
        answer: FilesetVersion | None = await self._exchange(request)
        return answer

    async def save_checkpoint(self, ticket: str, made: NewCheckpoint) -> Checkpoint | None:
        """Keeps what an attempt has sealed as its job's checkpoint; None if it is over."""
        request = f.SaveCheckpoint(self._next_rid(), ticket, made)
        answer: Checkpoint | None = await self._exchange(request)
        return answer

    async def find_checkpoint(self, ticket: str) -> Checkpoint | None:
        """The checkpoint that an attempt begins with."""
        answer: Checkpoint | None = await self._exchange(f.FindCheckpoint(self._next_rid(), ticket))
        return answer

    async def locate(self, blobs: Sequence[bytes], *, ticket: str = "") -> tuple[int | None, ...]:
        """Under which generation each blob is stored; None if it is not, or not for this ticket."""
        request = f.LocateBlobs(self._next_rid(), tuple(blobs), ticket)
        answer: tuple[int | None, ...] = await self._exchange(request)
        return answer

    async def doomed(self, most: int = 1000) -> tuple[StoredBlob, ...]:
        """Blobs whose bytes can be removed by now."""
        request = f.ListDoomed(self._next_rid(), most)
        answer: tuple[StoredBlob, ...] = await self._exchange(request)
        return answer

    async def forget(self, gone: Sequence[Needed]) -> int:
        """Says that the bytes of these generations are removed."""
        answer: int = await self._exchange(f.ForgetBlobs(self._next_rid(), tuple(gone)))
        return answer

    async def bind_folder(self, folder: str) -> str:
        """The id of the place of the bytes; the first that asks sets it to `folder`."""
        answer: str = await self._exchange(f.BindFolder(self._next_rid(), folder))
        return answer

    # logs, for gateways

    async def old_logs(self, after: bytes = b"", most: int = 500) -> f.OldLogPage:
        """Which logs are to be archived, among the next `most` jobs that have a log."""
        answer: f.OldLogPage = await self._exchange(f.ListOldLogs(self._next_rid(), after, most))
        return answer

    async def note_archived(
        self, upload: UUID, archive: bytes, parts: Sequence[NewLogPart]
    ) -> tuple[UUID, ...]:
        """Says that parts of logs lie in an archive; answers of which jobs that counts."""
        request = f.NoteArchived(self._next_rid(), upload, archive, tuple(parts))
        answer: tuple[UUID, ...] = await self._exchange(request)
        return answer

    async def drop_archived(self, jobs: Sequence[UUID]) -> int:
        """Removes the entries of these jobs that are noted as archived."""
        answer: int = await self._exchange(f.DropArchived(self._next_rid(), tuple(jobs)))
        return answer
