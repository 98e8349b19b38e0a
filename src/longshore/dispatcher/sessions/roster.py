"""The roster: which workers this dispatcher attends.

All of it is memory that can be lost: the store knows who is attended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from longshore.core.scheduler import Scheduler
from longshore.model.worker import KindInfo, Slot
from longshore.wire.dispatcher_side import Session

_NOBODY: Final[Mapping[UUID, Session]] = {}


class Roster:
    """Attended workers, by peer and by session. Tells the scheduler who comes and goes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._by_peer: dict[bytes, dict[UUID, Session]] = {}
        self._by_worker: dict[UUID, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_worker.values()))

    def __len__(self) -> int:
        return len(self._by_worker)

    def __contains__(self, session: Session) -> bool:
        return self._by_worker.get(session.info.id) is session

    def add(self, session: Session) -> None:
        """A worker is attended; an earlier session of it is over."""
        self.remove(self._by_worker.get(session.info.id))
        self._by_peer.setdefault(session.peer, {})[session.info.id] = session
        self._by_worker[session.info.id] = session
        self.scheduler.joined(session)

    def remove(self, session: Session | None) -> None:
        """A worker is not attended any more."""
        if session is None or self._by_worker.get(session.info.id) is not session:
            return
        del self._by_worker[session.info.id]
        through = self._by_peer[session.peer]
        del through[session.info.id]
        if not through:
            del self._by_peer[session.peer]
        self.scheduler.left(session)

    def clear(self) -> None:
        """No worker is attended any more."""
        for session in self:
            self.remove(session)

    def of_peer(self, peer: bytes) -> Mapping[UUID, Session]:
        """The sessions that talk through this peer, by worker, the oldest first."""
        return self._by_peer.get(peer, _NOBODY)

    def of_session(self, slot: Slot) -> Session | None:
        """The session with exactly this number, if it is attended here."""
        session = self._by_worker.get(slot.worker)
        return session if session and session.number == slot.session else None

    def session_of(self, worker: UUID) -> int:
        """The session in which a worker is attended; 0 if it is not."""
        session = self._by_worker.get(worker)
        return session.number if session else 0

    def kinds(self) -> dict[str, KindInfo]:
        """What the attended workers serve."""
        known: dict[str, KindInfo] = {}
        for info in self.scheduler.infos():
            known.update(info.kinds)
        return known
