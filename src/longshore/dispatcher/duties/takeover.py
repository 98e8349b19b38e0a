"""Takeover: the workers of dispatchers that fell silent, and those that nobody looks after.

A dispatcher lives for as long as its sign in the store changes. Whoever sees the same sign for
`lease_s` and `takeover_margin_s` knows that every lease it granted has ended, and declares its
workers lost, except those that came to another dispatcher meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import structs

from longshore.core.leases import is_lost, is_silent
from longshore.core.placement import Profile
from longshore.dispatcher.duties.lost_workers import ENDED
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.losses import Losses
from longshore.model.worker import DispatcherView, Slot, WorkerInfo, WorkerView
from longshore.ports import HasEnded

log = logging.getLogger("longshore.dispatcher")

Sign = tuple[datetime, int] | None
"""Changes for as long as a dispatcher lives: its row and the row's number, if it has a row."""


class Takeover:
    """Watches the other dispatchers. `elsewhere` are live workers of all, of those alike one."""

    def __init__(self, environment: Environment, losses: Losses, has_ended: HasEnded) -> None:
        self.elsewhere: Sequence[WorkerInfo] = ()
        self._id, self._store, self._settings, self._clock, _ = environment
        self._roster = losses.roster
        self._losses = losses
        self._has_ended = has_ended
        self._others: dict[UUID, tuple[Sign, float]] = {}
        self._missed: dict[Slot, float] = {}

    async def look(self) -> None:
        """Looks at every dispatcher and worker, and declares lost who is."""
        asked_at = self._clock.now()
        # Workers first: what a dispatcher attends after it came back to life is not among them.
        workers = [worker for worker in await self._store.workers() if worker.alive]
        self.elsewhere = _unlike(worker.info for worker in workers)
        signs: dict[UUID, Sign] = {one.id: _sign(one) for one in await self._store.dispatchers()}
        for worker in workers:
            # One that has retired, or was forgotten, cannot look after its workers any more.
            signs.setdefault(worker.dispatcher, None)
        signs.pop(self._id, None)
        silent = self._silent(signs, asked_at)
        if silent:
            await self._harvest_workers_of(silent, workers)
        for worker in self._neglected(workers, asked_at):
            await self._losses.declare_worker(worker, "its dispatcher never heard of it again")
        for worker in workers:
            if worker.dispatcher != self._id and self._has_ended(worker.info.process):
                await self._losses.declare_worker(worker, ENDED)

    def silent_s(self, other: DispatcherView) -> float:
        """For how long another dispatcher was not seen to renew; 0 if it was just now."""
        sign, since = self._others.get(other.id, (None, 0.0))
        return self._clock.now() - since if sign == _sign(other) else 0.0

    def seen(self, worker: WorkerView) -> WorkerView:
        """A worker of the store's, with what is known here of the dispatcher that attends it."""
        if not worker.alive or worker.dispatcher not in self._others:
            return worker
        silent_s = self._clock.now() - self._others[worker.dispatcher][1]
        is_silent = silent_s >= self._settings.dispatcher_lease_s
        return structs.replace(worker, silent_s=silent_s) if is_silent else worker

    def _silent(self, signs: Mapping[UUID, Sign], asked_at: float) -> list[UUID]:
        """Dispatchers whose sign was the same for so long that their leases have ended."""
        lease_s, margin_s = self._settings.lease_s, self._settings.takeover_margin_s
        heard_at = self._clock.now()
        before, self._others = self._others, {}
        for other, sign in signs.items():
            known = before.get(other)
            since = known[1] if known and known[0] == sign else heard_at
            self._others[other] = sign, since
        return [
            other
            for other, (_, since) in self._others.items()
            if is_silent(since, asked_at, lease_s, margin_s)
        ]

    def _neglected(self, workers: Sequence[WorkerView], asked_at: float) -> list[WorkerView]:
        """Workers that this dispatcher attends in the store, but has long not had in its memory.

        The answer to their attend got lost, or they were let go, and they came to nobody else.
        """
        heard_at = self._clock.now()
        before, self._missed = self._missed, {}
        found: list[WorkerView] = []
        for worker in workers:
            slot = Slot(worker.info.id, worker.session)
            if worker.dispatcher != self._id or self._roster.of_session(slot):
                continue
            since = self._missed[slot] = before.get(slot, heard_at)
            if is_lost(since, asked_at, self._settings.lease_s):
                found.append(worker)
        return found

    async def _harvest_workers_of(
        self, silent: Sequence[UUID], workers: Sequence[WorkerView]
    ) -> None:
        for worker in workers:
            if worker.dispatcher in silent:
                why = "its dispatcher fell silent and it came to no other"
                await self._losses.harvest_worker(worker, why)
        for dispatcher in silent:
            log.warning("dispatcher %s is silent; its workers were declared lost", dispatcher)
            await self._store.forget_dispatcher(dispatcher)


def _unlike(infos: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Of workers that are alike, one."""
    return list({Profile.key(info): info for info in infos}.values())


def _sign(dispatcher: DispatcherView) -> Sign:
    # One that was forgotten and came back counts from the start again, in another row.
    return dispatcher.started_at, dispatcher.renewed_no
