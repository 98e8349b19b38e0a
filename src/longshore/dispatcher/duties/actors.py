"""Actors: has the store remove those that were stopped, and forget old ids of messages."""

from __future__ import annotations

from collections.abc import Callable

from longshore.dispatcher.alarms import Alarms
from longshore.model.actor import Reply
from longshore.ports import Store


async def tend_actors(store: Store, alarms: Alarms, tell: Callable[[Reply], None]) -> None:
    """Does what is left to do for actors, and tells who asked one that is gone."""
    tended = await store.tend_actors()
    for reply in tended.replies:
        tell(reply)
    if tended.more:
        alarms.actors.set_in(0)
