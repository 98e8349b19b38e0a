"""Blobs: bytes by their SHA-256, each stored once, hashed when they come and when they go.

A blob lies at `ab/cd/<sha256>.<generation>`. A blob that nothing needs is removed by its
generation, and one that comes back gets a new one: a slow removal never takes the new bytes.

An upload is a session file that grows. It may be cut off and go on later, also at another gateway
over the same folder: only one at a time writes to it (a lock), and it hashes what is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from longshore.errors import Damaged, DiskFull, InvalidInput, NotFound, UploadBusy
from longshore.files.copying import WRITE_BYTES
from longshore.files.places import CHUNK_BYTES, Place, disk_errors

_HEX: Final = 64
_SESSION: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def blob_name(sha256: bytes, generation: int) -> str:
    """Where a blob lies."""
    text = sha256.hex()
    return f"{text[:2]}/{text[2:4]}/{text}.{generation}"


def parse_sha256(text: str) -> bytes:
    """The hash in a text; raises `InvalidInput`."""
    if len(text) != _HEX or text.lower() != text:
        raise InvalidInput(f"{text[:80]!r} is no SHA-256; it has 64 digits, 0-9 and a-f")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no SHA-256; it has 64 digits, 0-9 and a-f") from None


class Blobs:
    """The blobs at a place. Calls block: they are made in threads."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def place(self) -> Place:
        """Where they lie."""
        return self._place

    # uploads

    def upload(self, holder: str, sha256: bytes, size: int, generation: int) -> Upload:
        """Begins an upload, or goes on with one; raises `UploadBusy` if another request does."""
        path = self._session(holder, sha256, generation)
        return Upload(self._place, path, sha256, size, generation)

    def offset(self, holder: str, sha256: bytes, generation: int) -> int:
        """How many bytes of an upload are there."""
        try:
            return self._session(holder, sha256, generation).stat().st_size
        except FileNotFoundError:
            return 0

    def _session(self, holder: str, sha256: bytes, generation: int) -> Path:
        return self._place.staging / f"{sha256.hex()}.{generation}.{holder}"

    def drop_uploads(self, older_s: float, now: Callable[[], float] = time.time) -> int:
        """Removes what is left of uploads that nobody went on with; answers how many."""
        count = 0
        for path in self._place.staging.iterdir():
            try:
                if now() - path.stat().st_mtime > older_s:
                    path.unlink()
                    count += 1
            except FileNotFoundError:
                continue
        return count

    def store_many(self, holder: str, blobs: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Stores small blobs whose hashes were checked: hash, generation and bytes of each."""
        staged = [
            (self._session(f"{holder}.pack", sha256, generation), blob_name(sha256, generation))
            for sha256, generation, _ in blobs
        ]
        try:
            with disk_errors("the blobs cannot be written"):
                for (path, _), (*_, data) in zip(staged, blobs, strict=True):
                    path.write_bytes(data)
            self._place.adopt_many(staged)
        except DiskFull:
            for path, _ in staged:
                path.unlink(missing_ok=True)
            raise

    # reading

    def size(self, sha256: bytes, generation: int) -> int | None:
        """How large a blob is; None if it is not there."""
        return self._place.size(blob_name(sha256, generation))

    def read(
        self, sha256: bytes, generation: int, size: int, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """The bytes of a blob, or a part. One that is read whole is checked; raises `Damaged`.

        Its last chunk comes only if all of them are right.
        """
        file = self._place.open(blob_name(sha256, generation))
        try:
            yield from _checked(file, sha256, size, start, size if stop is None else stop)
        finally:
            file.close()

    def whole(self, sha256: bytes, generation: int, size: int) -> bytes:
        """All bytes of a small blob."""
        return b"".join(self.read(sha256, generation, size))

    def remove(self, sha256: bytes, generation: int) -> None:
        """Removes the bytes of one generation of a blob."""
        self._place.remove(blob_name(sha256, generation))


def _checked(file: IO[bytes], sha256: bytes, size: int, start: int, stop: int) -> Iterator[bytes]:
    made = hashlib.sha256()
    held = b""
    file.seek(start)
    left = stop - start
    while left > 0:
        with disk_errors(f"the blob {sha256.hex()} cannot be read"):
            chunk = file.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise Damaged(f"the blob {sha256.hex()} is too short; restore it from a backup")
        made.update(chunk)
        left -= len(chunk)
        if held:
            yield held
        held = chunk
    if (start, stop) == (0, size) and made.digest() != sha256:
        raise Damaged(
            f"the blob {sha256.hex()} has other bytes than it had; restore it from a backup"
        )
    if held:
        yield held


class Upload:
    """One request's part of an upload. Who writes it is alone with it until it is closed."""

    def __init__(self, place: Place, path: Path, sha256: bytes, size: int, generation: int) -> None:
        self._place = place
        self._path = path
        self._sha256 = sha256
        self._size = size
        self._generation = generation
        self._made = hashlib.sha256()
        self._file = self._locked()
        try:
            self.offset = self._hash_what_is_there()
            if self.offset > size:
                self.restart()
        except BaseException:
            self._file.close()
            raise

    def _locked(self) -> IO[bytes]:
        with disk_errors("the upload cannot be written"):
            while True:
                file = os.fdopen(os.open(self._path, _SESSION, 0o600), "r+b", buffering=0)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.close()
                    raise UploadBusy(
                        f"another request uploads {self._sha256.hex()} now; ask how far it came"
                    ) from None
                if _is_at(file, self._path):
                    return file
                # Another request has finished it meanwhile: this file is a stored blob now.
                file.close()

    def _hash_what_is_there(self) -> int:
        count = 0
        with disk_errors("the upload cannot be read"):
            while chunk := self._file.read(CHUNK_BYTES):
                self._made.update(chunk)
                count += len(chunk)
        return count

    def write(self, chunk: bytes) -> None:
        """Adds bytes at the end; raises `InvalidInput` if they are too many.

        If the disk is full, it is given up: its bytes would take the room that others need.
        """
        if self.offset + len(chunk) > self._size:
            raise InvalidInput(f"more bytes came than the {self._size:,} of the blob")
        try:
            with disk_errors("the upload cannot be written"):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[self._file.write(rest[:WRITE_BYTES]) :]
        except DiskFull:
            self._path.unlink(missing_ok=True)
            raise
        self._made.update(chunk)
        self.offset += len(chunk)

    def restart(self) -> None:
        """Forgets what is there."""
        with disk_errors("the upload cannot be written"):
            self._file.truncate(0)
            self._file.seek(0)
        self._made = hashlib.sha256()
        self.offset = 0

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are there."""
        return self.offset == self._size

    def finish(self) -> None:
        """Makes a blob of it, durable on return; raises `InvalidInput` if the hash is another."""
        if self._made.digest() != self._sha256:
            self._path.unlink(missing_ok=True)
            raise InvalidInput(
                f"the bytes are not those of {self._sha256.hex()}: they changed, or broke on the "
                "way; send them again"
            )
        if not self._path.exists():
            raise NotFound("the upload was dropped meanwhile; begin it again")
        self._place.adopt(self._path, blob_name(self._sha256, self._generation))

    def close(self) -> None:
        """Lets others go on with it. What was written stays."""
        self._file.close()


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
