"""Renewal: says in the store that this dispatcher lives."""

from __future__ import annotations

from longshore.dispatcher.environment import Environment
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.plain import PlainSessions
from longshore.dispatcher.sessions.roster import Roster


async def renew(
    environment: Environment, name: str, own_lease: OwnLease, roster: Roster, plain: PlainSessions
) -> None:
    """Renews the dispatcher's own lease; if it came too late, nobody is attended any more."""
    sent_at = environment.clock.now()
    await environment.store.renew(environment.id, name)
    if own_lease.has_lapsed():
        # They come back by themselves, in sessions that nobody has declared lost.
        plain.start_over()
        roster.clear()
    own_lease.renewed(sent_at)
