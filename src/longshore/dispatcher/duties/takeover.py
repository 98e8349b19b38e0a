"""Takeover: finds workers whose dispatcher fell silent or forgot them, and declares them lost.

Theory. Every dispatcher renews its row in the store, and each renewal changes the row's *sign*. All
dispatchers watch the signs of the others. If a sign has stayed for `lease_s + takeover_margin_s`,
every lease that this dispatcher granted has ended. So its workers have stopped their jobs, or have
joined another dispatcher. Those that still belong to it in the store are lost. The watcher measures
with its own clock alone, because machines' clocks differ.

The duty declares three kinds of workers lost: those of a silent dispatcher; those that belong to
this dispatcher in the store, but have had no session here for a lease; those whose process ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import structs

from longshore.core.leases import is_lost, is_silent, lease_for
from longshore.core.placement import Profile
from longshore.dispatcher.duties.lost_workers import ENDED
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.losses import Losses
from longshore.model.worker import DispatcherView, SessionKey, WorkerInfo, WorkerView
from longshore.ports import HasEnded

log = logging.getLogger("longshore.dispatcher")

Sign = tuple[datetime, int] | None
"""A dispatcher's row and its renewal number; None if it has no row."""


class Takeover:
    """Watches the other dispatchers. `elsewhere` has one live worker of each profile, of all."""

    def __init__(self, environment: Environment, losses: Losses, has_ended: HasEnded) -> None:
        self.elsewhere: Sequence[WorkerInfo] = ()
        self._id, self._store, self._settings, self._clock, _ = environment
        self._roster = losses.roster
        self._losses = losses
        self._has_ended = has_ended
        self._others: dict[UUID, tuple[Sign, float]] = {}
        self._missed: dict[SessionKey, float] = {}

    async def look(self) -> None:
        """Looks at every dispatcher and worker, and declares workers lost."""
        asked_at = self._clock.now()
        # Workers first: a dispatcher that comes back now may attend more, and those are not lost.
        workers = [worker for worker in await self._store.workers() if worker.alive]
        self.elsewhere = list({Profile.key(one.info): one.info for one in workers}.values())
        signs: dict[UUID, Sign] = {one.id: _sign(one) for one in await self._store.dispatchers()}
        for worker in workers:
            # A dispatcher that retired, or was forgotten, has no row, but may have workers.
            signs.setdefault(worker.dispatcher, None)
        signs.pop(self._id, None)
        silent = self._silent(signs, asked_at)
        if silent:
            await self._harvest_workers_of(silent, workers, asked_at)
        for worker in self._neglected(workers, asked_at):
            await self._declare(worker, "its dispatcher never heard of it again")
        for worker in workers:
            if worker.dispatcher != self._id and self._has_ended(worker.info.process):
                await self._declare(worker, ENDED)

    async def _declare(self, worker: WorkerView, why: str) -> None:
        await self._losses.declare(self._losses.loss_of(worker, why))

    def silent_s(self, other: DispatcherView) -> float:
        """For how long a dispatcher has not renewed; 0 if it just did."""
        if other.id == self._id:
            silent_s = self._losses.own_silence_s()
            return silent_s if silent_s >= self._settings.dispatcher_lease_s else 0.0
        sign, since = self._others.get(other.id, (None, 0.0))
        return self._clock.now() - since if sign == _sign(other) else 0.0

    def seen(self, worker: WorkerView) -> WorkerView:
        """The worker, with how long its dispatcher has been silent."""
        if not worker.alive or worker.dispatcher not in self._others:
            return worker
        silent_s = self._clock.now() - self._others[worker.dispatcher][1]
        is_silent = silent_s >= self._settings.dispatcher_lease_s
        return structs.replace(worker, silent_s=silent_s) if is_silent else worker

    def _silent(self, signs: Mapping[UUID, Sign], asked_at: float) -> list[UUID]:
        """Dispatchers whose sign has not changed for so long that their leases have ended."""
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
        """Workers of this dispatcher, by the store, that have had no session here for a lease.

        The store's answer got lost when they joined, or this dispatcher dropped all its sessions;
        and they joined no other dispatcher since.
        """
        heard_at = self._clock.now()
        before, self._missed = self._missed, {}
        found: list[WorkerView] = []
        for worker in workers:
            slot = SessionKey(worker.info.id, worker.session)
            if worker.dispatcher != self._id or self._roster.of_session(slot):
                continue
            since = self._missed[slot] = before.get(slot, heard_at)
            if is_lost(since, asked_at, lease_for(worker.info, self._settings.lease_s)):
                found.append(worker)
        return found

    async def _harvest_workers_of(
        self, silent: Sequence[UUID], workers: Sequence[WorkerView], asked_at: float
    ) -> None:
        waited_for: set[UUID] = set()
        for worker in workers:
            if worker.dispatcher not in silent:
                continue
            if self._may_still_run(worker, asked_at):
                waited_for.add(worker.dispatcher)
                continue
            why = "its dispatcher fell silent and it came to no other"
            await self._losses.harvest(self._losses.loss_of(worker, why))
        for dispatcher in set(silent) - waited_for:
            log.warning("dispatcher %s is silent; its workers were declared lost", dispatcher)
            await self._store.forget_dispatcher(dispatcher)

    def _may_still_run(self, worker: WorkerView, asked_at: float) -> bool:
        """Whether the lease of a worker, which may be longer than others', has not ended."""
        lease_s = lease_for(worker.info, self._settings.lease_s)
        since = self._others[worker.dispatcher][1]
        return not is_silent(since, asked_at, lease_s, self._settings.takeover_margin_s)


def _sign(dispatcher: DispatcherView) -> Sign:
    # A dispatcher that was forgotten and came back has a new row, and counts from the start.
    return dispatcher.started_at, dispatcher.renewed_no
