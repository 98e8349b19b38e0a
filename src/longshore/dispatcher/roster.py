"""The roster: which workers this dispatcher attends.

All of it is memory that can be lost: the store knows who is attended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from longshore.core.scheduler import Scheduler
from longshore.model.worker import KindInfo, Slot
from longshore.wire.dispatcher_side import Attendance

_NOBODY: Final[Mapping[UUID, Attendance]] = {}


class Roster:
    """Attended workers, by peer and by session. Tells the scheduler who comes and goes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._by_peer: dict[bytes, dict[UUID, Attendance]] = {}
        self._by_worker: dict[UUID, Attendance] = {}

    def __iter__(self) -> Iterator[Attendance]:
        return iter(list(self._by_worker.values()))

    def __len__(self) -> int:
        return len(self._by_worker)

    def __contains__(self, attendance: Attendance) -> bool:
        return self._by_worker.get(attendance.info.id) is attendance

    def add(self, attendance: Attendance) -> None:
        """A worker is attended; an earlier session of it is over."""
        self.remove(self._by_worker.get(attendance.info.id))
        self._by_peer.setdefault(attendance.peer, {})[attendance.info.id] = attendance
        self._by_worker[attendance.info.id] = attendance
        self.scheduler.joined(attendance)

    def remove(self, attendance: Attendance | None) -> None:
        """A worker is not attended any more."""
        if attendance is None or self._by_worker.get(attendance.info.id) is not attendance:
            return
        del self._by_worker[attendance.info.id]
        through = self._by_peer[attendance.peer]
        del through[attendance.info.id]
        if not through:
            del self._by_peer[attendance.peer]
        self.scheduler.left(attendance)

    def clear(self) -> None:
        """No worker is attended any more."""
        for attendance in self:
            self.remove(attendance)

    def of_peer(self, peer: bytes) -> Mapping[UUID, Attendance]:
        """The attendances that talk through this peer, by worker, the oldest first."""
        return self._by_peer.get(peer, _NOBODY)

    def of_session(self, slot: Slot) -> Attendance | None:
        """The attendance of exactly this session."""
        attendance = self._by_worker.get(slot.worker)
        return attendance if attendance and attendance.session == slot.session else None

    def session_of(self, worker: UUID) -> int:
        """The session in which a worker is attended; 0 if it is not."""
        attendance = self._by_worker.get(worker)
        return attendance.session if attendance else 0

    def kinds(self) -> dict[str, KindInfo]:
        """What the attended workers serve."""
        known: dict[str, KindInfo] = {}
        for info in self.scheduler.infos():
            known.update(info.kinds)
        return known
