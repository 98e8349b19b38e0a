"""What differs between two versions of a fileset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from longshore.model.fileset import FileEntry


class Change(Struct, frozen=True):
    """A file that differs: its sizes before and after, None where it is not there."""

    change: Literal["added", "removed", "changed"]
    path: str
    before: int | None
    after: int | None


def changes(old: Sequence[FileEntry], new: Sequence[FileEntry]) -> list[Change]:
    """The files that differ, by path."""
    was, now = {one.path: one for one in old}, {one.path: one for one in new}
    found: list[Change] = []
    for path in sorted(was.keys() | now.keys()):
        before, after = was.get(path), now.get(path)
        if before is None and after is not None:
            found.append(Change("added", path, None, after.size))
        elif before is not None and after is None:
            found.append(Change("removed", path, before.size, None))
        elif before is not None and after is not None and before != after:
            found.append(Change("changed", path, before.size, after.size))
    return found
