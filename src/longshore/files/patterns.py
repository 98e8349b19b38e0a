"""Patterns of paths: `*` within a name, `**` across folders, `?`, `[abc]`; `!` leaves out.

A name that begins with a dot is a name like any other: what a program wrote is taken whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wcmatch import glob

from longshore.core.file_paths import shown
from longshore.errors import InvalidInput

MAX_PATTERNS: Final = 100
MAX_PATTERN_CHARS: Final = 500
ALL: Final = ("**",)
_FLAGS: Final = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX


class Patterns:
    """Which paths are meant: those that match a pattern, and none with a `!` in front."""

    def __init__(self, texts: Sequence[str] = ALL) -> None:
        _check(texts)
        wanted = [text for text in texts if not text.startswith("!")]
        self.texts = tuple(wanted or ALL)
        """The patterns without a `!`."""
        self._wanted = [glob.compile(_whole(text), flags=_FLAGS) for text in self.texts]
        left = [_whole(text[1:]) for text in texts if text.startswith("!")]
        self._left = glob.compile(left, flags=_FLAGS) if left else None
        self._roots = [_root(_whole(text)) for text in self.texts]
        self._met = [False] * len(self._wanted)

    def match(self, path: str) -> bool:
        """Whether a path is meant; remembers by which pattern."""
        if self._left is not None and self._left.match(path):
            return False
        found = False
        for number, pattern in enumerate(self._wanted):
            # A pattern that has met something need not be asked once the path is meant.
            if (not found or not self._met[number]) and pattern.match(path):
                self._met[number] = found = True
        return found

    def may_match_in(self, parts: Sequence[str]) -> bool:
        """Whether something in this folder can be meant."""
        return any(
            all(a == b for a, b in zip(root, parts, strict=False))
            and (depth is None or len(parts) < depth)
            for root, depth in self._roots
        )

    @property
    def unmet(self) -> list[str]:
        """The patterns that no path has matched so far."""
        return [text for text, met in zip(self.texts, self._met, strict=True) if not met]


def _check(texts: Sequence[str]) -> None:
    if len(texts) > MAX_PATTERNS:
        raise InvalidInput(f"there are {len(texts):,} patterns; {MAX_PATTERNS} are allowed")
    for text in texts:
        bare = text.removeprefix("!")
        if not bare or len(text) > MAX_PATTERN_CHARS or "\0" in text:
            raise InvalidInput(
                f"{shown(text)} is no pattern: it has 1 to {MAX_PATTERN_CHARS} characters"
            )
        if bare.startswith("/") or ".." in bare.split("/"):
            raise InvalidInput(f"the pattern {shown(text)} leads out of its folder; it may not")


def _whole(text: str) -> str:
    """The pattern as it is matched: `name/` means all that lies in that folder."""
    text = text.removeprefix("./")
    return f"{text}**" if text.endswith("/") else text


def _root(text: str) -> tuple[tuple[str, ...], int | None]:
    """The folders that a pattern begins with, and how many parts a path has that it matches."""
    parts = text.split("/")
    plain = 0
    while plain < len(parts) - 1 and not _has_wildcard(parts[plain]):
        plain += 1
    return tuple(parts[:plain]), None if "**" in parts else len(parts)


def _has_wildcard(part: str) -> bool:
    return glob.is_magic(part, flags=_FLAGS) or "\\" in part
