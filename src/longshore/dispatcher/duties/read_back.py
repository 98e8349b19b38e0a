"""Read back: after a lost answer, reads what the store has placed on the sessions."""

from __future__ import annotations

import asyncio

from longshore.core.scheduler import Scheduler
from longshore.dispatcher.commits import Commits, Give, by_session
from longshore.ports import Store


class ReadBack:
    """Makes uncertain sessions certain again (see `commits.py`)."""

    def __init__(self, store: Store, scheduler: Scheduler, commits: Commits, give: Give) -> None:
        self._store = store
        self._scheduler = scheduler
        self._commits = commits
        self._give = give
        self._lock = asyncio.Lock()

    async def read(self) -> None:
        """Reads what uncertain sessions own, and gives it to their workers."""
        # One at a time: a read from before a session became uncertain must not confirm it.
        if self._lock.locked():
            return
        async with self._lock:
            slots = self._scheduler.uncertain()
            if not slots or not self._commits.is_certain:
                return
            placed = by_session(await self._store.placed(slots))
            self._scheduler.confirm(slots)
        for slot, claimed in placed.items():
            self._give(slot, claimed)
        self._commits.wake()
