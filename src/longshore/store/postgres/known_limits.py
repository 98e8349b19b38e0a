"""What a process remembers of limits between batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.model.ends import End
from longshore.store.postgres.pump_result import PumpResult

MOST_KNOWN: Final = 100_000
"""How many keys of limits, and attempts that hold some, are remembered."""


class KnownLimits:
    """The keys of limits whose rows are stored, and those of the attempts that claims started."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._held: dict[int, frozenset[str]] = {}
        """The keys of attempts, by token."""

    def released(self, ends: Sequence[End]) -> set[str]:
        """The keys that these ends may bring room to, as far as this process knows."""
        if not self._held:
            return set()
        keys = (self._held.get(end.token) for end in ends)
        return {key for some in keys if some is not None for key in some}

    def note(self, drawn: PumpResult) -> None:
        """Remembers which keys the attempts hold that began; forgets those that ended."""
        for end in drawn.pumped.finished if self._held else ():
            self._held.pop(end.token, None)
        for scan in drawn.scans:
            if scan.limited is None:
                continue
            self.keys |= scan.limited.keys
            self.keys -= scan.limited.unknown
            for one in scan.claimed:
                if keys := scan.limited.held[one.token]:
                    self._held[one.token] = keys
        if len(self.keys) > MOST_KNOWN:
            self.keys.clear()
        while len(self._held) > MOST_KNOWN:
            # Such an attempt was lost, or ended elsewhere. `open_limits` finds what it left.
            del self._held[next(iter(self._held))]
