"""The part of `MemoryStore` that knows filesets, plainly: it asks anew what is needed each time."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.placement import kept_slots
from longshore.core.publishing import published, without_outputs
from longshore.core.turns import last_worker
from longshore.errors import InvalidInput
from longshore.model.ends import End
from longshore.model.fileset import (
    BlobRef,
    BlobState,
    FilesetVersion,
    FilesetView,
    Holder,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.model.worker import Claim, SessionKey
from longshore.payload.needed_files import MOST_PARENTS, Needing, wishes
from longshore.store.rows import other_size
from longshore.testing.memory_file_rows import ManifestRow
from longshore.testing.memory_reads import MemoryReads
from longshore.testing.memory_rows import JobRow


class MemoryFiles(MemoryReads):
    """The verbs about filesets."""

    def _round(self, holder: Holder) -> int:
        """The round of the attempt that holds; 0 if it is over."""
        row = self._jobs.get(holder.id)
        if row is None or row.state not in OWNED or row.job.token != holder.token:
            return 0
        return row.job.round

    def _kept(
        self, claim: Claim, rows: Sequence[JobRow], slots: Sequence[SessionKey]
    ) -> Sequence[SessionKey]:
        """The slots in the order of the jobs: of whom had a turn last, or of whom has files."""
        if claim.keeps:
            jobs = [row.job for row in rows]
            return kept_slots([last_worker(job.options, job.args) for job in jobs], slots)
        if claim.at_hand is None:
            return slots
        needing = [Needing(one.job.id, one.job.kind, one.job.args, one.job.attempt) for one in rows]
        return kept_slots(wishes(claim.at_hand, needing, slots, self._depends_on), slots)

    def _depends_on(self, job: UUID) -> list[UUID]:
        node = self._node(job)
        jobs = self._groups[node.group].jobs
        return [jobs[place] for place in node.node.after if place in jobs][:MOST_PARENTS]

    def _with_versions(self, end: End) -> End:
        """The end. One that brings what its attempt has not sealed publishes nothing."""
        holder, known = Holder(end.job, end.token), self._files.manifests
        missing = [
            made.fileset
            for made in published(end)
            if made.manifest not in known or not known[made.manifest].pins.get(holder)
        ]
        return without_outputs(end, missing) if missing else end

    def _publish_end(self, end: End, round: int) -> None:
        for made in {made.fileset: made for made in published(end)}.values():
            self._files.make(end.job, round, made, "", self._now)

    async def pin(
        self,
        holder: Holder,
        manifest: BlobRef,
        blobs: Sequence[BlobRef],
        most_bytes: int | None = None,
    ) -> tuple[PinVerdict, Sequence[Needed]]:
        files, now = self._files, self._utc()
        if holder.is_attempt and not self._round(holder):
            return PinVerdict.STALE, ()
        sizes = {blob.sha256: blob.size for blob in (*blobs, manifest)}
        for sha256, size in sizes.items():
            row = files.blobs.get(sha256)
            if row is not None and row.state is BlobState.STORED and row.size != size:
                raise InvalidInput(other_size(sha256, row.size))
        listing = files.manifests.setdefault(manifest.sha256, ManifestRow(now, {}, {}, {}))
        listing.at = listing.pinned_at[holder] = now
        listing.pins.setdefault(holder, False)
        found = [files.want(BlobRef(key, sizes[key]), now) for key in sorted(sizes)]
        listing.blobs = listing.blobs | sizes
        if most_bytes is not None and sum(listing.blobs.values()) > most_bytes:
            return PinVerdict.TOO_LARGE, ()
        return PinVerdict.DONE, [one for one in found if one is not None]

    async def note_stored(self, holder: Holder, stored: Sequence[StoredBlob]) -> PinVerdict:
        files, now = self._files, self._utc()
        pinned = [one for one in files.manifests.values() if holder in one.pins]
        if not (self._round(holder) if holder.is_attempt else pinned):
            return PinVerdict.STALE
        for one in pinned:
            if not holder.is_attempt:
                one.pinned_at[holder] = now
        for blob in stored:
            row = files.blobs.get(blob.sha256)
            is_wanted = row is not None and row.state is BlobState.MISSING
            if row is not None and is_wanted and row.generation == blob.generation:
                row.state, row.size, row.touched_at = BlobState.STORED, blob.size, now
        return self._all_stored([blob.sha256 for blob in stored])

    def _all_stored(self, blobs: Sequence[bytes]) -> PinVerdict:
        rows = [self._files.blobs.get(blob) for blob in blobs]
        done = all(row is not None and row.state is BlobState.STORED for row in rows)
        return PinVerdict.DONE if done else PinVerdict.INCOMPLETE

    async def seal(self, holder: Holder, manifest: bytes, blobs: int) -> PinVerdict:
        files = self._files
        listing = files.manifests.get(manifest)
        is_stale = holder.is_attempt and not self._round(holder)
        if is_stale or listing is None or holder not in listing.pins:
            return PinVerdict.STALE
        rows = [(files.blobs.get(blob), size) for blob, size in listing.blobs.items()]
        stored = [row for row, size in rows if row is not None and row.size == size]
        is_whole = all(row.state is BlobState.STORED for row in stored)
        if len(stored) < len(rows) or not is_whole or len(rows) != blobs + 1:
            return PinVerdict.INCOMPLETE
        listing.pins[holder], listing.pinned_at[holder] = True, self._utc()
        return PinVerdict.DONE

    async def publish(self, upload: UUID, made: NewVersion, by: str) -> FilesetVersion | None:
        files, holder = self._files, Holder(upload)
        known = files.uploads.get((upload, made.fileset))
        if known is not None and (made.fileset, known) in files.versions:
            return files.versions[made.fileset, known]
        listing = files.manifests.get(made.manifest)
        if listing is None or not listing.pins.get(holder):
            return None
        version = files.make(None, 0, made, by, self._utc())
        files.uploads[upload, made.fileset] = version.version
        return version

    async def input_version(
        self, holder: Holder, fileset: str, version: int | None
    ) -> FilesetVersion | None:
        round = self._round(holder)
        if not round:
            return None
        key = (holder.id, round, fileset, version)
        found = await self.fileset_version(fileset, self._files.inputs.get(key, version))
        if found is not None:
            self._files.inputs[key] = found.version
        return found

    async def version_of_job(self, job: UUID, fileset: str) -> FilesetVersion | None:
        made = [one for one in self._files.of(fileset) if one.job == job]
        return max(made, key=lambda one: one.round, default=None)

    async def filesets(self, after: str, most: int) -> Sequence[FilesetView]:
        names = sorted({name for name, _ in self._files.versions if name > after})
        found = [self._files.of(name) for name in names[:most]]
        return [FilesetView(latest=some[0], versions=len(some)) for some in found]

    async def fileset_versions(
        self, fileset: str, before: int | None, most: int
    ) -> Sequence[FilesetVersion]:
        found = self._files.of(fileset)
        return [one for one in found if before is None or one.version < before][:most]

    async def fileset_version(self, fileset: str, version: int | None) -> FilesetVersion | None:
        if version is None:
            return next((one for one in self._files.of(fileset) if not one.partial), None)
        return self._files.versions.get((fileset, version))

    async def remove_versions(self, fileset: str, versions: Sequence[int]) -> Sequence[int]:
        read = {
            (name, version)
            for (job, round, name, _), version in self._files.inputs.items()
            if (row := self._jobs.get(job)) is not None
            and row.job.round == round
            and row.state not in TERMINAL
        }
        known = self._files.versions
        free = {key for key in known.keys() - read if not self._is_of_live_group(known[key].job)}
        gone = [one for one in sorted(set(versions)) if (fileset, one) in free]
        for version in gone:
            del known[fileset, version]
        return gone

    def _is_of_live_group(self, maker: UUID | None) -> bool:
        row = None if maker is None else self._jobs.get(maker)
        if row is None or row.node is None:
            return False
        return self._groups[row.node.group].ended_at is None

    async def blob_generations(
        self, blobs: Sequence[bytes], reader: Holder | None = None
    ) -> Sequence[int | None]:
        if reader is not None and not self._round(reader):
            return [None] * len(blobs)
        readable = set(self._files.blobs) if reader is None else self._readable(reader)
        rows = [self._files.blobs.get(blob) if blob in readable else None for blob in blobs]
        stored = BlobState.STORED
        return [row.generation if row and row.state is stored else None for row in rows]

    def _readable(self, reader: Holder) -> set[bytes]:
        files = self._files
        inputs = {(name, n) for (job, _, name, _), n in files.inputs.items() if job == reader.id}
        manifests = {files.versions[key].manifest for key in inputs & files.versions.keys()}
        manifests |= {key for key, one in files.manifests.items() if reader in one.pins}
        if reader.id in files.checkpoints:
            manifests.add(files.checkpoints[reader.id].kept.manifest)
        return {blob for key in manifests for blob in files.manifests[key].blobs}

    async def forget_manifests(self, older_than_s: float, most: int = 1000) -> int:
        files, now = self._files, self._utc()
        dead = [
            (one, holder)
            for one in files.manifests.values()
            for holder, at in one.pinned_at.items()
            if (now - at).total_seconds() >= older_than_s
            and not (holder.is_attempt and self._round(holder))
        ][:most]
        for one, holder in dead:
            del one.pins[holder], one.pinned_at[holder]
        gone = [
            key
            for key, one in files.manifests.items()
            if (now - one.at).total_seconds() >= older_than_s and not files.needs(key)
        ][:most]
        for key in gone:
            del files.manifests[key]
        return len(dead) + len(gone)

    async def doom_blobs(self, older_than_s: float, most: int = 1000) -> Sequence[BlobRef]:
        now, doomed = self._utc(), list[BlobRef]()
        for key, row in self._files.blobs.items():
            is_old = (now - row.touched_at).total_seconds() >= older_than_s
            is_doomed = row.state is BlobState.DOOMED
            if len(doomed) < most and is_old and not is_doomed and not self._files.lists(key):
                row.state, row.touched_at = BlobState.DOOMED, now
                doomed.append(BlobRef(key, row.size))
        return doomed

    async def doomed_blobs(self, older_than_s: float, most: int = 1000) -> Sequence[StoredBlob]:
        now = self._utc()
        return [
            StoredBlob(key, row.size, row.generation)
            for key, row in self._files.blobs.items()
            if row.state is BlobState.DOOMED
            and (now - row.touched_at).total_seconds() >= older_than_s
        ][:most]

    async def forget_blobs(self, gone: Sequence[Needed]) -> int:
        known = self._files.blobs
        there = [
            one.sha256
            for one in gone
            if (row := known.get(one.sha256)) is not None
            and row.state is BlobState.DOOMED
            and row.generation == one.generation
        ]
        for key in set(there):
            del known[key]
        return len(there)

    async def unused_bytes(self) -> tuple[int, int]:
        files = self._files
        needed = {b for key, one in files.manifests.items() if files.needs(key) for b in one.blobs}
        unused = [
            row.size
            for key, row in files.blobs.items()
            if row.state is not BlobState.MISSING and key not in needed
        ]
        return len(unused), sum(unused)

    async def bind_folder(self, folder: str) -> str:
        self._files.folder = self._files.folder or folder
        return self._files.folder
