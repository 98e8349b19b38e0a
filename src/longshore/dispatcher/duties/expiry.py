"""Expiry: fails jobs that did not begin in time."""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.commits import Commits
from longshore.ports import Store

CHUNK: Final = 1000


async def expire(store: Store, commits: Commits) -> None:
    """Fails jobs that are past their deadline, and tells whoever waits for them."""
    while True:
        ended = await store.expire(CHUNK)
        commits.ended_elsewhere(ended)
        if len(ended) < CHUNK:
            return
