"""Filesets: named, versioned sets of files. A version never changes once it is published.

Files are kept as *blobs*, by the SHA-256 of their bytes, so that each is stored once. A *manifest*
lists the files of a version; encoded, it is a blob too, and its hash names it. A version is a row
that leads to a manifest. A manifest that is *pinned* by a holder stays, with all of its blobs: an
attempt holds by its token, an upload by hand by its id. Published versions are made of sealed
manifests only: those whose blobs are all stored.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct, msgpack

from longshore.errors import InvalidInput

HASH_BYTES: Final = 32


class FileEntry(Struct, frozen=True, array_like=True, gc=False):
    """One file of a manifest. `path` is relative, with `/` between its parts."""

    path: str
    size: int
    sha256: bytes
    executable: bool = False


class Manifest(Struct, frozen=True, array_like=True):
    """The files of a version, by path."""

    files: tuple[FileEntry, ...] = ()

    @property
    def total_bytes(self) -> int:
        """How many bytes its files have."""
        return sum(file.size for file in self.files)


_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(Manifest).decode


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest as a blob. Equal manifests are equal bytes."""
    return _encode(manifest)


def decode_manifest(data: bytes) -> Manifest:
    """The manifest in a blob; raises `InvalidInput` if it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"this is no manifest of files: {error}") from None


class BlobRef(Struct, frozen=True, array_like=True, gc=False):
    """The bytes of a file, by their hash."""

    sha256: bytes
    size: int


class BlobState(IntEnum):
    """Where a blob is in its life."""

    MISSING = 0
    """Somebody wants to store it."""
    STORED = 1
    DOOMED = 2
    """Nothing needs it: it is about to be removed. Who pins it must store it anew."""


class Holder(Struct, frozen=True, array_like=True, gc=False):
    """Who pins: an attempt by its job and token, or an upload by an id of its own (token 0)."""

    id: UUID
    token: int = 0

    @property
    def is_attempt(self) -> bool:
        """Whether it holds only as long as its token is that of its job."""
        return self.token != 0


class Needed(Struct, frozen=True, array_like=True, gc=False):
    """A blob that must be uploaded before its manifest can be sealed, under this generation."""

    sha256: bytes
    generation: int


class StoredBlob(Struct, frozen=True, array_like=True, gc=False):
    """Bytes that lie in the file store under one generation of their blob.

    No generation is ever used twice: who removes the bytes of one harms no other.
    """

    sha256: bytes
    size: int
    generation: int


class PinVerdict(StrEnum):
    """What came of a pin, a seal or the note that a blob is stored."""

    DONE = "done"
    STALE = "stale"
    """The attempt that holds is over, or the upload was forgotten."""
    INCOMPLETE = "incomplete"
    """Blobs are not stored, not listed, or have another size than is said: pin them once more."""
    TOO_LARGE = "too_large"
    """The blobs of the manifest have more bytes than the holder may store."""


class NewVersion(Struct, frozen=True, omit_defaults=True):
    """A version that an end publishes. `manifest` is sealed by the attempt that ends."""

    fileset: str
    manifest: bytes
    files: int
    total_bytes: int
    partial: bool = False
    """Whether the job that made it did not succeed."""


class FilesetVersion(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A published version."""

    fileset: str
    version: int
    manifest: bytes
    files: int
    total_bytes: int
    created_at: datetime
    partial: bool = False
    job: UUID | None = None
    round: int = 0
    by: str = ""
    """Who pushed it, if no job made it."""


class FilesetView(Struct, frozen=True, kw_only=True):
    """A fileset as lists show it: its newest version, and how many there are."""

    latest: FilesetVersion
    versions: int


class Collected(Struct, frozen=True, omit_defaults=True):
    """What a collection found: blobs that nothing needs. It removes them an hour later."""

    blobs: int = 0
    total_bytes: int = 0
    manifests: int = 0
    """How many manifests were forgotten."""
    is_over: bool = True
    """False if there is more to collect than one request does."""


class Ticket(Struct, frozen=True, array_like=True):
    """With it an attempt may read its inputs and store its outputs at any gateway.

    Its signed text goes with JOBS. It is worth nothing once the token is not that of its job.
    """

    job: UUID
    token: int
    round: int
    most_bytes: int
    expires_at: int
    """In seconds since 1970, by the clock of the dispatcher that signed it."""
