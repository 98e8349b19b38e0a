"""A store that tells a meter how long each call takes, and which fail because it is away."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar, cast

from longshore.dispatcher.meter import Meter
from longshore.errors import StoreUnavailable
from longshore.ports import Store

T = TypeVar("T")


def metered(store: Store, meter: Meter | None) -> Store:
    """The same store, with every call measured. One wrapper serves all verbs, also new ones."""
    return store if meter is None else cast(Store, _Metered(store, meter))


class _Metered:
    """Stands in for a store. What is no call of it is handed through as it is."""

    def __init__(self, store: Store, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._store, name)
        if not callable(found):
            return found
        # Kept as an attribute: the next call does not come here.
        verb = self.__dict__[name] = self._verb(name, found)
        return verb

    def _verb(self, name: str, verb: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            answer = verb(*args, **named)
            return self._timed(name, answer) if isawaitable(answer) else answer

        return call

    async def _timed(self, verb: str, answer: Awaitable[T]) -> T:
        began = time.monotonic()
        try:
            found = await answer
        except StoreUnavailable:
            self._meter.call_failed(verb)
            raise
        self._meter.called(verb, time.monotonic() - began)
        return found
