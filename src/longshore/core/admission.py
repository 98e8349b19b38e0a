"""How many submits to take into the next transaction.

A job that finds a free slot begins in the very statement that stores it: one write less than to
store it as ready and claim it, and no round trip in between. That is possible only while nobody
waits for the slots already. So while the workers keep up, submits are taken as fast as slots come
free; and a submitter who sends more than can run has no use for being told sooner that they are
stored. But he is told, soon: who waits for a slot in vain, or for long, is stored as ready.

Once jobs are waiting, submits and claims share the store. If workers are idle although there is
work, they go first, so that those jobs are soon gone.
"""

from __future__ import annotations

from msgspec import Struct


class FreeSlots(Struct, frozen=True):
    """How many slots are free, and whether jobs are ready for them already."""

    free: int
    wanted: bool

    @property
    def are_taken(self) -> bool:
        """Whether a submit must wait in any case."""
        return self.wanted and not self.free


class Patience(Struct, frozen=True):
    """How long submits wait for slots: while none comes free, and at most."""

    none_free_s: float
    most_s: float


class Admission:
    """Says how many submits the next transaction takes, at most `most`; learns from the last."""

    def __init__(self, most: int, patience: Patience) -> None:
        self._most = most
        self._patience = patience
        self._free_at = float("-inf")
        self._hopes = False
        """Whether slots are free that nobody waits for."""
        self._in_vain = False
        """Whether the last submits could have none of those."""

    def room(self, slots: FreeSlots, now: float, oldest_at: float) -> int:
        """How many submits to take now, the oldest of which came then; 0 to wait for a slot."""
        if slots.free:
            self._free_at = now
        self._hopes = bool(slots.free) and not slots.wanted
        self._in_vain = self._in_vain and not slots.wanted
        if self._in_vain:
            return self._most
        return room(slots, self._most, self._patience, now - self._free_at, now - oldest_at)

    def took(self, *, any_started: bool) -> None:
        """Submits were taken; whether any of them could have a slot."""
        if self._hopes:
            self._in_vain = not any_started


def room(
    slots: FreeSlots, most: int, patience: Patience, none_free_s: float, oldest_s: float
) -> int:
    """How many submits to take now, at most `most`; 0 to wait for a slot.

    `none_free_s` is for how long no slot was free, `oldest_s` how long the oldest submit waits.
    """
    if slots.wanted:
        return max(most - slots.free, most // 4, 1)
    if oldest_s >= patience.most_s:
        return most
    if slots.free:
        return min(slots.free, most)
    return 0 if none_free_s < patience.none_free_s else most
