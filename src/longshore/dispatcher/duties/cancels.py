"""Cancels: stops attempts on this dispatcher's workers that any client cancelled."""

from __future__ import annotations

from longshore.dispatcher.ends import Ends
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.sessions.roster import Roster
from longshore.model.ends import Cancelled
from longshore.model.worker import SessionKey


async def heed_cancels(
    environment: Environment, roster: Roster, link: WorkerLink, ends: Ends
) -> None:
    """Tells workers to stop cancelled attempts; after `cancel_grace_s` ends them by force."""
    id, store, settings, clock, _ = environment
    if not len(roster):
        return
    for claimed in await store.cancelling(id):
        session = roster.of_session(SessionKey(claimed.worker, claimed.session))
        # Without a session here, the worker joins another dispatcher or will be lost.
        if session is None:
            continue
        attempt = claimed.id, claimed.token
        if session.stopping_s(attempt, clock.now()) >= settings.cancel_grace_s:
            info = "its worker did not stop it in time"
            ends.end(Cancelled(*attempt, forced=True, info=info), session)
        link.abort(session, attempt, "cancelled")
