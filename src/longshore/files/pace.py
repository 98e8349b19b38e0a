"""Keeps transfers below a number of bytes a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

BURST_S: Final = 0.25
"""So many seconds' worth may go at once after a pause."""


class Pace:
    """The bandwidth that all transfers of a process share; 0 is no limit."""

    def __init__(
        self,
        bytes_per_s: int,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = bytes_per_s
        self._now = now
        self._sleep = sleep
        self._free_at = float("-inf")

    async def take(self, size: int) -> None:
        """Waits until so many bytes may go."""
        if not self._rate:
            return
        now = self._now()
        begins = max(self._free_at, now - BURST_S)
        self._free_at = begins + size / self._rate
        if self._free_at > now:
            await self._sleep(self._free_at - now)
