"""What the overview says of limits and schedules: looked at now and then, once for all readers.

Only who reaches all queues and kinds is told. What is told are names and numbers, no payloads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from longshore.client.connection import Connection, all_of
from longshore.errors import LongshoreError
from longshore.gateway.asking import asked_by
from longshore.gateway.changes import Changes
from longshore.model.limits import KeyView
from longshore.model.schedule import Schedule

log = logging.getLogger("longshore.gateway")

EVERY_S: Final = 5.0
MOST_KEYS: Final = 5
"""So many keys that jobs wait for are looked at."""
MOST_SCHEDULES: Final = 200
"""So many schedules are looked at, by name."""


class Sight(Struct, frozen=True):
    """What was seen: keys that jobs wait for, and schedules that paused themselves."""

    keys: Sequence[KeyView] = ()
    paused: Sequence[Schedule] = ()


class Lookout:
    """Looks at limits and schedules, at most every few seconds."""

    def __init__(self, connection: Connection, changes: Changes) -> None:
        self._connection = connection
        self._changes = changes
        self._number = -1
        self._sight = Sight()
        self._looked_at = float("-inf")

    @property
    def is_behind(self) -> bool:
        """Whether something has changed since it looked: then it should be asked again soon."""
        return self._number != self._changes.number

    async def sight(self) -> Sight:
        """What was seen a few seconds ago at most."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= EVERY_S:
            self._looked_at, self._number = now, self._changes.number
            try:
                self._sight = await self._look()
            except LongshoreError as error:
                # An older dispatcher does not know the request; the overview goes without.
                log.debug("limits and schedules were not looked at: %s", error)
                self._sight = Sight()
        return self._sight

    async def _look(self) -> Sight:
        connection = self._connection
        with asked_by(None):
            keys, schedules = await all_of(
                [
                    connection.limits.keys(most=MOST_KEYS, waited_for=True),
                    connection.schedules.list(most=MOST_SCHEDULES),
                ]
            )
        paused = [one for one in schedules if one.state.paused_at and one.state.failures]
        return Sight(tuple(keys), tuple(paused))
