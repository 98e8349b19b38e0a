"""What clients and gateways ask of a dispatcher about filesets (see `service`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, assert_never
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.core.access import LOCAL, Asker
from longshore.core.checkpoints import check_checkpoint
from longshore.core.publishing import check_fileset, check_version, made_by_node
from longshore.dispatcher.tickets import Tickets
from longshore.errors import InvalidInput, NotFound
from longshore.model.checkpoint import Checkpoint
from longshore.model.fileset import (
    HASH_BYTES,
    Collected,
    FilesetVersion,
    Holder,
    PinVerdict,
)
from longshore.ports import Store
from longshore.wire import file_messages as f

COLLECTED: Final = 1_000
"""So much one request collects, of manifests and of blobs."""
LOOKS_PER_AGE: Final = 20
"""A log may be so much of `archive_logs_s` older than that before it is archived."""
MOST_PAUSE_S: Final = 3600.0


class FileService:
    """The use cases about filesets, over one store."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        utc: Callable[[], datetime],
        *,
        tickets: Tickets | None = None,
        asker: Asker = LOCAL,
    ) -> None:
        self.store = store
        self.settings = settings
        self._utc = utc
        self._tickets = tickets or Tickets(store, settings, utc)
        self._asker = asker

    def asked_by(self, asker: Asker, store: Store) -> FileService:
        """The same for one who asks, over a store that says so."""
        of = store, self.settings, self._utc
        return FileService(*of, tickets=self._tickets, asker=asker)

    # versions

    async def version(self, request: f.ShowVersion) -> FilesetVersion:
        """One version, or the newest that is not partial."""
        found = await self.store.fileset_version(request.fileset, request.version)
        if found is None:
            which = "" if request.version is None else f" {request.version}"
            raise NotFound(
                f"there is no version{which} of a fileset '{request.fileset}'; "
                "`longshore filesets ls` lists those there are"
            )
        return found

    async def collect(self, request: f.CollectFiles) -> Collected:
        """Collects a bounded part of what nothing needs; with `dry_run` it only counts."""
        if request.dry_run:
            return Collected(*await self.store.unused_bytes())
        age_s = self.settings.blob_unused_s
        manifests = await self.store.forget_manifests(age_s, COLLECTED)
        doomed = await self.store.doom_blobs(age_s, COLLECTED)
        total = sum(blob.size for blob in doomed)
        return Collected(len(doomed), total, manifests, is_over=not (doomed or manifests))

    # blobs, for gateways

    async def pin(self, request: f.PinFiles) -> f.Pinned:
        """Pins a manifest, and lists some of its blobs."""
        holder, most_bytes = await self._holder(request.ticket, request.upload)
        for blob in (request.manifest, *request.blobs):
            _check_hash(blob.sha256)
            if not 0 <= blob.size <= self.settings.max_fileset_bytes:
                return f.Pinned(PinVerdict.TOO_LARGE)
        found = await self.store.pin(holder, request.manifest, request.blobs, most_bytes)
        return f.Pinned(found[0], tuple(found[1]))

    async def note_stored(self, request: f.NoteStored) -> PinVerdict:
        """Notes that blobs are stored."""
        holder, _ = await self._holder(request.ticket, request.upload)
        return await self.store.note_stored(holder, request.stored)

    async def seal(self, request: f.SealManifest) -> PinVerdict:
        """Seals a manifest, if all of its blobs are stored."""
        holder, _ = await self._holder(request.ticket, request.upload)
        return await self.store.seal(holder, request.manifest, request.blobs)

    async def publish(self, request: f.PublishUpload) -> FilesetVersion | None:
        """Makes a version of what an upload has sealed."""
        check_version(request.made)
        return await self.store.publish(request.upload, request.made, self._asker.name)

    async def fix_input(self, request: f.FixInput) -> FilesetVersion | None:
        """Fixes which version an attempt reads."""
        ticket = await self._tickets.read(request.ticket)
        fileset, version = request.fileset, request.version
        made: FilesetVersion | None = None
        if request.node:
            found = await self.store.versions_of_node(ticket.job, request.node)
            made = made_by_node(request.node, fileset, found)
        elif request.maker is not None:
            made = await self.store.version_of_job(request.maker, fileset)
        if made is not None:
            fileset, version = made.fileset, made.version
        elif request.node or request.maker is not None:
            return None
        return await self.store.input_version(Holder(ticket.job, ticket.token), fileset, version)

    async def save_checkpoint(self, request: f.SaveCheckpoint) -> Checkpoint | None:
        """Keeps the checkpoint of an attempt."""
        check_checkpoint(request.made)
        ticket = await self._tickets.read(request.ticket)
        return await self.store.save_checkpoint(Holder(ticket.job, ticket.token), request.made)

    async def find_checkpoint(self, request: f.FindCheckpoint) -> Checkpoint | None:
        """The checkpoint that an attempt begins with."""
        ticket = await self._tickets.read(request.ticket)
        return await self.store.checkpoint(ticket.job)

    async def locate(self, request: f.LocateBlobs) -> tuple[int | None, ...]:
        """Under which generations blobs are stored."""
        reader = None
        if request.ticket:
            ticket = await self._tickets.read(request.ticket)
            reader = Holder(ticket.job, ticket.token)
        return tuple(await self.store.blob_generations(request.blobs, reader))

    async def old_logs(self, request: f.ListOldLogs) -> f.OldLogPage:
        """Which logs are to be archived; none if that is off."""
        age_s = self.settings.archive_logs_s
        if not age_s:
            return f.OldLogPage()
        pause_s = min(age_s / LOOKS_PER_AGE, MOST_PAUSE_S)
        found = await self.store.old_logs(age_s, request.after, max(1, request.most))
        return f.OldLogPage(found.logs, found.next, pause_s)

    async def _holder(self, ticket: str, upload: UUID | None) -> tuple[Holder, int]:
        """Who holds, and how many bytes it may list in a manifest."""
        if ticket:
            read = await self._tickets.read(ticket)
            return Holder(read.job, read.token), read.most_bytes
        if upload is None:
            raise InvalidInput("a pin needs the ticket of an attempt, or the id of an upload")
        return Holder(upload), self.settings.max_fileset_bytes


