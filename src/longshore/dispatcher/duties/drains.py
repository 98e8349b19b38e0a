"""Drains: tells workers of this dispatcher to leave that a client of any dispatcher drained."""

from __future__ import annotations

from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.sessions.roster import Roster


async def heed_drains(
    environment: Environment, roster: Roster, commits: Commits, link: WorkerLink
) -> None:
    """Tells workers to leave that are to drain, and writes down which drain by themselves."""
    if not len(roster):
        return
    draining = frozenset(await environment.store.draining(environment.id))
    before = [session.draining for session in roster]
    for session in roster:
        link.tell(session, session.heed(session.worker in draining))
    if before != [session.draining for session in roster]:
        roster.scheduler.lanes.mark_all()
        commits.wake()
    for session in roster:
        # The worker said that it drains, but the store may have been away just then.
        if session.draining and session.worker not in draining:
            await environment.store.set_draining(session.worker, True)
