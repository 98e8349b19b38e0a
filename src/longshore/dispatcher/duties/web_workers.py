"""Web workers: finds out which of their jobs ended through another gateway or dispatcher."""

from __future__ import annotations

from typing import Final

from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.full import FullSessions
from longshore.dispatcher.sessions.roster import Roster
from longshore.wire.dispatcher_side import FullSession

SETTLED_S: Final = 1.0
"""What was given later than so long ago is not looked for."""


async def read_back_proxied(environment: Environment, roster: Roster, full: FullSessions) -> None:
    """Reads what is placed on busy web workers, and frees the slots of what ended elsewhere."""
    until = environment.clock.now() - SETTLED_S
    busy = [
        session
        for session in roster
        if isinstance(session, FullSession) and session.is_proxied and _is_old(session, until)
    ]
    if busy:
        await full.read_back(busy)


def _is_old(session: FullSession, until: float) -> bool:
    given = (sent.given_at for sent in session.placed.values() if not sent.reported)
    return any(at is None or at < until for at in given)
