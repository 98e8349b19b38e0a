"""Sessions that are over: the store frees their jobs, now or when it answers again."""

from __future__ import annotations

import logging
from uuid import UUID

from msgspec import Struct

from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.roster import Roster
from longshore.errors import StoreUnavailable
from longshore.model.worker import LostWorker, WorkerInfo, WorkerView
from longshore.ports import OnLost
from longshore.wire.dispatcher_side import Session

log = logging.getLogger("longshore.dispatcher")


class Loss(Struct, frozen=True):
    """A session that the store must be told is over."""

    worker: UUID
    session: int
    why: str
    crash: bool
    undelivered: tuple[int, ...] = ()
    """The tokens of attempts that never reached the worker."""
    info: WorkerInfo | None = None
    """The worker, if the user is to hear of its loss. A goodbye is no loss."""


class Losses:
    """Declares workers lost. Repeats what the store did not hear until it does."""

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        roster: Roster,
        commits: Commits,
        on_lost: OnLost,
    ) -> None:
        self.roster = roster
        self._store = environment.store
        self._crash_limit = environment.settings.crash_limit
        self._commits = commits
        self._own_lease = own_lease
        self._on_lost = on_lost
        self._untold: list[Loss] = []

    @property
    def all_told(self) -> bool:
        """Whether the store knows every loss."""
        return not self._untold

    def own_silence_s(self) -> float:
        """For how long this dispatcher itself has not renewed its lease."""
        return self._own_lease.silent_s()

    async def lose(
        self, session: Session, why: str, *, crash: bool, lost: bool | None = None
    ) -> None:
        """A session is over: its worker gets no more jobs, and those it had go to others.

        The user hears of a worker that is `lost`. Unless told otherwise, a crash is a loss.
        """
        self.roster.remove(session)
        is_lost = crash if lost is None else lost
        if is_lost:
            about = {"worker": session.worker}
            log.warning("worker %s is lost: %s", session.name, why, extra=about)
        undelivered = tuple(one.token for one in session.undelivered())
        told = session.info if is_lost and not session.info.gateway else None
        await self.declare(Loss(session.worker, session.number, why, crash, undelivered, told))

    async def lose_silent(self, session: Session, why: str) -> None:
        """A worker is gone without a goodbye."""
        await self.lose(session, why, crash=self._is_crash(session.info), lost=True)

    def loss_of(self, worker: WorkerView, why: str) -> Loss:
        """The loss of a worker that has no session here."""
        told = None if worker.info.gateway else worker.info
        return Loss(worker.info.id, worker.session, why, self._is_crash(worker.info), info=told)

    def _is_crash(self, info: WorkerInfo) -> bool:
        """Whether its jobs may be why a worker is gone. No job runs in a gateway."""
        return not info.gateway and not self._own_lease.blames_store()

    async def declare(self, loss: Loss) -> None:
        """Tells the store, now or as soon as it answers again."""
        try:
            await self.harvest(loss)
        except StoreUnavailable as error:
            self._untold.append(loss)
            self._own_lease.saw_outage(error)

    async def harvest(self, loss: Loss) -> None:
        """Tells the store; raises if it does not answer."""
        harvested = await self._store.harvest(
            loss.worker,
            loss.session,
            loss.why,
            crash=loss.crash,
            crash_limit=self._crash_limit,
            undelivered=loss.undelivered,
        )
        self._commits.harvested(harvested)
        if harvested.lost and loss.info is not None:
            self._on_lost(LostWorker(loss.info, loss.session, loss.why))

    async def tell_again(self) -> None:
        """Repeats what the store did not hear."""
        untold, self._untold = self._untold, []
        for loss in untold:
            await self.declare(loss)
