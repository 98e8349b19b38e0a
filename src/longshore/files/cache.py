"""A worker's cache of blobs: a folder of its own, bounded in bytes, shared by processes.

Blobs lie at `ab/<sha256>`, read-only. The least recently used go first; an open file outlives its
name, so a blob may go while somebody copies it. `total` counts the bytes, under a lock: a process
adds before it stores, so that a crash makes the count too high, never too low. When room is short,
the folder is counted anew.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from longshore.errors import ConfigError, LongshoreError
from longshore.files.places import disk_errors

LOW_SHARE: Final = 0.9
"""A cache that is full is emptied to this share of its bound, so that this happens seldom."""
_MARK: Final = "longshore-cache"
_DIGITS: Final = 20


class _Kept(NamedTuple):
    used_ns: int
    size: int
    path: Path


class BlobCache:
    """Blobs on this machine. Calls block for the time of a few system calls, or of a count."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder.absolute()
        self.most_bytes = most_bytes
        self._parts = self._folder / "parts"
        self._numbers = itertools.count()
        _claim(self._folder)
        with disk_errors(f"the cache {self._folder} cannot be made"):
            self._parts.mkdir(exist_ok=True, mode=0o700)

    def open(self, sha256: bytes) -> int | None:
        """A descriptor of a blob, which counts as used now; None if it is not here."""
        path = self._path(sha256)
        try:
            found = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with suppress(OSError):
            os.utime(path, ns=(time.time_ns(), os.fstat(found).st_mtime_ns))
        return found

    def has(self, sha256: bytes) -> bool:
        """Whether a blob is here."""
        return self._path(sha256).exists()

    def part(self, sha256: bytes) -> Path:
        """The file in which a download of a blob grows."""
        return self._parts / sha256.hex()

    def fits(self, size: int) -> bool:
        """Whether a blob of this size may be kept at all."""
        return size <= self.most_bytes

    def adopt(self, part: Path, sha256: bytes) -> None:
        """Keeps a downloaded file, which is whole and checked, as a blob; makes room for it."""
        with disk_errors(f"the cache {self._folder} cannot be written"):
            part.chmod(0o400)
        self._adopt(part, sha256)

    def _adopt(self, part: Path, sha256: bytes) -> None:
        path = self._path(sha256)
        with disk_errors(f"the cache {self._folder} cannot be written"):
            self._make_room(part.stat().st_size)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            part.rename(path)

    def keep(self, sha256: bytes, data: bytes) -> None:
        """Keeps a small blob, whose hash was checked."""
        part = self._parts / f"{sha256.hex()}.{os.getpid()}.{next(self._numbers)}"
        with disk_errors(f"the cache {self._folder} cannot be written"):
            part.write_bytes(data)
        self.adopt(part, sha256)

    def link(self, sha256: bytes, folder: int, name: str) -> None:
        """Keeps a file of an open folder, which is about to be removed there, if that is cheap.

        Who may still write to it harms nobody: a blob is checked whenever it is copied. Its mode
        stays, because the file may be an output once more.
        """
        part = self._parts / f"{sha256.hex()}.{os.getpid()}.{next(self._numbers)}"
        with suppress(OSError, LongshoreError):
            os.link(name, part, src_dir_fd=folder, follow_symlinks=False)
            try:
                self._adopt(part, sha256)
            finally:
                part.unlink(missing_ok=True)

    def drop(self, sha256: bytes) -> None:
        """Removes a blob, if it is here: its bytes are not what they should be."""
        with self._locked() as total:
            path = self._path(sha256)
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                path.unlink()
                total.write(max(total.read() - size, 0))

    def _path(self, sha256: bytes) -> Path:
        text = sha256.hex()
        return self._folder / text[:2] / text

    def _make_room(self, size: int) -> None:
        with self._locked() as total:
            known = total.read()
            if known < 0 or known + size > self.most_bytes:
                known = self._evict(size)
            total.write(known + size)

    def _evict(self, size: int) -> int:
        """Removes what was used least recently until `size` fits; answers what stays."""
        kept = sorted(self._blobs())
        there = sum(one.size for one in kept)
        if there + size <= self.most_bytes:
            return there
        allowed = max(int(self.most_bytes * LOW_SHARE) - size, 0)
        for one in kept:
            if there <= allowed:
                break
            with suppress(FileNotFoundError):
                one.path.unlink()
            there -= one.size
        return there

    def _blobs(self) -> Iterator[_Kept]:
        for folder in self._folder.iterdir():
            if len(folder.name) != 2 or not folder.is_dir():
                continue
            for path in folder.iterdir():
                with suppress(FileNotFoundError):
                    facts = path.stat()
                    yield _Kept(facts.st_atime_ns, facts.st_size, path)

    @contextmanager
    def _locked(self) -> Iterator[_Total]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._folder / "total", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield _Total(descriptor)
        finally:
            os.close(descriptor)


class _Total:
    """How many bytes a cache holds, in an open file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> int:
        """The count; -1 if nobody knows it."""
        text = os.pread(self._descriptor, _DIGITS, 0)
        return int(text) if len(text) == _DIGITS and text.isdigit() else -1

    def write(self, count: int) -> None:
        """Changes the count."""
        os.pwrite(self._descriptor, b"%0*d" % (_DIGITS, count), 0)


def _claim(folder: Path) -> None:
    """Makes the folder; raises if it holds something else: what it holds will be removed."""
    with disk_errors(f"the cache {folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark = folder / _MARK
        if not mark.exists():
            if any(one.name != _MARK for one in folder.iterdir()) and not mark.exists():
                raise ConfigError(
                    f"{folder} is no cache of Longshore and not empty; name a folder of its own"
                )
            mark.touch(mode=0o600)
