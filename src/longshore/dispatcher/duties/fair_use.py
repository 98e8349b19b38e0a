"""Fair use: tells the store how long the jobs of each fair key took."""

from __future__ import annotations

from typing import Final

from longshore.model.attempt import Attempt
from longshore.model.ends import End, NotBegun, Released, Retried, Snoozed
from longshore.model.fair import FairKey, FairUse
from longshore.ports import Store

MOST_KEYS: Final = 100_000
"""Of so many keys at most it is told at once; of others it is not counted until then."""

_BEGIN_AGAIN: Final = Retried | Snoozed | Released | NotBegun
"""After these a job is not over: it takes more time, and is charged once."""


class FairUses:
    """Sums up what workers report, and now and then tells it for all keys at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._uses: dict[FairKey, tuple[int, float]] = {}

    def took(self, attempt: Attempt, end: End, seconds: float) -> None:
        """An attempt at a job with a fair key ended so, after so long."""
        key = FairKey(attempt.lane, attempt.priority, attempt.options.fair)
        if not attempt.lane or (len(self._uses) >= MOST_KEYS and key not in self._uses):
            return
        runs, total_s = self._uses.get(key, (0, 0.0))
        is_over = not isinstance(end, _BEGIN_AGAIN)
        self._uses[key] = runs + is_over, total_s + seconds

    async def tell(self) -> None:
        """Tells what came since the last time. What the store may not have taken is dropped."""
        uses, self._uses = self._uses, {}
        if uses:
            await self._store.note_use([FairUse(key, *use) for key, use in uses.items()])
