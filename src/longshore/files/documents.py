"""What the routes of files take and answer: gateways and their clients share these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from longshore.files.changes import Change
from longshore.files.packs import PACK_BLOBS
from longshore.model.checkpoint import Checkpoint
from longshore.model.fileset import FilesetVersion

UPLOAD_OFFSET: Final = "Upload-Offset"
"""The header that says how many bytes of an upload are there."""
TICKET_SCHEME: Final = "Longshore-Ticket"

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Meta(ge=0, le=2**62)]
Number = Annotated[int, Meta(ge=1, le=2**53)]
Generation = Annotated[int, Meta(ge=0, le=2**53)]


class PinRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which manifest is to be stored, and from which of its files on to look.

    `upload` is the id of an upload by hand. An attempt is known by its ticket.
    """

    manifest: Sha256
    size: Size
    after: Size = 0
    upload: UUID | None = None


class NeededBlob(Struct, frozen=True):
    """A blob that is to be uploaded, under this generation."""

    sha256: Sha256
    size: Size
    generation: Generation


class PinAnswer(Struct, frozen=True):
    """What is to be uploaded of this portion, and where the next one begins.

    As long as the manifest itself is needed, it is all that is asked for.
    """

    needed: tuple[NeededBlob, ...]
    next: Size | None


class SealRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A manifest whose files are all stored."""

    manifest: Sha256
    size: Size
    upload: UUID | None = None


class Sealed(Struct, frozen=True):
    """How much a sealed manifest holds."""

    files: Size
    total_bytes: Size


class PublishRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed manifest that becomes the next version of a fileset."""

    manifest: Sha256
    size: Size
    upload: UUID


class InputRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which version of a fileset an attempt reads."""

    fileset: str
    version: Number | None = None
    maker: UUID | None = None
    """The version that this job made."""
    node: str = ""
    """The version that the job with this key in the attempt's group made."""


class CheckpointRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A manifest whose files are all stored, which becomes the checkpoint of the attempt's job."""

    manifest: Sha256
    size: Size
    sequence: Number
    """Which checkpoint of this attempt it is: 1, 2, …"""


class ShownCheckpoint(Struct, frozen=True, kw_only=True):
    """The files that an attempt begins with."""

    manifest: Sha256
    files: Size
    total_bytes: Size
    saved_at: datetime
    number: int
    idle: int


class CheckpointAnswer(Struct, frozen=True):
    """The checkpoint of the attempt's job, if it has one."""

    checkpoint: ShownCheckpoint | None


class Stored(Struct, frozen=True):
    """How much of a blob is there."""

    sha256: Sha256
    offset: Size
    stored: bool


class StoredPack(Struct, frozen=True):
    """How many blobs of a pack are stored."""

    stored: Size


class PackRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which small blobs to send in one answer."""

    blobs: Annotated[tuple[Sha256, ...], Meta(min_length=1, max_length=PACK_BLOBS)]


class ShownVersion(Struct, frozen=True, kw_only=True):
    """A version of a fileset."""

    fileset: str
    version: int
    manifest: Sha256
    files: int
    total_bytes: int
    created_at: datetime
    partial: bool = False
    job: UUID | None = None
    round: int = 0
    by: str = ""


class ShownFileset(Struct, frozen=True, kw_only=True):
    """A fileset: how many versions there are, and the newest."""

    name: str
    versions: int
    latest: ShownVersion


class FilesetList(Struct, frozen=True):
    """Filesets by name."""

    filesets: tuple[ShownFileset, ...]
    next: str | None


class VersionList(Struct, frozen=True):
    """Versions of a fileset, newest first."""

    versions: tuple[ShownVersion, ...]
    next: int | None


class ShownFile(Struct, frozen=True):
    """A file of a version."""

    path: str
    size: Size
    sha256: Sha256
    executable: bool


class VersionFiles(Struct, frozen=True, kw_only=True):
    """A version, and some of its files by path."""

    version: ShownVersion
    files: tuple[ShownFile, ...]
    next: int | None


class VersionChanges(Struct, frozen=True):
    """Some of the files that differ between two versions of a fileset, by path."""

    fileset: str
    before: int
    after: int
    changes: tuple[Change, ...]
    next: int | None


class Removed(Struct, frozen=True):
    """Which versions were removed."""

    removed: tuple[int, ...]


class Unused(Struct, frozen=True):
    """What a collection would remove in time, and what it removed now."""

    blobs: Size
    total_bytes: Size
    removed: Size
    is_over: bool
    """False if there is more to collect than one request does."""


def shown_version(version: FilesetVersion) -> ShownVersion:
    """A version as documents show it."""
    return ShownVersion(
        fileset=version.fileset,
        version=version.version,
        manifest=version.manifest.hex(),
        files=version.files,
        total_bytes=version.total_bytes,
        created_at=version.created_at,
        partial=version.partial,
        job=version.job,
        round=version.round,
        by=version.by,
    )


def shown_checkpoint(saved: Checkpoint) -> ShownCheckpoint:
    """A checkpoint as documents show it."""
    return ShownCheckpoint(
        manifest=saved.manifest.hex(),
        files=saved.files,
        total_bytes=saved.total_bytes,
        saved_at=saved.saved_at,
        number=saved.number,
        idle=saved.idle,
    )
