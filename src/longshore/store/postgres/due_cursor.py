"""Where the search for due jobs begins.

Theory. A job that came due leaves a dead entry at the head of the index of delayed jobs, and every
later search walks over it until a vacuum removes it: see `cursors`, where claims have the same
trouble. Delayed jobs are found in the order of their times. So everything that was due up to some
time has been found, and the next search begins a little before that time, the *mark*.

A job can be delayed until before the mark: its submitter committed late, or another process held
its row when the mark passed it. So now and then a search looks from the very beginning, less often
if that costs much.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

FULL_LOOK_S: Final = 2.0
LOOK_SHARE: Final = 20.0
LONGEST_REST_S: Final = 10.0
TRAIL: Final = timedelta(seconds=1)
EVER: Final = datetime.min.replace(tzinfo=UTC)


class DueCursor:
    """How far the search for due jobs came, in this process."""

    def __init__(self) -> None:
        self._mark = EVER
        self._looks_at = float("-inf")

    def begin(self, now: float) -> datetime:
        """From which time on to search now; `EVER` is a full look."""
        return EVER if now >= self._looks_at else self._mark

    def found(self, since: datetime, up_to: datetime, cost_s: float, now: float) -> None:
        """A search that began at `since` has found all that was due up to a time of the server."""
        self._mark = up_to - TRAIL
        if since == EVER:
            self._looks_at = now + min(max(FULL_LOOK_S, cost_s * LOOK_SHARE), LONGEST_REST_S)
