"""Sessions that are over: their jobs go back to the store, however long the store is away."""

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
    """The tokens of attempts that never reached the worker, and are not its fault."""
    info: WorkerInfo | None = None
    """Who it is, if the user is to hear of it: not for a goodbye."""


class Losses:
    """Declares workers lost. What the store could not be told is told again until it is."""

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
        """Whether the store knows of every loss."""
        return not self._untold

    async def lose(
        self, session: Session, why: str, *, crash: bool, lost: bool | None = None
    ) -> None:
        """A worker is gone: it is given nothing more, and what it had goes to others.

        The user hears of it if it is `lost`, which a crash is unless told otherwise.
        """
        self.roster.remove(session)
        undelivered = tuple(one.token for one in session.undelivered())
        told = session.info if (crash if lost is None else lost) else None
        loss = Loss(session.worker, session.number, why, crash, undelivered, told)
        await self.declare(loss)

    async def lose_silent(self, session: Session, why: str) -> None:
        """A worker is no more, and did not say so."""
        self.roster.remove(session)
        log.warning("worker %s is lost: %s", session.name, why)
        crash = not self._own_lease.blames_store()
        await self.lose(session, why, crash=crash, lost=True)

    async def declare_worker(self, worker: WorkerView, why: str) -> None:
        """A worker that is not attended here is gone."""
        await self.declare(self._loss(worker, why))

    async def harvest_worker(self, worker: WorkerView, why: str) -> None:
        """A worker that is not attended here is gone; raises if the store cannot be told now."""
        await self._harvest(self._loss(worker, why))

    def _loss(self, worker: WorkerView, why: str) -> Loss:
        crash = not self._own_lease.blames_store()
        return Loss(worker.info.id, worker.session, why, crash, info=worker.info)

    async def declare(self, loss: Loss) -> None:
        """Tells the store, now or as soon as it answers again."""
        try:
            await self._harvest(loss)
        except StoreUnavailable as error:
            self._untold.append(loss)
            self._own_lease.saw_outage(error)

    async def _harvest(self, loss: Loss) -> None:
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
            # The user is told of a session that this dispatcher declared lost.
            self._on_lost(LostWorker(loss.info, loss.session, loss.why))

    async def tell_again(self) -> None:
        """Tells the store what it could not be told before."""
        untold, self._untold = self._untold, []
        for loss in untold:
            await self.declare(loss)
