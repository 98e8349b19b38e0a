"""Drains: workers of this dispatcher that a client of any dispatcher told to leave."""

from __future__ import annotations

from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.full import FullSessions
from longshore.dispatcher.sessions.roster import Roster


async def heed_drains(
    environment: Environment, roster: Roster, commits: Commits, sessions: FullSessions
) -> None:
    """Tells workers to leave that are to drain, and writes down who drains by itself."""
    if not len(roster):
        return
    draining = frozenset(await environment.store.draining(environment.id))
    if sessions.heed_drains(draining):
        roster.scheduler.lanes.mark_all()
        commits.wake()
    for session in roster:
        # One that drains by itself said so, and the store may have been away just then.
        if session.draining and session.worker not in draining:
            await environment.store.set_draining(session.worker, True)
