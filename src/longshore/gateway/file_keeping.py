"""The bytes of filesets, as a gateway keeps them.

Dispatchers know who may store what. A gateway asks them, and holds nothing that it could not lose:
what it remembers (manifests, and which blobs an upload may bring) it can read or ask for again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from msgspec import Struct

from longshore.client.file_requests import FileRequests
from longshore.config import FileSettings
from longshore.errors import NotFound, TooLarge
from longshore.files.blobs import Blobs
from longshore.files.place import checked
from longshore.model.fileset import (
    BlobRef,
    Manifest,
    Needed,
    decode_manifest,
)
from longshore.wire.file_messages import MAX_PINNED

T = TypeVar("T")

THREADS: Final = 16
KEPT_ENTRIES: Final = 400_000
"""So many entries of manifests are remembered in all, and at least one manifest."""
DECODED_AT_ONCE: Final = 2
"""A manifest takes much memory while it is decoded."""
KEPT_GRANTS: Final = 200_000
ENTRY_BYTES: Final = 256
"""How long an entry of a manifest may be, on average."""
PORTION: Final = MAX_PINNED
"""How many files of a manifest one request looks at."""
_END: Final = b""


class Grant(Struct, frozen=True):
    """A blob that somebody may upload."""

    size: int
    generation: int


class FileKeeping:
    """Blobs, and the threads in which they are read and written."""

    def __init__(self, blobs: Blobs, settings: FileSettings) -> None:
        self.blobs = blobs
        self.settings = settings
        self.why_not = ""
        """Why it serves no files, if it does not."""
        self._threads = ThreadPoolExecutor(THREADS, "longshore-files")
        self._manifests: OrderedDict[bytes, Manifest] = OrderedDict()
        self._sizes: tuple[Manifest | None, Mapping[bytes, int]] = None, {}
        self._decoding = asyncio.Semaphore(DECODED_AT_ONCE)
        self._grants: OrderedDict[tuple[str, bytes], Grant] = OrderedDict()

    def close(self) -> None:
        """Lets the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def in_thread(self, work: Callable[..., T], *args: object) -> T:
        """What a call that blocks answers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def chunks(self, reading: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks of a blob, each read in a thread."""
        while chunk := await self.in_thread(next, reading, _END):
            yield chunk

    # manifests

    async def manifest(self, ref: BlobRef, generation: int) -> Manifest:
        """A stored manifest, checked: its paths, how many files it has, and how large they are."""
        known = self._manifests.get(ref.sha256)
        if known is not None:
            self._manifests.move_to_end(ref.sha256)
            return known
        self.check_size(ref.size)
        async with self._decoding:
            data = await self.in_thread(self.blobs.whole, ref.sha256, generation, ref.size)
            made = await self.in_thread(self._decoded, data)
        self._manifests[ref.sha256] = made
        self._forget_manifests()
        return made

    async def sizes(self, manifest: Manifest) -> Mapping[bytes, int]:
        """How large each blob of a manifest is. The last one is kept: many uploads ask for it."""
        last, sizes = self._sizes
        if last is not manifest:
            sizes = await self.in_thread(_sizes_of, manifest)
            self._sizes = manifest, sizes
        return sizes

    def check_size(self, size: int) -> None:
        """Raises if no manifest that is allowed is so large."""
        most = self.settings.max_fileset_files * ENTRY_BYTES + 64 * 1024
        if size > most:
            raise TooLarge(
                f"the list of files has {size:,} bytes; it may have {most:,} "
                f"({ENTRY_BYTES} for each of max_fileset_files)"
            )

    def _decoded(self, data: bytes) -> Manifest:
        made = checked(decode_manifest(data))
        settings = self.settings
        if len(made.files) > settings.max_fileset_files:
            raise TooLarge(
                f"there are {len(made.files):,} files; a version may have "
                f"{settings.max_fileset_files:,} (max_fileset_files)"
            )
        if made.total_bytes > settings.max_fileset_bytes:
            raise TooLarge(
                f"the files have {made.total_bytes:,} bytes; those of a version may have "
                f"{settings.max_fileset_bytes:,} (max_fileset_bytes)"
            )
        return made

    def _forget_manifests(self) -> None:
        held = sum(len(one.files) for one in self._manifests.values())
        while held > KEPT_ENTRIES and len(self._manifests) > 1:
            _, gone = self._manifests.popitem(last=False)
            held -= len(gone.files)

    # who may upload what

    def grant(self, holder: str, sha256: bytes, grant: Grant) -> None:
        """Remembers that a dispatcher wants this blob from this holder."""
        self._grants[holder, sha256] = grant
        if len(self._grants) > KEPT_GRANTS:
            self._grants.popitem(last=False)

    def granted(self, holder: str, sha256: bytes) -> Grant | None:
        """Which blob a holder may upload; None if this gateway does not know."""
        return self._grants.get((holder, sha256))

    def used(self, holder: str, sha256: bytes) -> None:
        """The blob is stored: nobody needs to upload it."""
        self._grants.pop((holder, sha256), None)

    # what is to go

    async def remove_doomed(self, requests: FileRequests) -> int:
        """Removes the bytes of blobs that are doomed for long enough; answers how many."""
        doomed = await requests.doomed()
        for blob in doomed:
            await self.in_thread(self.blobs.remove, blob.sha256, blob.generation)
        if doomed:
            await requests.forget([Needed(one.sha256, one.generation) for one in doomed])
        return len(doomed)


def _sizes_of(manifest: Manifest) -> Mapping[bytes, int]:
    return {file.sha256: file.size for file in manifest.files}


def portion_of(manifest: Manifest, after: int) -> tuple[list[BlobRef], int | None]:
    """The blobs of some files of a manifest, each once, and where the next portion begins."""
    some = manifest.files[after : after + PORTION]
    refs = {file.sha256: BlobRef(file.sha256, file.size) for file in some}
    following = after + PORTION
    return list(refs.values()), following if following < len(manifest.files) else None


def find_file(manifest: Manifest, path: str, what: str) -> BlobRef:
    """The blob of the file at a path; raises `NotFound`."""
    for file in manifest.files:
        if file.path == path:
            return BlobRef(file.sha256, file.size)
    raise NotFound(f"{what} has no file {path!r}")
