"""What clients ask of dispatchers about limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from longshore.model.limits import KeyView, LimitRule, Rate
from longshore.wire import limit_messages as m

Exchange = Callable[[m.LimitRequest], Awaitable[Any]]
"""Sends a request and gets the answer."""


class LimitRequests:
    """The requests about limits, each a method."""

    def __init__(
        self, exchange: Exchange, next_rid: Callable[[], int], new_id: Callable[[], UUID]
    ) -> None:
        self._exchange = exchange
        self._next_rid = next_rid
        self._new_id = new_id

    async def set(
        self,
        pattern: str,
        concurrency: int | None = None,
        rate: Rate | None = None,
        weight: float | None = None,
    ) -> None:
        """Sets the rule for the keys that match a pattern."""
        bounds = concurrency, rate, weight
        request = m.SetLimit(self._next_rid(), self._new_id(), pattern, *bounds)
        await self._exchange(request)

    async def remove(self, pattern: str) -> None:
        """Removes the rule for a pattern; raises `NotFound`."""
        await self._exchange(m.RemoveLimit(self._next_rid(), self._new_id(), pattern))

    async def rules(self) -> tuple[LimitRule, ...]:
        """Every rule, by pattern."""
        answer: tuple[LimitRule, ...] = await self._exchange(m.ListLimits(self._next_rid()))
        return answer

    async def key(self, key: str) -> KeyView:
        """What limits a key, and which jobs hold its slots."""
        answer: KeyView = await self._exchange(m.ShowKey(self._next_rid(), key))
        return answer

    async def keys(
        self, after: str = "", most: int = 25, *, waited_for: bool = False
    ) -> tuple[KeyView, ...]:
        """Some keys after one that something is known of; of those that jobs wait for, if told."""
        request = m.ListKeys(self._next_rid(), after, most, waited_for)
        answer: tuple[KeyView, ...] = await self._exchange(request)
        return answer
