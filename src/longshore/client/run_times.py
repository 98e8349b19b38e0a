"""What a client knows of how long kinds run: what dispatchers told it within the last minute."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from longshore.model.run_time import RunTime

FRESH_S: Final = 60.0
"""For how long an answer is good enough."""
MOST_KINDS: Final = 1_000
"""Of how many kinds a client asks at once. Of further ones it knows nothing, which is allowed."""


class KnownRunTimes:
    """The answers so far. A kind without a figure is remembered, too."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, RunTime | None]] = {}

    def missing(self, kinds: Collection[str], now: float) -> tuple[str, ...]:
        """Those kinds of which nothing fresh is known."""
        self._known = {kind: one for kind, one in self._known.items() if one[0] > now}
        return tuple(sorted(set(kinds) - self._known.keys())[:MOST_KINDS])

    def learn(self, asked: Iterable[str], answer: Iterable[RunTime], now: float) -> None:
        """A dispatcher answered what it was asked."""
        found = {one.kind: one for one in answer}
        for kind in asked:
            self._known[kind] = now + FRESH_S, found.get(kind)

    def of(self, kinds: Iterable[str]) -> dict[str, RunTime]:
        """How long these kinds run, where that is known."""
        known = {kind: self._known[kind][1] for kind in kinds if kind in self._known}
        return {kind: one for kind, one in known.items() if one is not None}
