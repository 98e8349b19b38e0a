"""Brings a version's files into a folder: from the cache, or from a gateway through it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from longshore.core.file_paths import shown
from longshore.errors import Damaged, DiskFull, InvalidInput, NotFound, TooLarge
from longshore.files.cache import BlobCache
from longshore.files.collect import SEEN_NAMES, Bounds
from longshore.files.packs import PACKED_BYTES, in_packs
from longshore.files.patterns import Patterns
from longshore.files.place import by_blob, checked, put_blob
from longshore.files.places import disk_errors
from longshore.files.streams import Sink
from longshore.files.threads import IsStopped, in_thread
from longshore.files.transfer import FileClient
from longshore.model.fileset import FileEntry, Manifest, decode_manifest
from longshore.ports.files import OnProgress

T = TypeVar("T")

COPIED_AT_ONCE: Final = len(os.sched_getaffinity(0))
"""More would only wait for each other: copies take a processor, and the lock of a folder."""
WAIT_S: Final = 0.05
"""How often a process looks whether another one has downloaded what both need."""
MAX_ENTRY_BYTES: Final = 2_048


class Progress:
    """Counts bytes of a transfer, and tells of them."""

    def __init__(self, total: int, on_progress: OnProgress) -> None:
        self.total = total
        self._done = 0
        self._on_progress = on_progress

    def add(self, count: int) -> None:
        """So many more bytes are there, or fewer if some were thrown away."""
        self._done += count
        self._on_progress(self._done, self.total)


class Pulling:
    """Pulls through one cache and one client, several blobs at once."""

    def __init__(
        self, client: FileClient, cache: BlobCache, slots: int, near: Path | None = None
    ) -> None:
        self._client = client
        self._cache = cache
        self._slots = slots
        self._copying = asyncio.Semaphore(COPIED_AT_ONCE)
        self._near = near
        """The folder of a gateway on this machine: what lies there needs no way over HTTP."""

    async def manifest(self, sha256: bytes, bounds: Bounds) -> Manifest:
        """The manifest of a version, checked; raises `InvalidInput` if it is none."""
        descriptor = await self._opened(sha256, None)
        try:
            size = os.fstat(descriptor).st_size
            if size > bounds.most_files * MAX_ENTRY_BYTES:
                raise TooLarge(f"the manifest has {size:,} bytes; raise max_fileset_files")
            data = await asyncio.to_thread(os.pread, descriptor, size, 0)
        finally:
            os.close(descriptor)
        try:
            return await asyncio.to_thread(lambda: checked(decode_manifest(data)))
        except InvalidInput as error:
            raise InvalidInput(f"the blob {sha256.hex()}: {error}") from None

    async def put(self, folder: int, files: Sequence[FileEntry], on_progress: OnProgress) -> None:
        """Puts files below an open folder."""
        progress = Progress(sum(file.size for file in files), on_progress)
        _check_room(folder, progress.total)
        progress.add(0)

        await self._fetch_small(files)
        missing = await self._put_at_hand(folder, files, progress)

        async def one(same: list[FileEntry]) -> None:
            await self._put_same(folder, same, progress)

        await side_by_side(missing, one, self._slots)

    async def _put_at_hand(
        self, folder: int, files: Iterable[FileEntry], progress: Progress
    ) -> list[list[FileEntry]]:
        """Puts the files whose bytes are on this machine, and answers the others.

        Many with each call of a thread: to hand over one of a megabyte takes a fifth of the time
        that its copy does.
        """
        missing: list[list[FileEntry]] = []
        sized = ((same, first.size * len(same)) for first, same in by_blob(files))

        async def some(pack: list[list[FileEntry]]) -> None:
            put = partial(self._put_some_at_hand, folder, pack, progress)
            missing.extend(await in_thread(put))

        await side_by_side(in_packs(sized), some, COPIED_AT_ONCE)
        return missing

    def _put_some_at_hand(
        self,
        folder: int,
        pack: list[list[FileEntry]],
        progress: Progress,
        is_stopped: IsStopped,
    ) -> list[list[FileEntry]]:
        missing = []
        for same in pack:
            source = self._at_hand(same[0].sha256)
            try:
                if source is not None:
                    _put_all(folder, same, source, progress.add, is_stopped)
            except Damaged:
                self._cache.drop(same[0].sha256)
            finally:
                if source is not None:
                    os.close(source)
            if same:
                missing.append(same)
        return missing

    def _at_hand(self, sha256: bytes) -> int | None:
        """A descriptor of a blob that is in the cache, or nearby."""
        found = self._cache.open(sha256)
        return _opened_near(self._near, sha256) if found is None else found

    async def _fetch_small(self, files: Iterable[FileEntry]) -> None:
        """Brings small blobs that are not cached into the cache, many with each request."""
        small = {
            file.sha256: file.size
            for file in files
            if file.size <= PACKED_BYTES and not self._is_here(file.sha256)
        }

        async def together(pack: list[bytes]) -> None:
            await self._client.fetch_pack(pack, self._cache.keep)

        if sum(small.values()) <= self._cache.most_bytes // 2:
            await side_by_side(in_packs(small.items()), together, self._slots)

    def _is_here(self, sha256: bytes) -> bool:
        return self._cache.has(sha256) or near_blob(self._near, sha256) is not None

    async def _put_same(self, folder: int, same: list[FileEntry], progress: Progress) -> None:
        """Puts files that have the same bytes. A cached blob that is damaged is fetched anew."""
        first = same[0]
        for is_last in (False, True):
            source = await self._opened(first.sha256, first.size)
            try:
                async with self._copying:
                    await in_thread(partial(_put_all, folder, same, source, progress.add))
                return
            except Damaged:
                self._cache.drop(first.sha256)
                if is_last:
                    raise
            finally:
                os.close(source)

    async def _opened(self, sha256: bytes, size: int | None) -> int:
        """A descriptor of a blob, from the cache, or fetched into it."""
        while True:
            found = self._cache.open(sha256)
            if found is not None:
                return found
            async with self._part(sha256) as part:
                if part is None:
                    await asyncio.sleep(WAIT_S)
                    continue
                return await self._fetched(sha256, size, part)

    async def _fetched(self, sha256: bytes, size: int | None, part: int) -> int:
        sink = Sink(part, sha256, size)
        await sink.resume()
        await self._client.fetch(sha256, sink)
        path = self._cache.part(sha256)
        # Opened by its name, so that a reader has an offset of its own.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self._cache.fits(sink.offset):
                await asyncio.to_thread(self._cache.adopt, path, sha256)
            else:
                path.unlink()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @asynccontextmanager
    async def _part(self, sha256: bytes) -> AsyncIterator[int | None]:
        """The file that a download grows in; None if another process, or task, is at it."""
        path = self._cache.part(sha256)
        with disk_errors("the cache cannot be written"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield descriptor if _is_ours(descriptor, path) else None
        finally:
            os.close(descriptor)


def near_blob(folder: Path | None, sha256: bytes) -> Path | None:
    """The file of a blob in the folder of a gateway; who reads it checks the bytes."""
    if folder is None:
        return None
    name = sha256.hex()
    place = folder / name[:2] / name[2:4]
    try:
        found = [one for one in os.listdir(place) if one.startswith(f"{name}.")]
    except OSError:
        return None
    return place / max(found, key=lambda one: int(one.rpartition(".")[2])) if found else None


def _opened_near(folder: Path | None, sha256: bytes) -> int | None:
    path = near_blob(folder, sha256)
    try:
        return None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None


def _is_ours(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who had it before may have made a blob of it: then the name is gone, or another's.
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _put_all(
    folder: int,
    left: list[FileEntry],
    source: int,
    on_bytes: Callable[[int], None],
    is_stopped: IsStopped,
) -> None:
    """Puts files that have the same bytes; those that are put leave the list."""
    while left:
        with disk_errors(f"{shown(left[0].path)} cannot be written"):
            put_blob(folder, left[0], source, is_stopped)
        on_bytes(left.pop(0).size)


def _check_room(folder: int, needed: int) -> None:
    """Raises before anything is brought that would not fit."""
    facts = os.fstatvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    if needed > free:
        raise DiskFull(f"the files have {needed:,} bytes, and the disk has room for {free:,}")


def chosen(manifest: Manifest, patterns: Patterns, what: str) -> list[FileEntry]:
    """The files of a manifest that patterns mean; raises `NotFound` for one that means none."""
    found = [file for file in manifest.files if patterns.match(file.path)]
    if not patterns.unmet:
        return found
    names = ", ".join(shown(file.path) for file in manifest.files[:SEEN_NAMES])
    more = (
        f" and {len(manifest.files) - SEEN_NAMES:,} more"
        if len(manifest.files) > SEEN_NAMES
        else ""
    )
    missing = ", ".join(shown(text) for text in patterns.unmet)
    raise NotFound(f"{what}: nothing matches {missing}; there are {names}{more}")


async def side_by_side(items: Iterable[T], work: Callable[[T], Awaitable[None]], most: int) -> None:
    """Does something with each item, so many at once; the first error ends all."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(max(most, 1)):
            group.create_task(worker())
