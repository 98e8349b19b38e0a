"""Hints: what other processes did, as far as the store tells of it at once."""

from __future__ import annotations

from typing import assert_never

from longshore.dispatcher.keeper import Work
from longshore.dispatcher.pulse import Alarms, Pulse
from longshore.ports import Hint, Store


class Hints:
    """Does at once what a poll would do later."""

    def __init__(self, store: Store, look: Work, alarms: Alarms, pulse: Pulse) -> None:
        self._store = store
        self._look = look
        self._alarms = alarms
        self._pulse = pulse

    async def watch(self) -> None:
        """Follows the hints for as long as it runs."""
        async for hint in self._store.watch():
            match hint:
                case Hint.WORK:
                    await self._pulse.surviving(self._look)
                case Hint.CANCEL:
                    self._alarms.cancels.set_in(0)
                case Hint.ENDED:
                    self._alarms.outcomes.set_in(0)
                case _:
                    assert_never(hint)
