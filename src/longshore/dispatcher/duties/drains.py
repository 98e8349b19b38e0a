"""Drains: workers of this dispatcher that somebody, anywhere, told to leave."""

from __future__ import annotations

from uuid import UUID

from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.roster import Roster
from longshore.ports import Store


async def heed_drains(
    store: Store, dispatcher: UUID, roster: Roster, commits: Commits, attendant: Attendant
) -> None:
    """Tells workers to leave that are to drain, and writes down who drains by itself."""
    if not len(roster):
        return
    draining = frozenset(await store.draining(dispatcher))
    if attendant.heed_drains(draining):
        roster.scheduler.lanes.mark_all()
        commits.wake()
    for attendance in roster:
        # One that drains by itself said so, and the store may have been away just then.
        if attendance.draining and attendance.info.id not in draining:
            await store.set_draining(attendance.info.id, True)
