"""Where blobs lie: a folder of this machine, or anything that fsspec reaches (`s3://bucket/way`).

A place holds whole blobs under names. It takes one from a file that was written and hashed
beforehand, so that a name never leads to half a blob. What fsspec and the system raise becomes
`Unavailable`, or `DiskFull`, here.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Final, Protocol

import fsspec

from longshore.errors import ConfigError, DiskFull, LongshoreError, NotFound, Unavailable

CHUNK_BYTES: Final = 512 * 1024
_ID: Final = "longshore-files"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Place(Protocol):
    """Whole blobs under names. Calls block: they are made in threads."""

    staging: Path
    """A folder of this machine where uploads grow."""

    def adopt(self, staged: Path, name: str) -> None:
        """Makes a staged file the blob of this name; the file is gone then. Durable on return."""

    def adopt_many(self, staged: Sequence[tuple[Path, str]]) -> None:
        """Makes staged files blobs, together: cheaper than one by one if they are small."""

    def open(self, name: str) -> IO[bytes]:
        """Reads a blob, at any offset; raises `NotFound` if there is none."""

    def size(self, name: str) -> int | None:
        """How large a blob is; None if there is none."""

    def remove(self, name: str) -> None:
        """Removes a blob, if it is there."""

    def id(self, proposed: str) -> str:
        """What tells this place from others: the first that asks writes its proposal down."""


def place_of(url: str, staging: Path | None = None) -> Place:
    """The place that a setting names: a folder, or a URL that fsspec knows."""
    if "://" not in url:
        return FolderPlace(Path(url))
    if url.startswith("file://"):
        return FolderPlace(Path(url.removeprefix("file://")))
    if staging is None:
        raise ConfigError(f"uploads to {url} need a folder of this machine, where they grow")
    return RemotePlace(url, staging)


class FolderPlace:
    """Blobs in a folder of this machine. Uploads grow beside them, and are renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.staging = self.folder / "uploads"
        with disk_errors(f"the folder {self.folder} cannot be made"):
            self.staging.mkdir(parents=True, exist_ok=True, mode=0o700)

    def adopt(self, staged: Path, name: str) -> None:
        """Renames a staged file; its bytes and its name are on the disk on return."""
        target = self.folder / name
        with disk_errors(f"the blob {name} cannot be stored"):
            _sync(staged, os.O_RDONLY)
            for above in (target.parent.parent, target.parent):
                if not above.is_dir():
                    above.mkdir(exist_ok=True, mode=0o700)
                    _sync(above.parent, os.O_DIRECTORY)
            staged.chmod(0o444)
            staged.rename(target)
            _sync(target.parent, os.O_DIRECTORY)

    def adopt_many(self, staged: Sequence[tuple[Path, str]]) -> None:
        """Renames staged files; the whole file system is synced before, and after."""
        with disk_errors("the blobs cannot be stored"):
            _sync_all(self.folder)
            for path, name in staged:
                target = self.folder / name
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.chmod(0o444)
                path.rename(target)
            _sync_all(self.folder)

    def open(self, name: str) -> IO[bytes]:
        """Opens the file of a blob."""
        with disk_errors(f"the blob {name} cannot be read"):
            return (self.folder / name).open("rb", buffering=0)

    def size(self, name: str) -> int | None:
        """The size of the file of a blob."""
        with (
            suppress(FileNotFoundError),
            disk_errors(f"the blob {name} cannot be read", missing=True),
        ):
            return (self.folder / name).stat().st_size
        return None

    def remove(self, name: str) -> None:
        """Unlinks the file of a blob."""
        with disk_errors(f"the blob {name} cannot be removed"):
            (self.folder / name).unlink(missing_ok=True)

    def id(self, proposed: str) -> str:
        """The word in the folder's own file, which is written at once whole."""
        known = self.folder / _ID
        with disk_errors(f"the folder {self.folder} cannot be written"):
            if not known.exists():
                draft = self.staging / f"{_ID}.{os.getpid()}"
                draft.write_text(proposed + "\n")
                _sync(draft, os.O_RDONLY)
                with suppress(FileExistsError):
                    os.link(draft, known)
                draft.unlink()
                _sync(self.folder, os.O_DIRECTORY)
            return known.read_text().strip()


class RemotePlace:
    """Blobs behind an fsspec file system, which stores a whole file or nothing."""

    def __init__(self, url: str, staging: Path) -> None:
        self._url = url
        self.staging = staging.absolute()
        try:
            self._fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise ConfigError(
                f"files = {url!r}: {error}; name a folder, or install what fsspec needs for it "
                "(s3:// needs `pip install longshore[s3]`)"
            ) from None
        self._root = root.rstrip("/")
        with disk_errors(f"the folder {self.staging} cannot be made"):
            self.staging.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def adopt(self, staged: Path, name: str) -> None:
        """Uploads a staged file, and then removes it here."""
        with self._told(f"the blob {name} cannot be stored"):
            self._fs.put_file(str(staged), self._path(name))
        staged.unlink(missing_ok=True)

    def adopt_many(self, staged: Sequence[tuple[Path, str]]) -> None:
        """Uploads staged files side by side, and then removes them here."""
        with self._told("the blobs cannot be stored"):
            self._fs.put([str(path) for path, _ in staged], [self._path(n) for _, n in staged])
        for path, _ in staged:
            path.unlink(missing_ok=True)

    def open(self, name: str) -> IO[bytes]:
        """Opens the object of a blob."""
        with self._told(f"the blob {name} cannot be read"):
            found: IO[bytes] = self._fs.open(
                self._path(name), "rb", block_size=4 * CHUNK_BYTES, cache_type="readahead"
            )
            return found

    def size(self, name: str) -> int | None:
        """The size of the object of a blob."""
        with suppress(FileNotFoundError), self._told(f"the blob {name} cannot be read", True):
            return int(self._fs.info(self._path(name))["size"])
        return None

    def remove(self, name: str) -> None:
        """Deletes the object of a blob."""
        with (
            suppress(FileNotFoundError),
            self._told(f"the blob {name} cannot be removed", missing=True),
        ):
            self._fs.rm_file(self._path(name))

    def id(self, proposed: str) -> str:
        """The word in an object of its own. A bucket is one place from wherever it is seen."""
        path = self._path(_ID)
        with self._told(f"{self._url} cannot be written"):
            if not self._fs.exists(path):
                self._fs.pipe_file(path, proposed.encode())
            data: bytes = self._fs.cat_file(path)
            return data.decode().strip()

    @contextmanager
    def _told(self, what: str, missing: bool = False) -> Iterator[None]:
        """Says which place an error is of. Drivers of fsspec raise errors of their own."""
        try:
            with disk_errors(f"{what} at {self._url}", missing):
                yield
        except (LongshoreError, FileNotFoundError):
            raise
        except Exception as error:
            raise Unavailable(f"{what} at {self._url}: {error}") from error


@contextmanager
def disk_errors(what: str, missing: bool = False) -> Iterator[None]:
    """Turns errors of the system into ours; one for what is not there stays, if `missing`."""
    try:
        yield
    except LongshoreError:
        raise  # some of ours are errors of the system too
    except FileNotFoundError:
        if missing:
            raise
        raise NotFound(f"{what}: it is not there") from None
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(
                f"{what}: no room is left on the disk; make room, then try again"
            ) from None
        raise Unavailable(f"{what}: {error.strerror or error}") from error


def _sync_all(folder: Path) -> None:
    """Has all that was written to the file system of a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc().syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
