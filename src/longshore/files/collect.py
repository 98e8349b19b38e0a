"""Collects the files of a folder into a manifest.

The folder is hostile: a job wrote it. So the walk stays beneath it (`beneath`), takes regular files
only, and is bounded in entries, logical bytes, depth and length of names before it reads a byte. Of
what it reads it keeps an entry for each file, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from longshore.core.file_paths import MAX_DEPTH, PathSet, check_path, shown
from longshore.errors import InvalidInput
from longshore.files.beneath import READ, opened
from longshore.files.patterns import Patterns
from longshore.files.threads import IsStopped, Stopped
from longshore.model.fileset import FileEntry, Manifest

CHUNK_BYTES: Final = 1024 * 1024
SEEN_NAMES: Final = 20
"""How many names an error lists of what was there."""

_KINDS: Final = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class Bounds(Struct, frozen=True):
    """How much a version may hold."""

    most_bytes: int
    most_files: int


class Refused(Exception):
    """A folder holds what no version may. The words say what, and what to do."""


class Unmatched(Exception):
    """A pattern matches nothing. The words say which, and what was there."""


class Collecting(Struct, frozen=True):
    """What is told of a collection while it runs."""

    on_bytes: Callable[[int], None] = lambda read: None
    is_stopped: IsStopped = lambda: False


_UNTOLD: Final = Collecting()


def collect(
    folder: int, patterns: Patterns, bounds: Bounds, told: Collecting = _UNTOLD
) -> Manifest:
    """The files below an open folder that patterns mean, hashed; raises `Refused`, `Unmatched`."""
    walk = _Walk(folder, patterns, bounds, told)
    try:
        files = tuple(walk.files())
    except InvalidInput as error:
        raise Refused(str(error)) from None
    except OSError as error:
        name = shown(os.fsdecode(error.filename or "a file"))
        raise Refused(f"{name} cannot be read: {error.strerror}") from None
    if patterns.unmet:
        raise Unmatched(walk.unmatched())
    return Manifest(files)


class _Walk:
    """One walk through a folder, in the order of names."""

    def __init__(self, folder: int, patterns: Patterns, bounds: Bounds, told: Collecting) -> None:
        self._top = folder
        self._patterns = patterns
        self._bounds = bounds
        self._told = told
        self._paths = PathSet()
        self._entries = 0
        self._files = 0
        self._bytes = 0
        self._seen: list[str] = []
        self._unlisted = 0

    def files(self) -> Iterator[FileEntry]:
        """All files that are meant."""
        return self._inside(self._top, ())

    def _inside(self, folder: int, way: tuple[str, ...]) -> Iterator[FileEntry]:
        for name in self._names(folder):
            path = "/".join((*way, name))
            mode = os.lstat(name, dir_fd=folder).st_mode
            if stat.S_ISDIR(mode):
                yield from self._below(folder, (*way, name))
                continue
            self._note(path, mode)
            if self._patterns.match(path):
                yield self._entry(folder, name, path, mode)

    def _below(self, folder: int, way: tuple[str, ...]) -> Iterator[FileEntry]:
        if not self._patterns.may_match_in(way):
            self._see("/".join(way) + "/")
            return
        if len(way) >= MAX_DEPTH:
            raise InvalidInput(
                f"{shown('/'.join(way))} is {MAX_DEPTH} folders deep; make it flatter"
            )
        with opened(folder, way[-1:]) as inner:
            yield from self._inside(inner, way)

    def _names(self, folder: int) -> list[str]:
        """The names in a folder, sorted; raises if there are too many in all."""
        names = []
        # Twice as many as files, so that folders and what is not meant have room too.
        most = 2 * self._bounds.most_files + 1_000
        with os.scandir(folder) as found:
            for one in found:
                self._entries += 1
                if self._entries > most:
                    raise Refused(
                        f"the folder holds more than {most:,} files and folders; "
                        f"max_fileset_files is {self._bounds.most_files:,}"
                    )
                names.append(one.name)
        names.sort()
        return names

    def _note(self, path: str, mode: int) -> None:
        kind = next((words for is_it, words in _KINDS if is_it(mode)), "")
        self._see(f"{path} ({kind})" if kind else path)

    def _see(self, words: str) -> None:
        if len(self._seen) < SEEN_NAMES:
            self._seen.append(shown(words))
        else:
            self._unlisted += 1

    def _entry(self, folder: int, name: str, path: str, mode: int) -> FileEntry:
        check_path(path)
        kind = next((words for is_it, words in _KINDS if is_it(mode)), "")
        if kind:
            raise Refused(f"{shown(path)} is {kind}; only regular files can be stored")
        self._paths.add(path)
        self._files += 1
        if self._files > self._bounds.most_files:
            raise Refused(
                f"there are more than {self._bounds.most_files:,} files (max_fileset_files); "
                "take fewer, or pack them into an archive"
            )
        with opened(folder, (name,), READ) as descriptor:
            return self._hashed(descriptor, path)

    def _hashed(self, descriptor: int, path: str) -> FileEntry:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused(f"{shown(path)} is no regular file; only those can be stored")
        self._bytes += facts.st_size
        if self._bytes > self._bounds.most_bytes:
            raise Refused(
                f"the files are larger than {self._bounds.most_bytes:,} bytes "
                f"(max_fileset_bytes): with {shown(path)} they are {self._bytes:,}, holes counted"
            )
        digest = self._digest(descriptor, facts.st_size, path)
        return FileEntry(path, facts.st_size, digest, bool(facts.st_mode & stat.S_IXUSR))

    def _digest(self, descriptor: int, size: int, path: str) -> bytes:
        made = hashlib.sha256()
        left = size
        # One byte more than there should be, so that a file that grows is noticed.
        while chunk := os.read(descriptor, min(CHUNK_BYTES, left + 1)):
            if self._told.is_stopped():
                raise Stopped
            left -= len(chunk)
            if left < 0:
                break
            made.update(chunk)
            self._told.on_bytes(len(chunk))
        if left:
            raise Refused(f"{shown(path)} changed while it was read; take it when it is done")
        return made.digest()

    def unmatched(self) -> str:
        """What was not there, and what was."""
        missing = ", ".join(shown(text) for text in self._patterns.unmet)
        more = f" and {self._unlisted:,} more" if self._unlisted else ""
        there = f"there are {', '.join(self._seen)}{more}" if self._seen else "the folder is empty"
        return f"nothing matches {missing}; {there}"
