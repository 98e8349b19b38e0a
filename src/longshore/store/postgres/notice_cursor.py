"""Where the search for notices of ends begins.

Theory. A notice that was told leaves a dead entry at the head of the index by number, and under an
old snapshot every later search would walk over all of them: see `cursors`, where claims have the
same trouble. So a search begins behind those that were found.

Numbers are given before the commit: a notice may appear behind higher ones that were found already.
So the search begins behind what was found `TRAIL_S` ago. Most transactions are over by then. For
what is later still, and for what another process took and could not tell, a search now and then
looks from the very beginning, less often if that costs much. Looks from the beginning go on until
one of them came through.
"""

from __future__ import annotations

from collections import deque
from typing import Final

FULL_LOOK_S: Final = 2.0
LOOK_SHARE: Final = 20.0
LONGEST_REST_S: Final = 10.0
TRAIL_S: Final = 5.0
STEP_S: Final = 0.5
"""How far it came is remembered so often."""
EVER: Final = 0


class NoticeCursor:
    """How far the search for notices came, in this process."""

    def __init__(self) -> None:
        self._mark = EVER
        self._came: deque[tuple[float, int]] = deque()
        self._looks_at = float("-inf")

    def begin(self, now: float) -> int:
        """Behind which number to search now; `EVER` is a full look."""
        while self._came and self._came[0][0] <= now - TRAIL_S:
            self._mark = self._came.popleft()[1]
        return EVER if now >= self._looks_at else self._mark

    def found(self, since: int, up_to: int, cost_s: float, now: float, *, is_all: bool) -> None:
        """A search behind `since` has found what there is up to a number, or all that there is."""
        last_at, last = self._came[-1] if self._came else (float("-inf"), self._mark)
        if up_to > last and now - last_at >= STEP_S:
            self._came.append((now, up_to))
        if since == EVER and is_all:
            self._looks_at = now + min(max(FULL_LOOK_S, cost_s * LOOK_SHARE), LONGEST_REST_S)
