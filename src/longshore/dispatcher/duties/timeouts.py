"""Timeouts: attempts that ran past their time, and whose worker did not stop them."""

from __future__ import annotations

from random import Random

from longshore.config import DispatcherSettings
from longshore.core.timing import settle_failure
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.roster import Roster
from longshore.model.job import Claimed, JobError, Reason
from longshore.model.worker import Seat
from longshore.ports import Clock, Store
from longshore.wire.dispatcher_side import Attendance


class Timeouts:
    """The backstop behind the workers' own: ends attempts `timeout_margin_s` after their time."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        clock: Clock,
        random: Random,
        roster: Roster,
        attendant: Attendant,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._random = random
        self._roster = roster
        self._attendant = attendant

    async def find(self) -> None:
        """Ends the attempts of this dispatcher's workers that are overdue."""
        now, margin_s = self._clock.now(), self._settings.timeout_margin_s
        for claimed in await self._store.overdue():
            attendance = self._roster.of_seat(Seat(claimed.worker, claimed.session))
            if attendance is not None and attendance.is_overdue(claimed, now, margin_s):
                self._time_out(claimed, attendance)

    def _time_out(self, claimed: Claimed, attendance: Attendance) -> None:
        message = f"took longer than its timeout of {claimed.options.timeout_s:g} s"
        error = JobError(Reason.TIMED_OUT, message + ", and its worker did not stop it")
        end = settle_failure(claimed, error, self._random.random(), forced=True)
        self._attendant.ends.end(end, attendance)
        self._attendant.abort(attendance, [(claimed.id, claimed.token)], "timed out")
