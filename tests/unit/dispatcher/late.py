"""A store that does what it is asked at once, and answers late."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from longshore.ports import Store
from longshore.testing.faults import FaultyStore

Answer = TypeVar("Answer")


class LateStore(FaultyStore):
    """The next answers to a verb come so many seconds after the call was executed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._late: dict[str, deque[float]] = {}

    def delay(self, verb: str, *seconds: float) -> None:
        """The answers to the next calls of this verb are late, each by its number."""
        self._late[verb] = deque(seconds)

    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        late = self._late.get(verb)
        late_s = late.popleft() if late else 0.0
        answer = await super()._call(verb, call)
        if late_s:
            await asyncio.sleep(late_s)
        return answer
