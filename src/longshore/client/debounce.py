"""`Debounce`: of the jobs with a key only the last runs, once it is calm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longshore.client.limit import KeyGiven, check_key, key_of, needs_key
from longshore.core.crowd_limits import why_not_debounced
from longshore.core.key_limits import BY_FUNCTION
from longshore.errors import AppError
from longshore.model.limits import Debounced
from longshore.payload.values import unpack

ALL = "all=jobs"
"""The key of a debounce without one: all jobs of the kind."""


class Debounce:
    """A job runs `wait_s` after the last submit with its key, with the arguments of that one.

    It runs at the latest `max_wait_s` after the first. Those that come before the last end as
    cancelled, replaced by the next. `key` is as that of a `Limit`; without one, all jobs of the
    kind are debounced together.
    """

    __slots__ = ("_key", "declared")

    def __init__(
        self, wait_s: float, max_wait_s: float | None = None, *, key: KeyGiven = ALL
    ) -> None:
        check_key(key)
        whole = None if max_wait_s is None else float(max_wait_s)
        self._key = key
        self.declared = Debounced(
            key if isinstance(key, str) else BY_FUNCTION, float(wait_s), whole
        )
        """What workers advertise of it."""
        if why := why_not_debounced(self.declared):
            raise AppError(why)

    @classmethod
    def advertised(cls, declared: Debounced) -> Debounce:
        """The debounce that a worker advertised."""
        debounce = cls(declared.wait_s, declared.max_wait_s)
        debounce._key, debounce.declared = declared.key, declared
        return debounce

    def __repr__(self) -> str:
        return f"<Debounce of {self._key!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Debounce) and (self._key, self.declared) == (
            other._key,
            other.declared,
        )

    def __hash__(self) -> int:
        return hash((self._key, self.declared))

    def of_job(self, kind: str, args: bytes) -> Debounced:
        """The debounce of one job; its key is that of the arguments."""
        if self._key == BY_FUNCTION:
            raise needs_key(kind, "debounce", f"a debounce ({self.declared.wait_s:g} s)")
        arguments: Mapping[str, Any] = unpack(args)
        key = key_of(self._key, kind, arguments)
        return Debounced(key, self.declared.wait_s, self.declared.max_wait_s)
