"""Which workers are kept for large jobs, so that small ones do not keep them waiting for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from longshore.model.worker import SessionKey

RESERVE_S: Final = 30.0
"""How long small jobs may keep a large one waiting before a worker is reserved for it."""


class Reservations:
    """Workers that are kept for shapes which did not fit anywhere for too long.

    `now` is the time of the plan that is being made.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._blocked_at: dict[str, float] = {}
        self._reserved: dict[SessionKey, str] = {}

    def may(self, one: SessionKey, shape: str) -> bool:
        """Whether a worker may get jobs of this shape."""
        return self._reserved.get(one, shape) == shape

    def blocked(self, shape: str, best: SessionKey | None) -> None:
        """Jobs of this shape fit nowhere; `best` is the worker that comes nearest."""
        since = self._blocked_at.setdefault(shape, self.now)
        if best is None or self.now - since < RESERVE_S or shape in self._reserved.values():
            return
        self._reserved.setdefault(best, shape)

    def claimed(self, shape: str, slots: Iterable[SessionKey]) -> None:
        """Jobs of this shape were claimed for these workers."""
        self._blocked_at.pop(shape, None)
        for slot in slots:
            if self._reserved.get(slot) == shape:
                del self._reserved[slot]

    def left(self, one: SessionKey) -> None:
        """A session ended."""
        self._reserved.pop(one, None)
