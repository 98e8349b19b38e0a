"""Timeouts: ends attempts that ran too long, and that their workers did not stop."""

from __future__ import annotations

from longshore.core.recovery import can_recover, recovering
from longshore.core.timing import settle_failure
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.sessions.roster import Roster
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Failed, Retried
from longshore.model.job import JobError, Reason
from longshore.model.worker import SessionKey


async def end_overdue(
    environment: Environment, roster: Roster, link: WorkerLink, ends: Ends
) -> None:
    """Ends attempts past their timeout. Workers do so themselves; this catches what they miss."""
    _, store, settings, clock, random = environment
    now = clock.now()
    for claimed in await store.overdue():
        session = roster.of_session(SessionKey(claimed.worker, claimed.session))
        if session is not None and session.is_overdue(claimed, now, settings.timeout_margin_s):
            end: End = _timed_out(claimed, random.random())
            if claimed.options.turn and can_recover(session.info, claimed.kind):
                end = recovering(claimed, end)
            ends.end(end, session)
            link.abort(session, (claimed.id, claimed.token), "timed out")


def _timed_out(claimed: Attempt, luck: float) -> Failed | Retried:
    message = f"took longer than its timeout of {claimed.options.timeout_s:g} s"
    error = JobError(Reason.TIMED_OUT, message + ", and its worker did not stop it")
    return settle_failure(claimed, error, luck, forced=True)
