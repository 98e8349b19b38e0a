"""Which paths files of a fileset may have.

A version is pulled on machines that nobody knows yet. So a path must mean one file, below the
folder that it is put into, on every file system: also on those that fold case or normalise names.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import normalize

from longshore.errors import InvalidInput

MAX_PATH_BYTES: Final = 1_024
MAX_PART_BYTES: Final = 255
MAX_DEPTH: Final = 64

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN: Final = 120


def check_part(name: str) -> None:
    """Raises `InvalidInput` unless a file or a folder may have this name."""
    if name in ("", ".", ".."):
        raise InvalidInput(f"{name!r} is no name of a file; it would lead elsewhere")
    if "/" in name:
        raise InvalidInput(f"{shown(name)} has a / in it; a name has none")
    if _CONTROL.search(name):
        raise InvalidInput(f"{shown(name)} has a control character in its name; rename it")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{shown(name)} is not UTF-8; rename it") from None
    if size > MAX_PART_BYTES:
        raise InvalidInput(f"{shown(name)} is longer than {MAX_PART_BYTES} bytes; rename it")


def check_path(path: str) -> tuple[str, ...]:
    """The parts of a path; raises `InvalidInput` unless it stays below the folder it starts in."""
    if path.startswith("/"):
        raise InvalidInput(f"{shown(path)} is absolute; give a path below the folder")
    parts = tuple(path.split("/"))
    if len(parts) > MAX_DEPTH:
        raise InvalidInput(f"{shown(path)} is more than {MAX_DEPTH} folders deep; make it flatter")
    for part in parts:
        try:
            check_part(part)
        except InvalidInput as error:
            raise InvalidInput(f"the path {shown(path)}: {error}") from None
    if len(path.encode()) > MAX_PATH_BYTES:
        raise InvalidInput(f"the path {shown(path)} is longer than {MAX_PATH_BYTES:,} bytes")
    return parts


def folded(name: str) -> str:
    """A name as file systems see it that tell least apart. Names with one fold are one there."""
    return normalize("NFC", normalize("NFC", name).casefold())


def shown(name: str) -> str:
    """A name in the words of an error: quoted, on one line, and not long."""
    text = ascii(name) if _CONTROL.search(name) or not _is_utf8(name) else repr(name)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…'"


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class PathSet:
    """Paths in their order that no file system takes for one another.

    Sorted by their parts, so that all of a folder come together: only the names on the way to the
    present one are remembered.
    """

    def __init__(self) -> None:
        self._last: tuple[str, ...] = ()
        self._names: list[dict[str, str]] = [{}]

    def add(self, path: str) -> None:
        """Raises `InvalidInput` if the path is none, is out of order, or means another one too."""
        parts = check_path(path)
        if parts <= self._last:
            raise InvalidInput(f"the path {shown(path)} comes twice, or out of order")
        same = _common(parts, self._last)
        if self._last and same == len(self._last):
            raise InvalidInput(f"{shown('/'.join(self._last))} is a file, and a folder of others")
        del self._names[same + 1 :]
        for depth in range(same, len(parts)):
            known = self._names[depth].setdefault(folded(parts[depth]), parts[depth])
            if known != parts[depth]:
                raise collision("/".join((*parts[:depth], known)), path)
            self._names.append({})
        self._last = parts


def collision(one: str, other: str) -> InvalidInput:
    """The error of two names that are one on some file systems."""
    return InvalidInput(
        f"{shown(one)} and {shown(other)} are the same name where case, or the way accents are "
        "written, does not count; rename one"
    )


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many parts two paths have in common, at their beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
