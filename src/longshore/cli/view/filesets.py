"""Filesets, their versions and their files as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.cli.view.show import Table, time
from longshore.core.text import size_words
from longshore.files.documents import ShownFile, ShownFileset, ShownVersion

_NUMBERS: Final = frozenset({"versions", "version", "files", "size"})


def filesets_table(filesets: Sequence[ShownFileset]) -> Table:
    """Filesets by name, each with its newest version."""
    head = ("name", "versions", "latest", "files", "size", "created", "by")
    rows = [
        (
            one.name,
            f"{one.versions:,}",
            f"@{one.latest.version}{' (partial)' if one.latest.partial else ''}",
            f"{one.latest.files:,}",
            size_words(one.latest.total_bytes),
            time(one.latest.created_at),
            maker(one.latest),
        )
        for one in filesets
    ]
    return Table(head, rows, _NUMBERS, optional=("by", "created"))


def versions_table(versions: Sequence[ShownVersion]) -> Table:
    """Versions of a fileset, newest first."""
    head = ("version", "files", "size", "created", "by", "partial")
    rows = [
        (
            f"@{one.version}",
            f"{one.files:,}",
            size_words(one.total_bytes),
            time(one.created_at),
            maker(one),
            "yes" if one.partial else "",
        )
        for one in versions
    ]
    return Table(head, rows, _NUMBERS, optional=("by",))


def files_table(files: Sequence[ShownFile]) -> Table:
    """Files of a version, by path."""
    head = ("path", "size", "sha256", "executable")
    rows = [
        (
            one.path,
            size_words(one.size),
            one.sha256[:16],
            "yes" if one.executable else "",
        )
        for one in files
    ]
    return Table(head, rows, _NUMBERS, optional=("sha256",))


def changes_table(changes: Sequence[tuple[str, str, int | None, int | None]]) -> Table:
    """What differs between two versions: the change, the path, and the sizes."""
    rows = [
        (
            change,
            path,
            "" if before is None else size_words(before),
            "" if after is None else size_words(after),
        )
        for change, path, before, after in changes
    ]
    return Table(("change", "path", "before", "after"), rows, frozenset({"before", "after"}))


def maker(version: ShownVersion) -> str:
    """Who made a version: a job, or who pushed it."""
    return f"job {version.job}" if version.job else version.by
