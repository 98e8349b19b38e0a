"""What stores keep of filesets: who pins what, which blobs are stored, which versions there are.

The bytes are elsewhere (`files/`). A store never sees them: gateways tell it what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
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


class FileStore(Protocol):
    """The verbs of filesets. Every one may be repeated.

    What attempts make is published by their ends (`Succeeded.versions`, `Failed.versions`).
    """

    async def pin(
        self,
        holder: Holder,
        manifest: BlobRef,
        blobs: Sequence[BlobRef],
        most_bytes: int | None = None,
    ) -> tuple[PinVerdict, Sequence[Needed]]:
        """Pins a manifest, and lists some of its blobs; answers which of these must be uploaded.

        A manifest with many files is listed by several calls. Its own blob is always among those
        that are looked at. A doomed blob is one to upload, under a new generation.
        """

    async def note_stored(self, holder: Holder, stored: Sequence[StoredBlob]) -> PinVerdict:
        """These blobs are stored whole. It is incomplete if one of them must be stored anew."""

    async def seal(self, holder: Holder, manifest: bytes, blobs: int) -> PinVerdict:
        """All blobs of a pinned manifest are listed and stored: so many, its own not counted.

        From then on an end of the attempt, or `publish`, may make a version of it.
        """

    async def publish(self, upload: UUID, made: NewVersion, by: str) -> FilesetVersion | None:
        """Makes a version of what an upload has sealed, once for each upload; None if it has not.

        A repeat answers the version that it made, as long as that is there.
        """

    async def input_version(
        self, holder: Holder, fileset: str, version: int | None
    ) -> FilesetVersion | None:
        """The version that an attempt reads, which is the same for all attempts of a round.

        The first that asks without a `version` fixes the newest. None if there is none, or if the
        holder is stale.
        """

    async def version_of_job(self, job: UUID, fileset: str) -> FilesetVersion | None:
        """What the last round of a job that published this fileset has made."""

    async def versions_of_node(self, job: UUID, key: str) -> Sequence[FilesetVersion]:
        """What the job with this key, in the group of this job, has made in its last round.

        A key that begins with `./` is one beside that of the job (see `payload.references`).
        """

    async def save_checkpoint(self, holder: Holder, made: NewCheckpoint) -> Checkpoint | None:
        """Keeps what an attempt has sealed as the checkpoint of its job.

        It takes the place of an earlier one of the round. None if the attempt is over, or has not
        sealed it. A repeat, or one that comes late, answers the one that is there.
        """

    async def checkpoint(self, job: UUID) -> Checkpoint | None:
        """What the next attempt at a job begins with; None if it has ended, or has none."""

    async def filesets(self, after: str, most: int) -> Sequence[FilesetView]:
        """Filesets that have versions, by name, after this one."""

    async def fileset_versions(
        self, fileset: str, before: int | None, most: int
    ) -> Sequence[FilesetVersion]:
        """The versions of a fileset, newest first, below this number."""

    async def fileset_version(self, fileset: str, version: int | None) -> FilesetVersion | None:
        """One version, or the newest."""

    async def remove_versions(self, fileset: str, versions: Sequence[int]) -> Sequence[int]:
        """Removes versions; answers which.

        Those stay that a live job has as its input, or that a job of a live group has made: jobs
        after it may still ask for them.
        """

    async def blob_generations(
        self, blobs: Sequence[bytes], reader: Holder | None = None
    ) -> Sequence[int | None]:
        """Under which generation each blob is stored; None if it is not.

        An attempt as `reader` finds only the blobs of its inputs, those of its job's checkpoint,
        and those that it pins.
        """

    async def forget_manifests(self, older_than_s: float, most: int = 1000) -> int:
        """Forgets manifests without a version that nobody alive pins, and pins of the dead.

        Checkpoints of jobs that have ended go too.

        An upload counts as alive until it has pinned nothing for so long. Answers how much it
        removed; 0 if nothing is left to do.
        """

    async def doom_blobs(self, older_than_s: float, most: int = 1000) -> Sequence[BlobRef]:
        """Dooms blobs of no manifest that nobody has touched for so long; answers which."""

    async def doomed_blobs(self, older_than_s: float, most: int = 1000) -> Sequence[StoredBlob]:
        """Blobs that were doomed so long ago: the bytes of these generations can go."""

    async def forget_blobs(self, gone: Sequence[Needed]) -> int:
        """The bytes of these doomed blobs are gone; answers how many nobody pinned meanwhile."""

    async def unused_bytes(self) -> tuple[int, int]:
        """How many blobs nothing needs, and their bytes: what a collection would remove in time."""

    async def bind_folder(self, folder: str) -> str:
        """The id of the place where blobs lie: the first that asks sets it to `folder`.

        So two machines with a folder each cannot both serve theirs.
        """

    # logs in the file store

    async def old_logs(self, older_than_s: float, after: bytes, most: int) -> OldLogs:
        """Logs to archive: of jobs that ended so long ago, among the next `most` with a log.

        `after` is the `next` of the look before. Turns of actors go with their actors, and are
        left out. A log that is archived, but not dropped yet, counts too.
        """

    async def note_archived(
        self, upload: UUID, archive: bytes, parts: Sequence[NewLogPart]
    ) -> Sequence[UUID]:
        """Parts of logs lie in an archive that an upload has sealed; answers of which jobs.

        A part counts only if it begins where the part before it ended, so that a repeat, or another
        gateway that archived the same, changes nothing. The archive stays while one of the jobs
        does.
        """

    async def drop_archived(self, jobs: Sequence[UUID]) -> int:
        """Removes the entries of these jobs that are noted as archived; answers how many.

        The last step and the last progress of the last attempt stay.
        """

    async def log_parts(self, job: UUID) -> Sequence[LogPart]:
        """Which lines of a job lie in the file store, and where, in order."""
