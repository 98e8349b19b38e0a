"""How many submits to take into the next transaction.

Theory. A job that finds a free slot starts in the statement that stores it. That costs one write
and one round trip less than to store the job as ready and claim it later. It is possible only while
no ready job waits for that slot. So there are two cases:

- No job waits. The dispatcher takes submits as fast as slots come free, and holds the others back
  for a moment. It stores them as ready if no slot comes free soon, if they waited for long, or if
  the free slots are of no use to them.
- Jobs wait. Submits and claims share the store. The more slots are free although jobs wait, the
  fewer submits a transaction takes: claims go first.
"""

from __future__ import annotations

from msgspec import Struct


class FreeSlots(Struct, frozen=True):
    """How many slots are free, and whether ready jobs wait for them."""

    free: int
    wanted: bool

    @property
    def are_taken(self) -> bool:
        """Whether every new job must wait."""
        return self.wanted and not self.free


class Patience(Struct, frozen=True):
    """How long submits wait for a slot: while none comes free, and in any case."""

    none_free_s: float
    most_s: float


class Admission:
    """Says how many submits the next transaction takes; learns from the transaction before it."""

    def __init__(self, most: int, patience: Patience) -> None:
        self._most = most
        self._patience = patience
        self._free_at = float("-inf")
        self._has_unwanted = False
        """Whether slots are free that no ready job waits for."""
        self._none_fits = False
        """Whether the last submits could use none of those slots."""

    def room(self, slots: FreeSlots, now: float, oldest_at: float) -> int:
        """How many submits to take now; 0 to wait for a slot. The oldest came at `oldest_at`."""
        if slots.free:
            self._free_at = now
        self._has_unwanted = bool(slots.free) and not slots.wanted
        self._none_fits = self._none_fits and not slots.wanted
        if self._none_fits:
            return self._most
        return room(slots, self._most, self._patience, now - self._free_at, now - oldest_at)

    def took(self, *, any_started: bool) -> None:
        """A transaction took submits. `any_started` says whether any of them got a slot."""
        if self._has_unwanted:
            self._none_fits = not any_started


def room(
    slots: FreeSlots, most: int, patience: Patience, none_free_s: float, oldest_s: float
) -> int:
    """How many submits to take now, at most `most`; 0 to wait for a slot.

    No slot was free for `none_free_s`; the oldest submit has waited for `oldest_s`.
    """
    if slots.wanted:
        return max(most - slots.free, most // 4, 1)
    if oldest_s >= patience.most_s:
        return most
    if slots.free:
        return min(slots.free, most)
    return 0 if none_free_s < patience.none_free_s else most
