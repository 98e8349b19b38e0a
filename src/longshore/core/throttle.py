"""Limits how often the log tells of something, so that no peer can fill the log."""

from __future__ import annotations


class Throttle:
    """Counts events, and lets the caller tell of them at most once in `every_s`."""

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._told_at = float("-inf")
        self._untold = 0

    def count(self, now: float, more: int = 1) -> int:
        """Counts `more` events. Answers how many to tell of; 0 if the log told of some lately."""
        self._untold += more
        if now - self._told_at < self._every_s:
            return 0
        untold, self._untold = self._untold, 0
        self._told_at = now
        return untold
