"""Cancels: attempts on this dispatcher's workers that a client of any dispatcher cancelled."""

from __future__ import annotations

from longshore.dispatcher.ends import Ends
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.sessions.roster import Roster
from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled
from longshore.model.worker import Slot


async def heed_cancels(
    environment: Environment, roster: Roster, link: WorkerLink, ends: Ends
) -> None:
    """Has cancelled attempts stopped, and ends those that do not stop within `cancel_grace_s`."""
    id, store, settings, clock, _ = environment
    if not len(roster):
        return
    for claimed in await store.cancelling(id):
        session = roster.of_session(Slot(claimed.worker, claimed.session))
        # Without a session here the worker is on its way to another one, or to be lost.
        if session is None:
            continue
        attempt = claimed.id, claimed.token
        if session.stopping_s(attempt, clock.now()) >= settings.cancel_grace_s:
            ends.end(_forced(claimed), session)
        link.abort(session, attempt, "cancelled")


def _forced(claimed: Attempt) -> Cancelled:
    info = "its worker did not stop it in time"
    return Cancelled(claimed.id, claimed.token, forced=True, info=info)
