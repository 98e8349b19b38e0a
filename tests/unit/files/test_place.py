"""Placing files: below the folder, never over something, never tied to the cached blob."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from longshore.errors import Damaged, InvalidInput
from longshore.files.beneath import opened_folder
from longshore.files.place import AlreadyThere, checked, put_blob
from longshore.files.threads import Stopped
from longshore.model.fileset import FileEntry, Manifest

TEXT = b"bytes of a blob"
SHA256 = hashlib.sha256(TEXT).digest()


def entry(path: str, *, executable: bool = False, sha256: bytes = SHA256) -> FileEntry:
    return FileEntry(path, len(TEXT), sha256, executable)


def put(blob: Path, into: Path, file: FileEntry) -> None:
    source = os.open(blob, os.O_RDONLY)
    try:
        with opened_folder(into) as folder:
            put_blob(folder, file, source)
    finally:
        os.close(source)


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "blob"
    path.write_bytes(TEXT)
    path.chmod(0o400)
    return path


@pytest.fixture
def into(tmp_path: Path) -> Path:
    path = tmp_path / "into"
    path.mkdir()
    return path


def test_a_file_is_put_with_its_folders_and_its_executable_bit(blob: Path, into: Path) -> None:
    put(blob, into, entry("a/b/run.sh", executable=True))
    put(blob, into, entry("a/b/data"))
    assert (into / "a/b/run.sh").read_bytes() == TEXT
    assert (into / "a/b/run.sh").stat().st_mode & 0o777 == 0o755
    assert (into / "a/b/data").stat().st_mode & 0o777 == 0o644


def test_a_job_that_changes_its_input_does_not_change_the_blob(blob: Path, into: Path) -> None:
    put(blob, into, entry("data"))
    placed = into / "data"
    assert placed.stat().st_ino != blob.stat().st_ino
    placed.write_bytes(b"changed")
    assert blob.read_bytes() == TEXT


def test_a_copy_that_is_told_to_stop_leaves_nothing(blob: Path, into: Path) -> None:
    source = os.open(blob, os.O_RDONLY)
    try:
        with opened_folder(into) as folder, pytest.raises(Stopped):
            put_blob(folder, entry("data"), source, lambda: True)
    finally:
        os.close(source)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize("path", ["../out", "/etc/evil", "a/../../out", "a/./b", ""])
def test_a_path_that_leaves_the_folder_is_refused(blob: Path, into: Path, path: str) -> None:
    with pytest.raises(InvalidInput):
        put(blob, into, entry(path))
    assert list(into.iterdir()) == []


def test_a_link_on_the_way_is_not_followed(blob: Path, into: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (into / "a").symlink_to(outside)
    with pytest.raises(InvalidInput, match="link"):
        put(blob, into, entry("a/data"))
    assert list(outside.iterdir()) == []


def test_nothing_is_written_over(blob: Path, into: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (into / "data").symlink_to(victim)
    with pytest.raises(AlreadyThere):
        put(blob, into, entry("data"))
    assert victim.read_text() == "kept"


def test_a_damaged_blob_leaves_nothing(blob: Path, into: Path) -> None:
    with pytest.raises(Damaged):
        put(blob, into, entry("data", sha256=bytes(32)))
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    "paths", [("../up",), ("/abs",), ("A", "a"), ("a", "a/b"), ("b", "a"), ("x\ny",)]
)
def test_a_manifest_with_hostile_paths_is_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        checked(Manifest(tuple(entry(path) for path in paths)))


def test_a_manifest_with_no_hash_is_refused() -> None:
    with pytest.raises(InvalidInput, match="SHA-256"):
        checked(Manifest((entry("a", sha256=b"short"),)))
