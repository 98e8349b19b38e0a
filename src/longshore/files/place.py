"""Puts files of a version into a folder where a program may change them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from longshore.core.file_paths import PathSet, check_path, shown
from longshore.errors import InvalidInput
from longshore.files.beneath import create, made_folder, opened
from longshore.files.copying import copy_blob
from longshore.files.threads import IsStopped
from longshore.model.fileset import FileEntry, Manifest

FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755


class AlreadyThere(InvalidInput):
    """Something has the name of a file that is to be put there."""


def checked(manifest: Manifest) -> Manifest:
    """A manifest from outside, if all of its paths stay below their folder and mean one file."""
    paths = PathSet()
    for file in manifest.files:
        paths.add(file.path)
        if len(file.sha256) != 32 or file.size < 0:
            raise InvalidInput(f"{shown(file.path)} has no SHA-256, or no size")
    return manifest


def put_blob(
    folder: int, file: FileEntry, source: int, is_stopped: IsStopped = lambda: False
) -> None:
    """Copies an open blob to the path of a file below a folder; folders on the way are made.

    Raises `AlreadyThere` rather than write over something, and `Damaged` if the blob is not whole:
    then nothing is left at the path.
    """
    put_file(folder, file, lambda target: copy_blob(source, target, file.sha256, is_stopped))


def put_file(folder: int, file: FileEntry, fill: Callable[[int], object]) -> None:
    """Makes a file below a folder, and lets `fill` write it; removes it if that fails."""
    *way, name = check_path(file.path)
    with made_folder(folder, way) as inside:
        mode = PROGRAM_MODE if file.executable else FILE_MODE
        try:
            target = create(inside, name, mode)
        except FileExistsError:
            raise AlreadyThere(
                f"{shown(file.path)} is there already; give each input a folder of its own (path)"
            ) from None
        try:
            os.fchmod(target, mode)
            fill(target)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=inside)
            raise
        finally:
            os.close(target)


def make_way(folder: int, files: Iterable[FileEntry]) -> None:
    """Removes what lies where these files are to be put below a folder."""
    for file in files:
        *way, name = check_path(file.path)
        with suppress(FileNotFoundError), opened(folder, way) as inside:
            os.unlink(name, dir_fd=inside)


def by_blob(files: Iterable[FileEntry]) -> Iterator[tuple[FileEntry, list[FileEntry]]]:
    """The files, each with the others that have the same bytes: these are fetched once."""
    groups: dict[bytes, list[FileEntry]] = {}
    for file in files:
        groups.setdefault(file.sha256, []).append(file)
    for same in groups.values():
        yield same[0], same
