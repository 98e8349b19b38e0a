"""Renewal: renews the dispatcher's own lease in the store."""

from __future__ import annotations

from longshore.dispatcher.environment import Environment
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.plain import PlainSessions
from longshore.dispatcher.sessions.roster import Roster


async def renew(
    environment: Environment, name: str, own_lease: OwnLease, roster: Roster, plain: PlainSessions
) -> None:
    """Renews the dispatcher's lease. If that came too late, it drops all its sessions."""
    sent_at = environment.clock.now()
    await environment.store.renew(environment.id, name)
    if own_lease.has_lapsed():
        # Others may have declared them lost. The workers come back in new sessions.
        plain.start_over()
        roster.clear()
    own_lease.renewed(sent_at)
