"""What differs between two versions."""

from __future__ import annotations

from longshore.files.changes import Change, changes
from longshore.model.fileset import FileEntry


def file(path: str, size: int = 1, executable: bool = False) -> FileEntry:
    return FileEntry(path, size, bytes([size]) * 32, executable)


def test_added_removed_and_changed_files_are_told_by_path() -> None:
    old = [file("b"), file("c"), file("same"), file("x")]
    new = [file("a"), file("c", 2), file("same"), file("x", executable=True)]
    assert changes(old, new) == [
        Change("added", "a", None, 1),
        Change("removed", "b", 1, None),
        Change("changed", "c", 1, 2),
        Change("changed", "x", 1, 1),
    ]


def test_the_same_files_differ_in_nothing() -> None:
    assert changes([file("a")], [file("a")]) == []
