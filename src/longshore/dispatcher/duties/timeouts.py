"""Timeouts: attempts that ran past their time, and whose worker did not stop them."""

from __future__ import annotations

from random import Random

from longshore.core.timing import settle_failure
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.roster import Roster
from longshore.model.attempt import Attempt
from longshore.model.ends import Failed, Retried
from longshore.model.job import JobError, Reason
from longshore.model.worker import Slot
from longshore.ports import Clock, Store


async def end_overdue(
    store: Store,
    margin_s: float,
    clock: Clock,
    random: Random,
    roster: Roster,
    attendant: Attendant,
) -> None:
    """Ends attempts `margin_s` after their time: the backstop behind the workers' own timeouts."""
    now = clock.now()
    for claimed in await store.overdue():
        attendance = roster.of_session(Slot(claimed.worker, claimed.session))
        if attendance is not None and attendance.is_overdue(claimed, now, margin_s):
            attendant.ends.end(_timed_out(claimed, random.random()), attendance)
            attendant.abort(attendance, [(claimed.id, claimed.token)], "timed out")


def _timed_out(claimed: Attempt, luck: float) -> Failed | Retried:
    message = f"took longer than its timeout of {claimed.options.timeout_s:g} s"
    error = JobError(Reason.TIMED_OUT, message + ", and its worker did not stop it")
    return settle_failure(claimed, error, luck, forced=True)
