"""Outcomes: jobs that clients wait for, and that ended through other dispatchers."""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.waiters import Waiters
from longshore.ports import Store

CHUNK: Final = 5_000


class Outcomes:
    """Tells whoever waits here what ended elsewhere."""

    def __init__(self, store: Store, waiters: Waiters) -> None:
        self._store = store
        self._waiters = waiters

    async def find(self) -> None:
        """Asks for the outcomes of all jobs that somebody waits for."""
        awaited = self._waiters.awaited()
        for start in range(0, len(awaited), CHUNK):
            for ended in await self._store.ended(awaited[start : start + CHUNK]):
                self._waiters.tell(ended)
