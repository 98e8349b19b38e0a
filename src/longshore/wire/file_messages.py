"""The requests about filesets (see `messages`).

Anybody who may can list versions, remove some and collect (`FileRequest`). The bytes are with
gateways, so only gateways ask what has to do with blobs (`BlobRequest`). These requests carry the
ticket of an attempt or the id of an upload: that is who holds what is pinned.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from msgspec import Struct

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
from longshore.model.log_archive import NewLogPart, OldLog
from longshore.wire.actor_messages import Numbered

MAX_PINNED: Final = 1_000
"""How many blobs one request may name."""


class ListFilesets(Numbered, frozen=True, omit_defaults=True):
    """Filesets by name, after this one, each with its newest version."""

    after: str = ""
    most: int = 100


class ListVersions(Numbered, frozen=True, omit_defaults=True):
    """The versions of a fileset, newest first, below this number."""

    fileset: str
    before: int | None = None
    most: int = 100


class ShowVersion(Numbered, frozen=True, omit_defaults=True):
    """One version of a fileset, or the newest."""

    fileset: str
    version: int | None = None


class ShowVersionOfJob(Numbered, frozen=True):
    """The version of a fileset that a job made."""

    job: UUID
    fileset: str


class RemoveVersions(Numbered, frozen=True):
    """Remove versions, except those that live jobs or groups may need; answers which."""

    id: UUID
    fileset: str
    versions: tuple[int, ...]


class CollectFiles(Numbered, frozen=True, omit_defaults=True):
    """Collect what nothing needs; with `dry_run`, only say how much that is."""

    id: UUID
    dry_run: bool = False


class _OfHolder(Numbered, frozen=True, omit_defaults=True, kw_only=True):
    ticket: str = ""
    upload: UUID | None = None


class PinFiles(_OfHolder, frozen=True):
    """Pin a manifest, and list some of its blobs."""

    manifest: BlobRef
    blobs: tuple[BlobRef, ...] = ()


class NoteStored(_OfHolder, frozen=True):
    """These blobs are stored whole: the gateway has hashed them."""

    stored: tuple[StoredBlob, ...]


class SealManifest(_OfHolder, frozen=True):
    """All blobs of a manifest are listed and stored: so many, its own not counted."""

    manifest: bytes
    blobs: int


class PublishUpload(Numbered, frozen=True):
    """Make a version of what an upload has sealed, once."""

    upload: UUID
    made: NewVersion


class FixInput(Numbered, frozen=True, omit_defaults=True):
    """Which version of a fileset an attempt reads: always the same in a round of its job.

    With `maker` it is the one that this job made. With `node` it is the one that the job with this
    key in the group of the attempt made; then `fileset` may be empty, if that made only one.
    """

    ticket: str
    fileset: str
    version: int | None = None
    maker: UUID | None = None
    node: str = ""


class SaveCheckpoint(Numbered, frozen=True):
    """Keep what an attempt has sealed as the checkpoint of its job."""

    ticket: str
    made: NewCheckpoint


class FindCheckpoint(Numbered, frozen=True):
    """The checkpoint that an attempt begins with."""

    ticket: str


class LocateBlobs(Numbered, frozen=True, omit_defaults=True):
    """Under which generations blobs are stored. With a ticket, only those that it may read."""

    blobs: tuple[bytes, ...]
    ticket: str = ""


class ListDoomed(Numbered, frozen=True, omit_defaults=True):
    """Blobs whose bytes can be removed by now."""

    most: int = 1000


class ForgetBlobs(Numbered, frozen=True):
    """The bytes of these generations are removed."""

    gone: tuple[Needed, ...]


class BindFolder(Numbered, frozen=True):
    """The place of the bytes has this id; answers the one that the store knows."""

    folder: str


class ListOldLogs(Numbered, frozen=True, omit_defaults=True):
    """Which logs are to be archived, among the next `most` jobs that have a log."""

    after: bytes = b""
    most: int = 500


class NoteArchived(Numbered, frozen=True):
    """Parts of logs lie in an archive that an upload has sealed; answers of which jobs."""

    upload: UUID
    archive: bytes
    parts: tuple[NewLogPart, ...]


class DropArchived(Numbered, frozen=True):
    """Remove the entries of these jobs that are noted as archived; answers how many."""

    jobs: tuple[UUID, ...]


class OldLogPage(Struct, frozen=True, omit_defaults=True):
    """Logs to archive. The next page begins at `next`; if that is empty, this is the last.

    Then it is worth a look again after `pause_s`.
    """

    logs: tuple[OldLog, ...] = ()
    next: bytes = b""
    pause_s: float = 0.0


class Pinned(Struct, frozen=True, omit_defaults=True):
    """What came of a pin, and which blobs are to be uploaded, under which generations."""

    verdict: PinVerdict
    needed: tuple[Needed, ...] = ()


FileRequest = (
    ListFilesets | ListVersions | ShowVersion | ShowVersionOfJob | RemoveVersions | CollectFiles
)
BlobRequest = (
    PinFiles
    | NoteStored
    | SealManifest
    | PublishUpload
    | FixInput
    | SaveCheckpoint
    | FindCheckpoint
    | LocateBlobs
    | ListDoomed
    | ForgetBlobs
    | BindFolder
    | ListOldLogs
    | NoteArchived
    | DropArchived
)

FILE_ANSWERS: Final[dict[type, Any]] = {
    ListFilesets: tuple[FilesetView, ...],
    ListVersions: tuple[FilesetVersion, ...],
    ShowVersion: FilesetVersion,
    ShowVersionOfJob: FilesetVersion | None,
    RemoveVersions: tuple[int, ...],
    CollectFiles: Collected,
    PinFiles: Pinned,
    NoteStored: PinVerdict,
    SealManifest: PinVerdict,
    PublishUpload: FilesetVersion | None,
    FixInput: FilesetVersion | None,
    SaveCheckpoint: Checkpoint | None,
    FindCheckpoint: Checkpoint | None,
    LocateBlobs: tuple[int | None, ...],
    ListDoomed: tuple[StoredBlob, ...],
    ForgetBlobs: int,
    BindFolder: str,
    ListOldLogs: OldLogPage,
    NoteArchived: tuple[UUID, ...],
    DropArchived: int,
}
