"""What `MemoryStore` keeps of filesets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import count
from uuid import UUID

from msgspec import Struct

from longshore.model.checkpoint import Checkpoint
from longshore.model.fileset import BlobRef, BlobState, FilesetVersion, Holder, Needed, NewVersion
from longshore.model.log_archive import LogPart


class BlobRow(Struct):
    """A blob."""

    size: int
    generation: int
    touched_at: datetime
    state: BlobState = BlobState.MISSING


class ManifestRow(Struct):
    """A manifest: what it lists, and who pins it."""

    at: datetime
    blobs: dict[bytes, int] = {}
    pins: dict[Holder, bool] = {}
    """Who holds it, and whether that one has sealed it."""
    pinned_at: dict[Holder, datetime] = {}


class CheckpointRow(Struct, frozen=True):
    """The checkpoint of a job, and which attempt saved it."""

    round: int
    token: int
    sequence: int
    kept: Checkpoint


class FileRows:
    """What a store keeps of filesets."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, BlobRow] = {}
        self.manifests: dict[bytes, ManifestRow] = {}
        self.latest: dict[str, int] = {}
        self.versions: dict[tuple[str, int], FilesetVersion] = {}
        self.uploads: dict[tuple[UUID, str], int] = {}
        self.inputs: dict[tuple[UUID, int, str, int | None], int] = {}
        self.checkpoints: dict[UUID, CheckpointRow] = {}
        self.generations = count(1)
        self.folder = ""
        self.log_parts: dict[UUID, list[LogPart]] = {}

    def needs(self, manifest: bytes) -> bool:
        """Whether a version, a checkpoint, a pin or the log of a job leads to a manifest."""
        made = any(one.manifest == manifest for one in self.versions.values())
        saved = any(one.kept.manifest == manifest for one in self.checkpoints.values())
        parts = (part for parts in self.log_parts.values() for part in parts)
        archived = any(part.archive == manifest for part in parts)
        return made or saved or archived or bool(self.manifests[manifest].pins)

    def forget_logs(self, jobs: Iterable[UUID]) -> None:
        """Jobs are removed: no archive holds their logs any more."""
        for job in jobs:
            self.log_parts.pop(job, None)

    def lists(self, blob: bytes) -> bool:
        """Whether a manifest lists a blob."""
        return any(blob in one.blobs for one in self.manifests.values())

    def of(self, fileset: str) -> list[FilesetVersion]:
        """The versions of a fileset, newest first."""
        found = [one for (name, _), one in self.versions.items() if name == fileset]
        return sorted(found, key=lambda one: -one.version)

    def want(self, blob: BlobRef, now: datetime) -> Needed | None:
        """A blob that a holder wants; None if it is stored."""
        row = self.blobs.get(blob.sha256)
        if row is not None and row.state is BlobState.STORED:
            row.touched_at = now
            return None
        if row is None or row.state is BlobState.DOOMED:
            self.blobs[blob.sha256] = row = BlobRow(blob.size, next(self.generations), now)
        row.size, row.touched_at = blob.size, now
        return Needed(blob.sha256, row.generation)

    def make(
        self, maker: UUID | None, round: int, made: NewVersion, by: str, now: datetime
    ) -> FilesetVersion:
        """A new version."""
        number = self.latest[made.fileset] = self.latest.get(made.fileset, 0) + 1
        version = self.versions[made.fileset, number] = FilesetVersion(
            fileset=made.fileset,
            version=number,
            manifest=made.manifest,
            files=made.files,
            total_bytes=made.total_bytes,
            created_at=now,
            partial=made.partial,
            job=maker,
            round=round,
            by=by,
        )
        return version
