"""Renewal: says in the store that this dispatcher lives."""

from __future__ import annotations

from uuid import UUID

from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.plain import PlainAttendant
from longshore.dispatcher.roster import Roster
from longshore.ports import Clock, Store


async def renew(
    store: Store,
    dispatcher: UUID,
    name: str,
    clock: Clock,
    own_lease: OwnLease,
    roster: Roster,
    plain: PlainAttendant,
) -> None:
    """Renews the dispatcher's own lease; if it came too late, nobody is attended any more."""
    sent_at = clock.now()
    await store.renew(dispatcher, name)
    if own_lease.has_lapsed():
        # They come back by themselves, in sessions that nobody has declared lost.
        plain.start_over()
        roster.clear()
    own_lease.renewed(sent_at)
