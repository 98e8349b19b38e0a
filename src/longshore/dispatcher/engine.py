"""The dispatcher: stateless, one of many equals.

Three things run side by side. The *commits* move jobs: ends, submits and claims, one transaction
after the other. The *duties* are what is done because time passed: leases, losses, cancels,
delays. The *attendant* and the *requests* answer what workers and clients say. They share
a roster, which is memory only; whatever must survive is in the store before anybody is told of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from random import Random
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.core.admission import Patience
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.cancels import heed_cancels
from longshore.dispatcher.duties.drains import heed_drains
from longshore.dispatcher.duties.heartbeats import Heartbeats
from longshore.dispatcher.duties.hints import follow_hints
from longshore.dispatcher.duties.lane_upkeep import LaneUpkeep
from longshore.dispatcher.duties.lost_workers import find_lost
from longshore.dispatcher.duties.outcomes import find_outcomes
from longshore.dispatcher.duties.promotion import promote
from longshore.dispatcher.duties.read_back import ReadBack
from longshore.dispatcher.duties.renewal import renew
from longshore.dispatcher.duties.sweep import sweep
from longshore.dispatcher.duties.takeover import Takeover
from longshore.dispatcher.duties.timeouts import end_overdue
from longshore.dispatcher.duty_runner import Always, Duty, DutyRunner, Every, WhenRung, in_turn
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.lane_limits import LaneLimits
from longshore.dispatcher.losses import Losses
from longshore.dispatcher.own_lease import Alarms, OwnLease
from longshore.dispatcher.plain import PlainAttendant
from longshore.dispatcher.plain_clients import PlainClients
from longshore.dispatcher.pruner import Pruner
from longshore.dispatcher.requests import Listen, Requests
from longshore.dispatcher.roster import Roster
from longshore.dispatcher.runtime import DispatcherRuntime
from longshore.dispatcher.service import Service
from longshore.dispatcher.waiters import Waiters
from longshore.errors import StoreLost, StoreUnavailable
from longshore.model.ids import make_id
from longshore.ports import Clock, HasEnded, Link, OnLost, Store

log = logging.getLogger("longshore.dispatcher")


class Dispatcher:
    """Attends workers and answers clients, over one store that is open already."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        *,
        id: UUID,
        name: str,
        clock: Clock,
        random: Random,
        on_lost: OnLost = lambda lost: None,
        has_ended: HasEnded = lambda process: False,
    ) -> None:
        self.id = id
        self.broken = asyncio.Event()
        """Set when the store is lost, or a part failed unforeseen: the process must end."""
        self.lost: StoreLost | None = None
        self._settings = settings
        self._store = store
        self._clock = clock
        self._random = random
        patience = Patience(settings.slot_wait_s, settings.max_slot_wait_s)
        self._scheduler = Scheduler(settings.max_batch, patience)
        self._roster = Roster(self._scheduler)
        self._tasks: list[asyncio.Task[None]] = []
        own_lease = OwnLease(settings, clock, self._lose_store)
        self._waiters, self._alarms = Waiters(), Alarms(clock)
        self._commits = self._make_commits(own_lease)
        self._losses = Losses(store, settings, self._roster, self._commits, own_lease, on_lost)
        self._plain = self._make_plain(own_lease)
        self._attendant = self._make_attendant(own_lease)
        self._attendant.ends = self._plain.ends = Ends(
            settings, random, self._commits, self._alarms.due, self._attendant.acknowledge
        )
        self._takeover = Takeover(
            store,
            settings,
            id,
            clock=clock,
            roster=self._roster,
            losses=self._losses,
            has_ended=has_ended,
        )
        self._lane_limits = LaneLimits(settings, self._scheduler, lambda: self._takeover.elsewhere)
        self._duty_runner = DutyRunner(random, own_lease)
        self._renew = partial(renew, store, id, name, clock, own_lease, self._roster, self._plain)
        self._find_lost = partial(
            find_lost, settings.lease_s, clock, self._roster, self._attendant, has_ended
        )
        self._lanes = LaneUpkeep(store, settings, self._scheduler, self._commits, self._lane_limits)
        self._look_around = in_turn(
            self._lanes.look, ReadBack(store, self._scheduler, self._commits, self._attendant).read
        )
        self._duties = self._make_duties(own_lease)
        self._plain_clients = PlainClients(settings, self._new_id, self._commits, self._waiters)
        self._runtime = self._make_runtime()
        service = Service(store, settings, id, clock.utc, self._runtime, self._waiters)
        self._requests = Requests(service, settings, clock, own_lease, self._plain_clients)

    def _make_commits(self, own_lease: OwnLease) -> Commits:
        return Commits(
            self._store,
            self.id,
            max_batch=self._settings.max_batch,
            max_batch_bytes=self._settings.max_batch_bytes,
            overlap_from=self._settings.overlap_from,
            slot_wait_s=self._settings.slot_wait_s,
            random=self._random,
            scheduler=self._scheduler,
            give=lambda slot, attempts: self._attendant.give(slot, attempts),
            tell=self._waiters.tell,
            on_outage=own_lease.saw_outage,
        )

    def _make_plain(self, own_lease: OwnLease) -> PlainAttendant:
        return PlainAttendant(
            self._store,
            self._settings,
            self.id,
            clock=self._clock,
            new_id=self._new_id,
            roster=self._roster,
            commits=self._commits,
            own_lease=own_lease,
            losses=self._losses,
        )

    def _make_attendant(self, own_lease: OwnLease) -> Attendant:
        return Attendant(
            self._store,
            self._settings,
            self.id,
            self._clock,
            self._roster,
            self._commits,
            own_lease,
            self._losses,
            self._plain,
        )

    def _make_runtime(self) -> DispatcherRuntime:
        return DispatcherRuntime(
            self._settings,
            self._roster,
            self._commits,
            self._waiters,
            self._takeover,
            self._lane_limits,
            self._alarms,
        )

    def _make_duties(self, own_lease: OwnLease) -> list[Duty]:
        store, settings, alarms, id = self._store, self._settings, self._alarms, self.id
        scheduler = self._scheduler
        clock, roster, commits, attendant = (
            self._clock,
            self._roster,
            self._commits,
            self._attendant,
        )
        expire = partial(
            end_overdue, store, settings.timeout_margin_s, clock, self._random, roster, attendant
        )
        cancels = partial(
            heed_cancels, store, id, settings.cancel_grace_s, clock, roster, attendant
        )
        drains = partial(heed_drains, store, id, roster, commits, attendant)
        sweeping = partial(sweep, store, settings.crash_limit, commits)
        promoting = partial(promote, store, scheduler, commits, alarms.due)
        outcomes = partial(find_outcomes, store, self._waiters)
        return [
            Every(settings.renew_s, self._renew),
            Every(settings.lease_s / 10, self._find_lost),
            Every(settings.renew_s, self._losses.tell_again),
            Every(self._plain.look_s, self._plain.look_after),
            Every(settings.poll_s, self._look_around),
            Every(settings.expire_s, expire),
            Every(settings.sweep_s, sweeping),
            Every(settings.prune_s, Pruner(store, settings).prune),
            Every(settings.prune_s, self._lanes.forget),
            Every(settings.lease_s / 4, self._takeover.look, at_once=True),
            WhenRung(alarms.due, settings.promote_s, promoting),
            WhenRung(alarms.cancels, settings.cancel_poll_s, in_turn(cancels, drains)),
            Every(settings.heartbeat_s, Heartbeats(store, id, clock, roster).write),
            WhenRung(alarms.outcomes, settings.poll_s, outcomes),
            Always(partial(follow_hints, store, self._look_around, alarms, own_lease)),
        ]

    async def start(self, listen: Listen, backend: str, frontend: str) -> tuple[Link, Link]:
        """Renews its own lease once, then listens for workers and clients."""
        await self._renew()
        await self._look_around()
        self._attendant.link = listen(backend, self._attendant.receive)
        self._plain.link = self._attendant.link
        try:
            self._frontend = self._requests.listen(listen, frontend)
        except BaseException:
            self._attendant.link.close()
            raise
        self._spawn(self._commits.run())
        for duty in self._duties:
            self._spawn(self._duty_runner.run(duty))
        return self._attendant.link, self._frontend

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("a part of the dispatcher broke", exc_info=task.exception())
            self.broken.set()

    def note_crew(self, trouble: str) -> None:
        """Keeps in mind, for `why`, what keeps the workers beside it from starting, if anything."""
        self._runtime.supervisor_trouble = trouble

    def _lose_store(self, error: StoreLost) -> None:
        if self.lost is None:
            log.critical("the dispatcher ends: %s", error)
        self.lost = error
        self.broken.set()

    async def stop(self) -> None:
        """Commits what is under way, lets go of the sockets and retires in good order."""
        await self._requests.close()
        await self._plain_clients.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._attendant.log_writer.close()
            await self._commits.drain()
            await self._attendant.close()
            await self._plain.close()
            await self._retire()
        except StoreUnavailable as error:
            log.warning("left without saying so in the store: %s", error)
        self._attendant.link.close()
        self._frontend.close()

    async def _retire(self) -> None:
        await self._losses.tell_again()
        if self._losses.all_told:
            # Otherwise the others find it silent, and declare those losses for it.
            await self._store.retire(self.id)

    def _new_id(self) -> UUID:
        unix_ms = int(self._clock.utc().timestamp() * 1000)
        return make_id(unix_ms, self._random.randbytes(10))
