"""Folders of this machine: the usual cache, and one that holds files of a version already."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from longshore.core.file_paths import check_path, shown
from longshore.errors import InvalidInput
from longshore.files.beneath import READ, open_beneath, opened
from longshore.files.copying import CHUNK_BYTES
from longshore.model.fileset import FileEntry


def default_cache() -> Path:
    """Where this user keeps blobs, unless `files_cache` names a folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "longshore" / "files"


def near_folder(files: str) -> Path | None:
    """The folder that `files` names, if it is one of this machine that we may read."""
    if not files or "://" in files:
        return None
    folder = Path(files)
    return folder if os.access(folder, os.R_OK | os.X_OK) else None


def missing_files(folder: int, files: Sequence[FileEntry], *, replace: bool) -> list[FileEntry]:
    """The files that are not below an open folder yet.

    Where another file has the path, it is removed if it is to be replaced; otherwise
    `InvalidInput` is raised, before anything is changed.
    """
    missing, others = [], []
    for file in files:
        is_same = _is_same(folder, file)
        if not is_same:
            missing.append(file)
        if is_same is False:
            others.append(file)
    if others and not replace:
        raise InvalidInput(
            f"{shown(others[0].path)} is there with other content; pull into another folder, or "
            "replace it with --force"
        )
    for file in others:
        _remove(folder, file)
    return missing


def _is_same(folder: int, file: FileEntry) -> bool | None:
    """Whether a file lies at its path with its bytes; None if nothing is there."""
    try:
        descriptor = open_beneath(folder, check_path(file.path), READ)
    except FileNotFoundError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != file.size:
            return False
        if bool(facts.st_mode & stat.S_IXUSR) != file.executable:
            return False
        made = hashlib.sha256()
        while chunk := os.read(descriptor, CHUNK_BYTES):
            made.update(chunk)
        return made.digest() == file.sha256
    finally:
        os.close(descriptor)


def _remove(folder: int, file: FileEntry) -> None:
    *way, name = check_path(file.path)
    with opened(folder, way) as inside:
        os.unlink(name, dir_fd=inside)
