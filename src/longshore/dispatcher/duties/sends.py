"""Sends: puts messages that applications sent in their own transactions into mailboxes."""

from __future__ import annotations

import logging

from longshore.dispatcher.alarms import Alarms
from longshore.ports import Store

log = logging.getLogger("longshore.dispatcher")


async def deliver_sends(store: Store, alarms: Alarms) -> None:
    """Delivers what is there, and says what cannot be delivered."""
    delivered = await store.deliver_sends()
    for lost in delivered.refused:
        log.warning(
            "message '%s' (%s) of an application's transaction was not delivered: %s; "
            "`longshore undelivered` lists it",
            lost.name,
            lost.id,
            lost.why,
        )
    if delivered.count:
        # A first turn may be of a lane that is new here; a delayed one may be due soon.
        alarms.lanes.set_in(0)
        alarms.due.set_in(0)
    if delivered.more:
        alarms.sends.set_in(0)
