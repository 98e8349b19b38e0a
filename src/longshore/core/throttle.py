"""How often something is told that anybody can cause: nobody is to fill a log with it."""

from __future__ import annotations


class Throttle:
    """Counts what happens, and lets it be told at most once in `every_s`."""

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._told_at = float("-inf")
        self._untold = 0

    def count(self, now: float) -> int:
        """How often it happened since it was last told, this time too; 0 if that was just now."""
        self._untold += 1
        if now - self._told_at < self._every_s:
            return 0
        untold, self._untold = self._untold, 0
        self._told_at = now
        return untold
