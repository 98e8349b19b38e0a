"""Cancels: attempts on this dispatcher's workers that somebody, anywhere, cancelled."""

from __future__ import annotations

from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.roster import Roster
from longshore.model.ends import Cancelled
from longshore.model.job import Claimed
from longshore.model.worker import Seat
from longshore.ports import Clock, Store
from longshore.wire.dispatcher_side import Attendance


class Cancels:
    """Has cancelled attempts stopped, and ends those that do not stop within `cancel_grace_s`."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        clock: Clock,
        roster: Roster,
        attendant: Attendant,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._clock = clock
        self._roster = roster
        self._attendant = attendant

    async def find(self) -> None:
        """Tells workers which attempts to stop."""
        if not len(self._roster):
            return
        for claimed in await self._store.cancelling(self._dispatcher):
            attendance = self._roster.of_seat(Seat(claimed.worker, claimed.session))
            # Without an attendance the worker is on its way to another session, or to be lost.
            if attendance is None:
                continue
            attempt = claimed.id, claimed.token
            if attendance.stopping_s(attempt, self._clock.now()) >= self._settings.cancel_grace_s:
                self._end_by_force(claimed, attendance)
            self._attendant.abort(attendance, [attempt], "cancelled")

    def _end_by_force(self, claimed: Claimed, attendance: Attendance) -> None:
        info = "its worker did not stop it in time"
        end = Cancelled(claimed.id, claimed.token, forced=True, info=info)
        self._attendant.ends.end(end, attendance)
