"""Changes: how often something changed, and the requests that wait for the next time.

Theory. A gateway shows what is in the store, and must not ask again and again whether it is still
so. Every commit that people can see something of raises a number here: a commit of this dispatcher
(`noticed_store`), and a hint of another one. A gateway waits with one request (AWAITCHANGE) until
the number is another than the one it knows, and only then looks. The number says nothing of what
changed, and counts from the start of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID

from longshore.wire.change_messages import AwaitChange, ChangeMark


class Changes:
    """The number of changes that this dispatcher knows of."""

    def __init__(self) -> None:
        self.number = 0
        self._next = asyncio.Event()

    def changed(self) -> None:
        """Something has changed: whoever waits for that is told."""
        self.number += 1
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, number: int, wait_s: float) -> int:
        """The number, once it is another one, or after `wait_s`."""
        if number == self.number:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._next.wait()
        return self.number


async def next_mark(
    request: AwaitChange,
    dispatcher: UUID,
    changed_after: Callable[[int, float], Awaitable[int]],
    most_s: float,
) -> ChangeMark:
    """The mark of now: once it is another than the one that was seen, or after `wait_s`."""
    seen = request.seen
    number = seen.number if seen is not None and seen.dispatcher == dispatcher else -1
    wait_s = min(max(0.0, request.wait_s), most_s)
    return ChangeMark(dispatcher, await changed_after(number, wait_s))
