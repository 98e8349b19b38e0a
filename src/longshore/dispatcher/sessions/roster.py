"""The roster: the sessions of the workers that this dispatcher attends.

It is memory that may be lost: the store knows which workers belong to which dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from longshore.core.scheduler import Scheduler
from longshore.model.worker import KindInfo, SessionKey
from longshore.wire.dispatcher_side import Session

_NO_SESSIONS: Final[Mapping[UUID, Session]] = {}


class Roster:
    """The sessions, by peer and by worker. Tells the scheduler which begin and end."""

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
        """A session begins. An earlier one of its worker is over."""
        self.remove(self._by_worker.get(session.info.id))
        self._by_peer.setdefault(session.peer, {})[session.info.id] = session
        self._by_worker[session.info.id] = session
        self.scheduler.joined(session)

    def remove(self, session: Session | None) -> None:
        """A session is over."""
        if session is None or self._by_worker.get(session.info.id) is not session:
            return
        del self._by_worker[session.info.id]
        through = self._by_peer[session.peer]
        del through[session.info.id]
        if not through:
            del self._by_peer[session.peer]
        self.scheduler.left(session)

    def clear(self) -> None:
        """All sessions are over."""
        for session in self:
            self.remove(session)

    def of_peer(self, peer: bytes) -> Mapping[UUID, Session]:
        """The sessions of this peer, by worker, the oldest first."""
        return self._by_peer.get(peer, _NO_SESSIONS)

    def of_session(self, slot: SessionKey) -> Session | None:
        """The session with exactly this number, if it is here."""
        session = self._by_worker.get(slot.worker)
        return session if session and session.number == slot.session else None

    def of_worker(self, worker: UUID) -> Session | None:
        """The session of a worker, if it is here."""
        return self._by_worker.get(worker)

    def session_of(self, worker: UUID) -> int:
        """The number of a worker's session; 0 if it has none here."""
        session = self._by_worker.get(worker)
        return session.number if session else 0

    def kinds(self) -> dict[str, KindInfo]:
        """The kinds that the workers serve. Of what an app declares, web services know nothing."""
        known: dict[str, KindInfo] = {}
        for info in sorted(self.scheduler.infos(), key=lambda info: info.service is None):
            known.update(info.kinds)
        return known
