"""What the overview says of limits, schedules and turns: looked at now and then, for all readers.

Only who reaches all queues and kinds is told. What is told are names and numbers, no payloads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from longshore.client.connection import Connection, all_of
from longshore.core.turns import LONG_TURN_S, is_turn_kind, may_hang
from longshore.errors import LongshoreError
from longshore.gateway.asking import asked_by
from longshore.gateway.changes import Changes
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.limits import KeyView
from longshore.model.schedule import Schedule

log = logging.getLogger("longshore.gateway")

EVERY_S: Final = 5.0
MOST_KEYS: Final = 5
"""So many keys that jobs wait for are looked at."""
MOST_SCHEDULES: Final = 200
"""So many schedules are looked at, by name."""
MOST_KINDS: Final = 10
MOST_TURNS: Final = 20
"""Of so many kinds so many turns that run long are looked at."""


class Sight(Struct, frozen=True):
    """What was seen: keys that jobs wait for, schedules that paused themselves, long turns."""

    keys: Sequence[KeyView] = ()
    paused: Sequence[Schedule] = ()
    turns: Sequence[Job] = ()


class Lookout:
    """Looks at limits, schedules and turns, at most every few seconds."""

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
                log.debug("limits, schedules and turns were not looked at: %s", error)
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
        return Sight(tuple(keys), tuple(paused), await self._long_turns())

    async def _long_turns(self) -> tuple[Job, ...]:
        """The turns that may hang, of the kinds of which some turn runs."""
        connection = self._connection
        kinds = {
            lane.kind
            for lane in await connection.lanes()
            if is_turn_kind(lane.kind) and lane.counts.get(JobState.RUNNING.value)
        }
        running = JobFilter((JobState.RUNNING,), slower_s=LONG_TURN_S, limit=MOST_TURNS)
        some = sorted(kinds)[:MOST_KINDS]
        pages = await all_of([connection.jobs(replace(running, kind=kind)) for kind in some])
        found = [one for page in pages for one in page.jobs]
        return tuple(one for one in found if may_hang(one.options, LONG_TURN_S))
