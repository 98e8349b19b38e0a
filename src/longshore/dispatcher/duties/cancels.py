"""Cancels: attempts on this dispatcher's workers that somebody, anywhere, cancelled."""

from __future__ import annotations

from uuid import UUID

from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.roster import Roster
from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled
from longshore.model.worker import Slot
from longshore.ports import Clock, Store


async def heed_cancels(
    store: Store,
    dispatcher: UUID,
    grace_s: float,
    clock: Clock,
    roster: Roster,
    attendant: Attendant,
) -> None:
    """Has cancelled attempts stopped, and ends those that do not stop within `grace_s`."""
    if not len(roster):
        return
    for claimed in await store.cancelling(dispatcher):
        attendance = roster.of_session(Slot(claimed.worker, claimed.session))
        # Without an attendance the worker is on its way to another session, or to be lost.
        if attendance is None:
            continue
        attempt = claimed.id, claimed.token
        if attendance.stopping_s(attempt, clock.now()) >= grace_s:
            attendant.ends.end(_forced(claimed), attendance)
        attendant.abort(attendance, [attempt], "cancelled")


def _forced(claimed: Attempt) -> Cancelled:
    info = "its worker did not stop it in time"
    return Cancelled(claimed.id, claimed.token, forced=True, info=info)
