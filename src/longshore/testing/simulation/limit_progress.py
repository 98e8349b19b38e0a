"""Room and waiting means progress: no job waits for its limits while all of them have room.

A job that is ready, whose keys have room, and that a worker with a free slot could run, begins
within a poll: whatever made the room, be it the loss of a worker or a rule that was changed.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from longshore.testing.simulation.fairness import Fairness
from longshore.testing.simulation.ledger import Ledger
from longshore.testing.simulation.promises import BrokenPromise, Promise

_MARGIN_S: Final = 1.5
"""The poll is jittered, and what it finds takes some messages."""


class LimitProgress:
    """Looks now and then who waits although nothing holds it back."""

    def __init__(self, ledger: Ledger, fairness: Fairness, poll_s: float) -> None:
        self._ledger = ledger
        self._fairness = fairness
        self._longest_s = poll_s + _MARGIN_S
        self._since: dict[UUID, float] = {}

    def look(self, now: float, *, calm: bool) -> None:
        """Raises `BrokenPromise` if a job has waited for too long for nothing."""
        free = self._ledger.has_room() if calm else []
        self._since = {job: self._since.get(job, now) for job in free}
        for job, since in self._since.items():
            idle_since = self._fairness.idle_since(self._ledger.kind_of(job))
            if idle_since is None:
                continue
            waited_s = now - max(since, idle_since)
            if waited_s > self._longest_s:
                text = f"its limits have had room for {waited_s:.1f} s, and a worker is idle"
                raise BrokenPromise(Promise.ROOM, text, job)
