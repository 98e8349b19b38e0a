"""`Batch`: many jobs of a kind share one run of its function, and each has its own outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from longshore.client.limit import KeyGiven, check_key, key_of
from longshore.core.key_limits import is_whole, why_no_key
from longshore.errors import AppError, InvalidInput
from longshore.payload.values import unpack

MAX_BATCH_SIZE: Final = 10_000
MAX_BATCH_WAIT_S: Final = 60.0


class Batch:
    """One run takes up to `size` jobs; the first of them waits at most `wait_s` for the others.

    With `key`, only jobs of the same key share a run. It is read like that of a `Limit`: the name
    of a parameter, whose value the function is given once, or a function of the arguments.
    """

    __slots__ = ("key", "size", "wait_s")

    def __init__(self, size: int, wait_s: float = 0.1, *, key: KeyGiven | None = None) -> None:
        if type(size) is not int or not 1 <= size <= MAX_BATCH_SIZE:
            raise AppError(
                f"Batch(size={size!r}): give a whole number from 1 to {MAX_BATCH_SIZE:,} "
                "(MAX_BATCH_SIZE)"
            )
        if type(wait_s) not in (int, float) or not 0 <= wait_s <= MAX_BATCH_WAIT_S:
            raise AppError(
                f"Batch(wait_s={wait_s!r}): give a number of seconds from 0 to "
                f"{MAX_BATCH_WAIT_S:g} (MAX_BATCH_WAIT_S)"
            )
        if isinstance(key, str) and is_whole(key):
            raise AppError(
                f"Batch(key={key!r}): all jobs would have that key; name a parameter, such as "
                f"key='{key.partition('=')[0]}', or leave it out"
            )
        if key is not None and not isinstance(key, str) and not callable(key):
            raise AppError(f"Batch(key={key!r:.100}): name a parameter, or give a function")
        check_key(key)
        self.size = size
        self.wait_s = float(wait_s)
        self.key = key

    def __repr__(self) -> str:
        return f"<Batch of {self.size} within {self.wait_s:g} s>"

    def key_of(self, kind: str, args: bytes, defaults: Mapping[str, Any]) -> str:
        """What a job has in common with those that it may share a run with."""
        if self.key is None:
            return ""
        arguments = {**defaults, **unpack(args)}
        made: object = key_of(self.key, kind, arguments)
        why = why_no_key(made) if isinstance(made, str) else f"its function returned {made!r:.100}"
        if why:
            raise InvalidInput(f"job '{kind}' cannot have the key of its batch: {why}")
        # Of 1 and "1" the keys are alike, but the function is given the value itself.
        of = "" if callable(self.key) else type(arguments[self.key]).__name__
        return f"{of}:{made}"
