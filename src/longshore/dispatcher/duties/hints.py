"""Hints: reacts at once to what other processes did, if the store tells of it."""

from __future__ import annotations

from typing import assert_never

from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.changes import Changes
from longshore.dispatcher.duty_runner import Work
from longshore.dispatcher.own_lease import OwnLease
from longshore.ports import Hint, Store


async def follow_hints(
    store: Store, look: Work, alarms: Alarms, own_lease: OwnLease, changes: Changes
) -> None:
    """Does at once what a poll would do later."""
    async for hint in store.watch():
        match hint:
            case Hint.WORK:
                await own_lease.surviving(look)
            case Hint.CANCEL:
                alarms.cancels.set_in(0)
            case Hint.ENDED:
                alarms.outcomes.set_in(0)
            case Hint.SENDS:
                alarms.sends.set_in(0)
            case Hint.CHANGE:
                changes.changed()
            case _:
                assert_never(hint)
