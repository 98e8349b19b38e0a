"""Keys: how the jobs of a group are named while it is being described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from longshore.errors import InvalidInput


class Keys:
    """The keys that are taken, and the next that a job without one gets."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()

    def __contains__(self, key: str) -> bool:
        return key in self._taken

    def take(self, key: str) -> None:
        """A job has this key."""
        self._taken[key] += 1

    def next_of(self, kind: str, within: str = "", ending: str = "") -> str:
        """The kind with this ending, or with the first number that makes a key of its own."""
        stem = below(within, kind.replace("/", ".") + ending)
        while True:
            self._numbers[stem] += 1
            count = self._numbers[stem]
            key = stem if count == 1 else f"{stem}-{count}"
            if key not in self._taken:
                return key

    def check(self) -> None:
        """Raises `InvalidInput` if two jobs have a key, or one has the name of a sub-group."""
        for key, count in self._taken.items():
            if count > 1:
                raise InvalidInput(f"{count} jobs have the key '{key}'; give each another key")
        check_prefixes(self._taken.keys())


def below(within: str, key: str) -> str:
    """A key within a sub-group."""
    return f"{within}/{key}" if within else key


def prefixes(key: str) -> Iterator[str]:
    """The sub-groups in which a key lies, the innermost first: `a/b` and `a` of `a/b/c`."""
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def check_prefixes(keys: Collection[str]) -> None:
    """Raises `InvalidInput` if a key is also the name of a sub-group: its job adds jobs there."""
    for key in keys:
        for prefix in prefixes(key) if "/" in key else ():
            if prefix in keys:
                raise InvalidInput(
                    f"the key '{prefix}' is of a job, and '{key}' lies below it, where only that "
                    "job may add others; rename one of them"
                )


def within_key(key: str, other: str) -> bool:
    """Whether a node is the one with this key, or lies below it. The key may end in `/`."""
    stem = key.rstrip("/")
    return other.startswith(f"{stem}/") or (other == stem and not key.endswith("/"))
