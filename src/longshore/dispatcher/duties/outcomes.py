"""Outcomes: finds what clients wait for here, and what came about through other dispatchers."""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.waiters import Waiters
from longshore.model.actor import Reply
from longshore.model.job import Ended
from longshore.ports import Store

CHUNK: Final = 5_000


async def find_outcomes(store: Store, waiters: Waiters[Ended]) -> None:
    """Tells waiting requests which of their jobs have ended."""
    awaited, added = waiters.awaited(), waiters.added
    for start in range(0, len(awaited), CHUNK):
        for ended in await store.ended(awaited[start : start + CHUNK]):
            waiters.tell_first(ended, added)


async def find_replies(store: Store, waiters: Waiters[Reply]) -> None:
    """Tells waiting requests which of their asks have a reply."""
    awaited = waiters.awaited()
    for start in range(0, len(awaited), CHUNK):
        for reply in await store.replies(awaited[start : start + CHUNK]):
            waiters.tell(reply)
