"""Where a transfer's bytes come from and go to: files of this machine, hashed on the way.

Large pieces are read, hashed and written in threads, so that a slow disk stops no event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

from longshore.errors import Damaged, Unavailable
from longshore.files.copying import WRITE_BYTES
from longshore.files.places import disk_errors

CHUNK_BYTES: Final = 1024 * 1024
INLINE_BYTES: Final = 64 * 1024
"""So few bytes are written at once, without a thread."""


class Sink:
    """A file that a download grows in. `descriptor` stands for it, open for reading and writing."""

    def __init__(
        self,
        descriptor: int,
        sha256: bytes,
        size: int | None,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._descriptor = descriptor
        self._sha256 = sha256
        self._size = size
        self._on_bytes = on_bytes
        self._made = hashlib.sha256()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.offset = 0
        """How many bytes are there."""

    async def resume(self) -> None:
        """Hashes what an earlier download left, and goes on behind it."""
        await asyncio.to_thread(self._resume)

    def _resume(self) -> None:
        with disk_errors("the download cannot be read"):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            while chunk := os.read(self._descriptor, CHUNK_BYTES):
                self._made.update(chunk)
                self.offset += len(chunk)
        self._on_bytes(self.offset)
        if self._size is not None and self.offset > self._size:
            self._empty()

    async def restart(self) -> None:
        """Forgets all that is there: the other side begins anew."""
        self._empty()

    def _empty(self) -> None:
        self._on_bytes(-self.offset)
        self._made = hashlib.sha256()
        self._held, self._held_bytes, self.offset = [], 0, 0
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)

    async def write(self, chunk: bytes) -> None:
        """Adds bytes; they are written when there are many, or by `finish`."""
        self.offset += len(chunk)
        self._on_bytes(len(chunk))
        if self._size is not None and self.offset > self._size:
            self._empty()
            raise Unavailable(f"the blob {self._sha256.hex()} has more bytes than it should")
        self._held.append(chunk)
        self._held_bytes += len(chunk)
        if self._held_bytes >= CHUNK_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        held, count = b"".join(self._held), self._held_bytes
        self._held, self._held_bytes = [], 0
        if count <= INLINE_BYTES:
            self._write(held)
        else:
            await asyncio.to_thread(self._write, held)

    def _write(self, chunk: bytes) -> None:
        self._made.update(chunk)
        with disk_errors("the download cannot be written"):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(self._descriptor, rest[:WRITE_BYTES]) :]

    async def keep(self) -> None:
        """Writes what came, so that a later download can go on there."""
        if self._held:
            await self._flush()

    async def finish(self) -> None:
        """Checks that all is there and right; raises `Damaged`, or `Unavailable` if it is cut."""
        await self.keep()
        if self._size is not None and self.offset < self._size:
            raise Unavailable(f"the blob {self._sha256.hex()} broke off at {self.offset:,} bytes")
        if self._made.digest() != self._sha256:
            self._empty()
            raise Damaged(f"the blob {self._sha256.hex()} came with other bytes than its name says")


class Source:
    """A file that is uploaded: `open` opens it anew, for each time that it is read."""

    def __init__(
        self, open: Callable[[], int], on_bytes: Callable[[int], None] = lambda count: None
    ) -> None:
        self._open = open
        self._on_bytes = on_bytes
        self._told = 0

    async def small(self, start: int, size: int) -> bytes:
        """All of its bytes from there on, if they are few."""
        data = await asyncio.to_thread(self._read, start, size)
        self._tell(start + len(data))
        return data

    def _read(self, start: int, size: int) -> bytes:
        descriptor = self._open()
        try:
            return os.pread(descriptor, size, start)
        finally:
            os.close(descriptor)

    async def chunks(self, start: int) -> AsyncIterator[bytes]:
        """Its bytes from there on."""
        descriptor = await asyncio.to_thread(self._open)
        try:
            at = start
            while chunk := await asyncio.to_thread(os.pread, descriptor, CHUNK_BYTES, at):
                at += len(chunk)
                yield chunk
                self._tell(at)
        finally:
            os.close(descriptor)

    def _tell(self, at: int) -> None:
        """Counts bytes once, however often they are sent."""
        if at > self._told:
            self._on_bytes(at - self._told)
            self._told = at


class BytesSource(Source):
    """Bytes in memory that are uploaded, such as a manifest."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def small(self, start: int, size: int) -> bytes:
        """The bytes from there on."""
        return self._data[start : start + size]

    async def chunks(self, start: int) -> AsyncIterator[bytes]:
        """The bytes from there on."""
        for at in range(start, len(self._data), CHUNK_BYTES):
            yield self._data[at : at + CHUNK_BYTES]