def _check_hash(sha256: bytes) -> None:
    if len(sha256) != HASH_BYTES:
        raise InvalidInput(f"a blob is named by {HASH_BYTES} bytes, its SHA-256")


async def perform_for_files(service: FileService, request: f.FileRequest | f.BlobRequest) -> object:
    """Does what a request about filesets asks for; answers with what OK carries."""
    store = service.store
    match request:
        case f.ListFilesets():
            return await store.filesets(request.after, max(0, request.most))
        case f.ListVersions():
            most = max(0, request.most)
            return await store.fileset_versions(request.fileset, request.before, most)
        case f.ShowVersion():
            return await service.version(request)
        case f.ShowVersionOfJob():
            return await store.version_of_job(request.job, request.fileset)
        case f.RemoveVersions():
            check_fileset(request.fileset)
            return await store.remove_versions(request.fileset, request.versions)
        case f.CollectFiles():
            return await service.collect(request)
        case f.PinFiles():
            return await service.pin(request)
        case f.NoteStored():
            return await service.note_stored(request)
        case f.SealManifest():
            return await service.seal(request)
        case f.PublishUpload():
            return await service.publish(request)
        case f.FixInput():
            return await service.fix_input(request)
        case f.SaveCheckpoint():
            return await service.save_checkpoint(request)
        case f.FindCheckpoint():
            return await service.find_checkpoint(request)
        case f.LocateBlobs():
            return await service.locate(request)
        case _:
            return await _perform_for_bytes(service, request)


async def _perform_for_bytes(
    service: FileService,
    request: f.ListDoomed
    | f.ForgetBlobs
    | f.BindFolder
    | f.ListOldLogs
    | f.NoteArchived
    | f.DropArchived,
) -> object:
    """What those ask who hold the bytes."""
    store = service.store
    match request:
        case f.ListDoomed():
            doomed_s = service.settings.blob_doomed_s
            return await store.doomed_blobs(doomed_s, max(0, request.most))
        case f.ForgetBlobs():
            return await store.forget_blobs(request.gone)
        case f.BindFolder():
            return await store.bind_folder(request.folder)
        case f.ListOldLogs():
            return await service.old_logs(request)
        case f.NoteArchived():
            return await store.note_archived(request.upload, request.archive, request.parts)
        case f.DropArchived():
            return await store.drop_archived(request.jobs)
        case _:
            assert_never(request)
