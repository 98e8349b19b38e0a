"""The dispatcher: it keeps no state of its own, and is one of many equals.

Three things run side by side. The *commits* move jobs: ends, submits and claims, one transaction
after the other. The *duties* run because time passed: leases, losses, cancels, delays. The
*sessions* and the *requests* talk to workers and clients. They share a roster, in memory only. All
that must survive is in the store before a worker or a client hears of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Coroutine
from functools import partial
from random import Random
from uuid import UUID

from longshore.config import DispatcherSettings, callback_terms
from longshore.core.admission import Patience
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.access import Access, KnownKeys
from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.changes import Changes
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.actors import tend_actors
from longshore.dispatcher.duties.bulks import do_bulks
from longshore.dispatcher.duties.cancels import heed_cancels
from longshore.dispatcher.duties.census import Census
from longshore.dispatcher.duties.drains import heed_drains
from longshore.dispatcher.duties.expiry import expire
from longshore.dispatcher.duties.fair_use import FairUses
from longshore.dispatcher.duties.filesets import collect_files
from longshore.dispatcher.duties.groups import GroupUpkeep
from longshore.dispatcher.duties.heartbeats import Heartbeats
from longshore.dispatcher.duties.hints import follow_hints
from longshore.dispatcher.duties.lane_upkeep import LaneUpkeep
from longshore.dispatcher.duties.limits import SOONEST_S, LimitUpkeep
from longshore.dispatcher.duties.lost_workers import find_lost
from longshore.dispatcher.duties.outcomes import find_outcomes, find_replies
from longshore.dispatcher.duties.peaks import Peaks
from longshore.dispatcher.duties.promotion import promote
from longshore.dispatcher.duties.read_back import ReadBack
from longshore.dispatcher.duties.renewal import renew
from longshore.dispatcher.duties.run_times import RunTimes
from longshore.dispatcher.duties.schedules import fire_schedules
from longshore.dispatcher.duties.sends import deliver_sends
from longshore.dispatcher.duties.stalled_groups import StalledGroups
from longshore.dispatcher.duties.sweep import sweep
from longshore.dispatcher.duties.takeover import Takeover
from longshore.dispatcher.duties.timeouts import end_overdue
from longshore.dispatcher.duties.watchers import tell_watchers
from longshore.dispatcher.duties.web_workers import read_back_proxied
from longshore.dispatcher.duty_runner import Always, Duty, DutyRunner, Every, WhenRung, in_turn
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.figures import Figures
from longshore.dispatcher.lane_limits import LaneLimits
from longshore.dispatcher.losses import Losses
from longshore.dispatcher.meter import Meter, counted_losses
from longshore.dispatcher.metered_store import metered
from longshore.dispatcher.noticed_store import noticed
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.plain_clients import PlainClients
from longshore.dispatcher.pruner import Pruner
from longshore.dispatcher.requests import Requests
from longshore.dispatcher.runtime import DispatcherRuntime
from longshore.dispatcher.service import Service
from longshore.dispatcher.sessions.full import FullSessions
from longshore.dispatcher.sessions.link import Listen, WorkerLink
from longshore.dispatcher.sessions.plain import PlainSessions
from longshore.dispatcher.sessions.roster import Roster
from longshore.dispatcher.tickets import Tickets
from longshore.dispatcher.waiters import Waiters
from longshore.dispatcher.web_service import WebService
from longshore.errors import StoreLost, StoreUnavailable
from longshore.model.actor import Reply
from longshore.model.job import Ended
from longshore.model.worker import Lane
from longshore.ports import Clock, HasEnded, Link, OnLost, Store

log = logging.getLogger("longshore.dispatcher")


class Dispatcher:
    """Attends workers and answers clients, over one open store.

    With a meter, it has `figures`: what it shows of itself.
    """

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
        meter: Meter | None = None,
        gateway_keys: Container[str] = (),
        keys: KnownKeys | None = None,
    ) -> None:
        self.id = id
        self.broken = asyncio.Event()
        """Set when the store is lost, or a part of the dispatcher failed: the process must end."""
        self.lost: StoreLost | None = None
        self._changes = changes = Changes()
        self._store = store = noticed(metered(store, meter), changes)
        self._here = here = Environment(id, store, settings, clock, random)
        patience = Patience(settings.slot_wait_s, settings.max_slot_wait_s)
        self._scheduler = Scheduler(settings.max_batch, patience)
        self._roster = Roster(self._scheduler)
        self._own_lease = lease = OwnLease(settings, clock, self._lose_store)
        self._waiters: Waiters[Ended] = Waiters()
        self._replies: Waiters[Reply] = Waiters()
        self._alarms = Alarms(clock)
        self._commits = self._make_commits(meter)
        self._groups = GroupUpkeep(
            here,
            self._scheduler,
            self._commits,
            self._alarms,
            self._waiters.tell,
            learn_lanes=lambda: self._lanes.look(),
        )
        self._link = WorkerLink(gateway_keys)
        self._run_times = RunTimes(store)
        self._peaks = Peaks(store)
        self._fair_uses = FairUses(store)
        told = self._link.acknowledge, self._run_times.ran, meter, self._peaks.used
        self._ends = Ends(here, self._commits, self._alarms, *told, self._fair_uses.took)
        self._losses = self._make_losses(meter, on_lost)
        parts = (here, lease, self._link, self._commits, self._ends, self._losses)
        self._plain = PlainSessions(*parts)
        self._tickets = Tickets(store, settings, clock.utc)
        self._full = FullSessions(*parts, self._plain, self._tickets.issue)
        self._takeover = Takeover(here, self._losses, has_ended)
        limits = LaneLimits(settings, self._scheduler, lambda: self._takeover.elsewhere)
        memory = (self._roster, self._commits, self._waiters, self._takeover, limits, self._alarms)
        self._runtime = DispatcherRuntime(*memory, self._groups, changes)
        self._plain_clients = PlainClients(here, self._commits, self._waiters)
        waiting = (self._runtime, self._waiters, self._replies)
        service = Service(store, settings, id, clock.utc, *waiting)
        self._schedules, self._bulks = service.schedules, service.bulks
        access = Access(store, clock, keys)
        web = WebService(store, settings, self._roster, self._commits, self._ends, access.tokens)
        self._requests = Requests(
            here, lease, service, self._plain_clients, access, web, gateway_keys
        )
        self._duty_runner = DutyRunner(random, lease)
        self._renew = partial(renew, here, name, lease, self._roster, self._plain)
        self._lanes = LaneUpkeep(here, self._scheduler, self._commits, limits)
        read_back = ReadBack(store, self._scheduler, self._commits, self._full.give)
        self._look_around = in_turn(self._lanes.look, read_back.read)
        self._duties = self._make_duties(has_ended)
        self.figures = self._measured(meter, limits)
        self._tasks: list[asyncio.Task[None]] = []

    def _make_losses(self, meter: Meter | None, on_lost: OnLost) -> Losses:
        hears = counted_losses(meter, on_lost)
        return Losses(self._here, self._own_lease, self._roster, self._commits, hears)

    def _make_commits(self, meter: Meter | None) -> Commits:
        return Commits(
            self._here,
            self._scheduler,
            give=lambda slot, attempts: self._full.give(slot, attempts),
            tell=self._waiters.tell,
            groups_changed=lambda groups: self._groups.ring(groups),
            on_outage=self._own_lease.saw_outage,
            tell_reply=self._replies.tell,
            learn_lanes=lambda: self._alarms.lanes.set_in(0),
            tell_watchers=lambda: self._alarms.watchers.set_in(0),
            meter=meter,
            open_limits_in=lambda seconds: self._alarms.limits.set_in(max(SOONEST_S, seconds)),
            heed_cancels=lambda: self._alarms.cancels.set_in(0),
        )

    def _make_duties(self, has_ended: HasEnded) -> list[Duty]:
        here, alarms = self._here, self._alarms
        store, settings = here.store, here.settings
        roster, commits, scheduler = self._roster, self._commits, self._scheduler
        cancels = partial(heed_cancels, here, roster, self._link, self._ends)
        drains = partial(heed_drains, here, roster, commits, self._link)
        promoting = partial(promote, store, scheduler, commits, alarms.due, alarms.groups)
        outcomes = partial(find_outcomes, store, self._waiters)
        replies = partial(find_replies, store, self._replies)
        tending = partial(tend_actors, store, alarms, self._replies.tell)
        callbacks = callback_terms(settings)
        watchers = partial(tell_watchers, store, scheduler, commits, alarms, callbacks)
        firing = partial(fire_schedules, self._schedules, alarms.schedules)
        limits = LimitUpkeep(here, scheduler, commits, alarms.limits)
        told = (alarms, self._own_lease, self._changes)
        stalled = StalledGroups(here, self._groups.ring)
        self._runtime.stalled_groups = stalled.found
        hints = partial(follow_hints, store, self._look_around, *told)
        return [
            Every(settings.renew_s, self._renew),
            Every(settings.lease_s / 10, partial(find_lost, here, self._losses, has_ended)),
            Every(settings.renew_s, self._losses.tell_again),
            Every(self._plain.look_s, self._plain.look_after),
            WhenRung(alarms.lanes, settings.poll_s, self._look_around),
            Every(settings.promote_s, partial(expire, store, commits)),
            Every(settings.expire_s, partial(end_overdue, here, roster, self._link, self._ends)),
            Every(settings.sweep_s, partial(sweep, store, settings.crash_limit, commits)),
            Every(settings.sweep_s, self._groups.cancel_abandoned),
            Every(settings.group_watch_s, stalled.look),
            Every(settings.prune_s, Pruner(store, settings).prune),
            Every(settings.prune_s, self._lanes.forget),
            Every(settings.lease_s / 4, self._takeover.look, at_once=True),
            Every(settings.run_times_s, self._run_times.write),
            Every(settings.run_times_s, self._peaks.write),
            Every(settings.poll_s, self._fair_uses.tell),
            Every(settings.web_poll_s, partial(read_back_proxied, here, roster, self._full)),
            Every(settings.filesets_gc_s, partial(collect_files, store, settings, here.clock.utc)),
            Every(settings.heartbeat_s, Heartbeats(here, roster).write),
            WhenRung(alarms.due, settings.promote_s, promoting),
            WhenRung(alarms.cancels, settings.cancel_poll_s, in_turn(cancels, drains)),
            WhenRung(alarms.outcomes, settings.poll_s, in_turn(outcomes, replies)),
            WhenRung(alarms.groups, settings.group_poll_s, self._groups.settle),
            WhenRung(alarms.actors, settings.sweep_s, tending),
            WhenRung(alarms.watchers, settings.group_poll_s, watchers),
            WhenRung(alarms.sends, settings.poll_s, partial(deliver_sends, store, alarms)),
            WhenRung(alarms.schedules, settings.promote_s, firing),
            Every(settings.sweep_s, self._schedules.submit_left),
            WhenRung(alarms.bulks, settings.sweep_s, partial(do_bulks, self._bulks, alarms.bulks)),
            WhenRung(alarms.limits, settings.poll_s, limits.open),
            Always(hints),
        ]

    def _measured(self, meter: Meter | None, limits: LaneLimits) -> Figures | None:
        """Lets it count for its metrics, if it has a meter."""
        if meter is None:
            return None
        here, lease = self._here, self._own_lease
        past_limit = partial(_is_past_limit, limits)
        census = Census(here, lease, self._takeover, meter.lanes, past_limit)
        self._duties.append(Every(here.settings.metrics_s, census.look, at_once=True))
        parts = (self._roster, self._commits, meter, census)
        return Figures(here, lease, *parts, self.broken.is_set)

    async def start(self, listen: Listen, backend: str, frontend: str) -> tuple[Link, Link]:
        """Renews the dispatcher's lease once, then listens for workers and clients."""
        await self._renew()
        await self._tickets.load()
        await self._look_around()
        workers = self._link.open(listen, backend, self._full.receive)
        try:
            self._frontend = self._requests.listen(listen, frontend)
        except BaseException:
            workers.close()
            raise
        self._spawn(self._commits.run())
        for duty in self._duties:
            self._spawn(self._duty_runner.run(duty))
        return workers, self._frontend

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("a part of the dispatcher failed", exc_info=task.exception())
            self.broken.set()

    def note_crew(self, trouble: str) -> None:
        """Remembers, for `why`, why the workers beside it do not start; empty if they do."""
        self._runtime.supervisor_trouble = trouble

    def _lose_store(self, error: StoreLost) -> None:
        if self.lost is None:
            log.critical("the dispatcher ends: %s", error)
        self.lost = error
        self.broken.set()

    async def stop(self) -> None:
        """Commits what is under way, closes the sockets and retires in the store."""
        await self._requests.close()
        await self._plain_clients.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._full.log_writer.close()
            await self._commits.drain()
            await self._full.close()
            await self._plain.close()
            await self._retire()
        except StoreUnavailable as error:
            log.warning("the dispatcher could not retire in the store: %s", error)
        self._link.socket.close()
        self._frontend.close()

    async def _retire(self) -> None:
        await self._losses.tell_again()
        if self._losses.all_told:
            # Otherwise the other dispatchers find it silent, and declare those losses for it.
            await self._store.retire(self.id)


def _is_past_limit(limits: LaneLimits, lane: Lane) -> bool:
    return limits.limit_of(lane) is not None
