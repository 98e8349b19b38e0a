"""How long to wait before a host that ended is started again."""

from __future__ import annotations

import asyncio

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 10.0
STEADY_S = 5.0


class Restarts:
    """No pause after a host that was up for a while; a growing one after hosts that were not."""

    def __init__(self) -> None:
        self._started_at: float | None = None
        self._pause_s = 0.0

    def note_start(self) -> None:
        """Notes that a host starts now."""
        self._started_at = asyncio.get_running_loop().time()

    def pause_s(self) -> float:
        """How long to wait now, after a host that ended or could not be started."""
        now = asyncio.get_running_loop().time()
        if self._started_at is None or now - self._started_at >= STEADY_S:
            self._pause_s = 0.0
        else:
            self._pause_s = min(max(FIRST_PAUSE_S, self._pause_s * 2), LONGEST_PAUSE_S)
        return self._pause_s
