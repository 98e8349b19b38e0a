"""Expiry: fails jobs that did not begin in time."""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.waiters import Waiters
from longshore.ports import Store

CHUNK: Final = 1000


async def expire(store: Store, waiters: Waiters) -> None:
    """Fails jobs that are past their deadline, and tells the requests that wait for them."""
    while True:
        ended = await store.expire(CHUNK)
        for one in ended:
            waiters.tell(one)
        if len(ended) < CHUNK:
            return
