"""Outcomes: finds jobs that clients wait for here, and that ended through other dispatchers."""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.waiters import Waiters
from longshore.ports import Store

CHUNK: Final = 5_000


async def find_outcomes(store: Store, waiters: Waiters) -> None:
    """Tells waiting requests which of their jobs have ended."""
    awaited = waiters.awaited()
    for start in range(0, len(awaited), CHUNK):
        for ended in await store.ended(awaited[start : start + CHUNK]):
            waiters.tell(ended)
