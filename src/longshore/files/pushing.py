"""Stores the files of a folder at a gateway: only those that are not stored yet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.core.file_paths import check_path
from longshore.files.beneath import READ, open_beneath
from longshore.files.documents import NeededBlob, PinRequest, Sealed, SealRequest
from longshore.files.packs import PACKED_BYTES, in_packs
from longshore.files.pulling import Progress, side_by_side
from longshore.files.streams import BytesSource, Source
from longshore.files.transfer import FileClient, UploadOf
from longshore.model.fileset import FileEntry, Manifest, encode_manifest
from longshore.ports.files import OnProgress

PACKS_AT_ONCE: Final = 2
"""How many packs a push holds in memory."""


class Pushed(Struct, frozen=True):
    """A manifest that is stored and sealed, and how many bytes had to be sent for it."""

    manifest: bytes
    size: int
    sealed: Sealed
    sent_bytes: int


class Pushing:
    """Pushes through one client, several blobs at once. `upload` is None for an attempt."""

    def __init__(self, client: FileClient, slots: int, upload: UUID | None = None) -> None:
        self._client = client
        self._slots = slots
        self._upload = upload

    async def push(self, folder: int, manifest: Manifest, on_progress: OnProgress) -> Pushed:
        """Stores the files of a manifest, which lie below an open folder, and seals it."""
        data = encode_manifest(manifest)
        digest = sha256(data)
        of = UploadOf(digest.hexdigest(), len(data), self._upload)
        progress = Progress(manifest.total_bytes, on_progress)
        progress.add(0)
        sent = await self._store(folder, manifest, data, of, progress)
        sealed = await self._client.seal(SealRequest(of.manifest, of.size, self._upload))
        return Pushed(digest.digest(), len(data), sealed, sent)

    async def _store(
        self, folder: int, manifest: Manifest, data: bytes, of: UploadOf, progress: Progress
    ) -> int:
        """Stores the manifest, and then its files portion by portion; answers how many bytes."""
        after: int | None = 0
        sent = 0
        while after is not None:
            wanted = PinRequest(of.manifest, of.size, after, self._upload)
            answer = await self._client.pin(wanted)
            if answer.needed and answer.needed[0].sha256 == of.manifest:
                await self._client.store(answer.needed[0], BytesSource(data), of)
                sent += len(data)
            else:
                files = manifest.files[after : answer.next]
                sent += await self._store_portion(folder, files, answer.needed, of, progress)
            after = answer.next
        return sent

    async def _store_portion(
        self,
        folder: int,
        files: Sequence[FileEntry],
        needed: Sequence[NeededBlob],
        of: UploadOf,
        progress: Progress,
    ) -> int:
        wanted = {blob.sha256 for blob in needed}
        sources: dict[str, FileEntry] = {}
        for file in files:
            name = file.sha256.hex()
            if name in wanted and name not in sources:
                sources[name] = file
            else:
                progress.add(file.size)

        def source(blob: NeededBlob) -> Source:
            parts = check_path(sources[blob.sha256].path)
            return Source(partial(open_beneath, folder, parts, READ), progress.add)

        async def one(blob: NeededBlob) -> None:
            await self._client.store(blob, source(blob), of)

        async def together(pack: list[NeededBlob]) -> None:
            data = [
                (bytes.fromhex(blob.sha256), await source(blob).small(0, blob.size))
                for blob in pack
            ]
            await self._client.store_pack(data, of)

        small = [(blob, blob.size) for blob in needed if blob.size <= PACKED_BYTES]
        await side_by_side(in_packs(small), together, min(self._slots, PACKS_AT_ONCE))
        await side_by_side((b for b in needed if b.size > PACKED_BYTES), one, self._slots)
        return sum(blob.size for blob in needed)
