"""Work that goes on beside what started it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Tasks:
    """Tasks that are under way. Each is forgotten when it ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begins some work."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ended(self) -> None:
        """Returns when all that is under way has ended, however it did."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel(self) -> None:
        """Cancels all that is under way, and returns when it has ended."""
        for task in self._tasks:
            task.cancel()
        await self.ended()
