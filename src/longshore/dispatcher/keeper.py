"""The keeper: what a dispatcher does because time passed, not because anybody spoke.

Its verbs have a connection of their own in the store and never wait behind the pump. Each duty is a
loop that survives an outage; intervals are varied a little, so that many dispatchers do not do the
same at the same moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from uuid import UUID

from msgspec import structs

from longshore.core.leases import is_lost, is_silent
from longshore.core.placement import Profile
from longshore.core.timing import settle_failure
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.lanes import LaneLimits
from longshore.dispatcher.losses import Loss, Losses
from longshore.dispatcher.plain import PlainAttendant
from longshore.dispatcher.pruner import Pruner
from longshore.dispatcher.pulse import Alarm, Pulse
from longshore.dispatcher.pump import Pump, by_session
from longshore.dispatcher.roster import Roster
from longshore.dispatcher.settings import DispatcherSettings
from longshore.dispatcher.waiters import Waiters
from longshore.errors import StoreUnavailable
from longshore.model.ends import Cancelled
from longshore.model.job import Claimed, JobError, Reason
from longshore.model.worker import DispatcherView, Lane, Seat, WorkerInfo, WorkerView
from longshore.ports import Clock, HasEnded, Hint, Store
from longshore.wire.dispatcher_side import Attendance, FullAttendance

log = logging.getLogger("longshore.dispatcher")

Duty = Callable[[], Awaitable[None]]
Sign = tuple[datetime, int] | None
"""Changes for as long as a dispatcher lives: its row and the row's number, if it has a row."""
ENDED_CHUNK = 5_000
ENDED = "its process ended"


class Keeper:
    """Leases, losses, delays, timeouts, cancels and the polls that make up for lost hints."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        name: str,
        *,
        clock: Clock,
        random: Random,
        roster: Roster,
        pump: Pump,
        pulse: Pulse,
        waiters: Waiters,
        attendant: Attendant,
        plain: PlainAttendant,
        losses: Losses,
        due: Alarm,
        has_ended: HasEnded,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._name = name
        self._clock = clock
        self._random = random
        self._roster = roster
        self._scheduler = roster.scheduler
        self._pump = pump
        self._pulse = pulse
        self._waiters = waiters
        self._attendant = attendant
        self._plain = plain
        self._losses = losses
        self._due = due
        self._has_ended = has_ended
        self._others: dict[UUID, tuple[Sign, float]] = {}
        self._missed: dict[Seat, float] = {}
        self._beaten_at = float("-inf")
        self._lanes_full = False
        self._pruner = Pruner(store, settings)
        self.lane_limits = LaneLimits(settings, roster.scheduler)
        self._reading_back = asyncio.Lock()
        self.cancels = Alarm(clock)
        self.outcomes = Alarm(clock)

    def duties(self) -> list[Duty]:
        """The loops to run, each on its own."""
        settings = self._settings
        return [
            self._every(settings.renew_s, self.renew),
            self._every(settings.lease_s / 10, self._find_lost),
            self._every(settings.renew_s, self._losses.tell_again),
            self._every(self._plain.look_s, self._plain.look_after),
            self._every(settings.poll_s, self.look_around),
            self._every(settings.expire_s, self._expire),
            self._every(settings.sweep_s, self._sweep),
            self._every(settings.prune_s, self._pruner.prune),
            self._every(settings.prune_s, self._forget_lanes),
            self._every(settings.lease_s / 4, self._take_over, at_once=True),
            self._ringing(self._due, settings.promote_s, self._promote),
            self._ringing(self.cancels, settings.cancel_poll_s, self._heed),
            self._every(settings.heartbeat_s, self._beat),
            self._ringing(self.outcomes, settings.poll_s, self._find_ended),
            self._watch,
        ]

    def _every(self, seconds: float, duty: Duty, *, at_once: bool = False) -> Duty:
        async def loop() -> None:
            if at_once:
                await self._guarded(duty)
            while True:
                await asyncio.sleep(seconds * self._random.uniform(0.8, 1.0))
                await self._guarded(duty)

        return loop

    def _ringing(self, alarm: Alarm, at_most_s: float, duty: Duty) -> Duty:
        async def loop() -> None:
            while True:
                await alarm.wait(at_most_s * self._random.uniform(0.8, 1.0))
                await self._guarded(duty)

        return loop

    async def _guarded(self, duty: Duty) -> None:
        try:
            await duty()
        except StoreUnavailable as error:
            self._pulse.saw_outage(error)

    # leases

    async def renew(self) -> None:
        """Says in the store that this dispatcher lives."""
        sent_at = self._clock.now()
        await self._store.renew(self._dispatcher, self._name)
        if self._pulse.has_lapsed():
            # They come back by themselves, in sessions that nobody has declared lost.
            self._plain.start_over()
            self._roster.clear()
        self._pulse.renewed(sent_at)

    async def _find_lost(self) -> None:
        asked_at = self._clock.now()
        # A dispatcher that was itself held up must first read what its workers sent meanwhile.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for attendance in self._roster:
            if attendance.is_lost(asked_at, self._settings.lease_s):
                silence = f"not heard of for {self._settings.lease_s:g} s"
                await self._attendant.lose(attendance, silence)
            elif self._has_ended(attendance.info.process):
                await self._attendant.lose(attendance, ENDED)

    async def _beat(self) -> None:
        """Writes down who was heard of lately, and how busy their machines are."""
        since, self._beaten_at = self._beaten_at, self._clock.now()
        beats = {
            one.info.id: one.stats
            for one in self._roster
            if isinstance(one, FullAttendance) and one.heard_at >= since
        }
        if beats:
            await self._store.beat(self._dispatcher, beats)

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

    async def _take_over(self) -> None:
        asked_at = self._clock.now()
        # Workers first: what a dispatcher attends after it came back to life is not among them.
        workers = [worker for worker in await self._store.workers() if worker.alive]
        self.lane_limits.elsewhere = _unlike(worker.info for worker in workers)
        signs: dict[UUID, Sign] = {one.id: _sign(one) for one in await self._store.dispatchers()}
        for worker in workers:
            # One that has retired, or was forgotten, cannot look after its workers any more.
            signs.setdefault(worker.dispatcher, None)
        signs.pop(self._dispatcher, None)
        silent = self._silent(signs, asked_at)
        if silent:
            await self._harvest_workers_of(silent, workers)
        for worker in self._neglected(workers, asked_at):
            await self._declare(worker, "its dispatcher never heard of it again")
        for worker in workers:
            if worker.dispatcher != self._dispatcher and self._has_ended(worker.info.process):
                await self._declare(worker, ENDED)

    async def _declare(self, worker: WorkerView, why: str) -> None:
        crash = not self._pulse.blames_store()
        loss = Loss(worker.info.id, worker.session, why, crash, info=worker.info)
        await self._losses.declare(loss)

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
            seat = Seat(worker.info.id, worker.session)
            if worker.dispatcher != self._dispatcher or self._roster.of_seat(seat):
                continue
            since = self._missed[seat] = before.get(seat, heard_at)
            if is_lost(since, asked_at, self._settings.lease_s):
                found.append(worker)
        return found

    async def _harvest_workers_of(
        self, silent: Sequence[UUID], workers: Sequence[WorkerView]
    ) -> None:
        for worker in workers:
            if worker.dispatcher in silent:
                why = "its dispatcher fell silent and it came to no other"
                harvested = await self._store.harvest(
                    worker.info.id,
                    worker.session,
                    why,
                    crash=not self._pulse.blames_store(),
                    crash_limit=self._settings.crash_limit,
                )
                self._scheduler.lanes.mark_ready(harvested.lanes)
                if harvested.lost:
                    self._losses.notify(worker.info, worker.session, why)
        for dispatcher in silent:
            log.warning("dispatcher %s is silent; its workers were declared lost", dispatcher)
            await self._store.forget_dispatcher(dispatcher)
        self._pump.wake()

    async def _sweep(self) -> None:
        harvested = await self._store.sweep(self._settings.crash_limit)
        self._scheduler.lanes.mark_ready(harvested.lanes)
        if harvested.requeued:
            self._pump.wake()

    # work that appears without being told

    async def look_around(self) -> None:
        """Looks at every lane, whatever the hints said, and clears up doubts."""
        self._scheduler.learn(await self._lanes())
        self._mind_the_lanes()
        self._scheduler.lanes.mark_all()
        self._pump.wake()
        await self._read_back()

    async def _lanes(self) -> list[Lane]:
        limits, most = self.lane_limits, self._settings.max_lanes
        served = limits.served() if len(self._scheduler.lanes) >= most else ()
        return await self._store.lanes(most, served)

    async def _forget_lanes(self) -> None:
        """Lanes that hold no job any more are forgotten: by the store, by this dispatcher."""
        await self._store.forget_lanes()
        self._scheduler.settle(await self._lanes())
        self.lane_limits.settle()
        self._mind_the_lanes()

    def _mind_the_lanes(self) -> None:
        """Says once that there are as many lanes as there may be."""
        count, limit = len(self._scheduler.lanes), self._settings.max_lanes
        was_full, self._lanes_full = self._lanes_full, count >= limit
        if self._lanes_full and not was_full:
            log.warning(
                "different (queue, kind, target) are %d, and max_lanes is %d: jobs with "
                "another one that no worker serves are refused, and those that an application "
                "enqueued by itself wait; cancel and prune jobs that nobody serves, put what "
                "varies into the arguments, or raise max_lanes",
                count,
                limit,
            )

    async def _read_back(self) -> None:
        # One at a time: what was read before a seat was doubted must not clear that doubt up.
        if self._reading_back.locked():
            return
        async with self._reading_back:
            seats = self._scheduler.uncertain()
            if not seats or not self._pump.is_certain:
                return
            placed = by_session(await self._store.placed(seats))
            self._scheduler.confirm(seats)
        for seat, claimed in placed.items():
            self._attendant.give(seat, claimed)
        self._pump.wake()

    async def _promote(self) -> None:
        promoted = await self._store.promote()
        if promoted.count:
            # Of lanes past the limit there may be any number: nothing of them is remembered here.
            self._scheduler.lanes.mark_ready(self._scheduler.lanes.known(promoted.lanes))
            self._pump.wake()
        if promoted.next_s is not None:
            self._due.set_in(max(0.0, promoted.next_s))

    async def _watch(self) -> None:
        async for hint in self._store.watch():
            match hint:
                case Hint.WORK:
                    await self._guarded(self.look_around)
                case Hint.CANCEL:
                    self.cancels.set_in(0)
                case Hint.ENDED:
                    self.outcomes.set_in(0)

    async def _find_ended(self) -> None:
        awaited = self._waiters.awaited()
        for start in range(0, len(awaited), ENDED_CHUNK):
            for ended in await self._store.ended(awaited[start : start + ENDED_CHUNK]):
                self._waiters.tell(ended)

    # stopping attempts

    async def _heed(self) -> None:
        """Does to its own workers what was asked for through any dispatcher."""
        if len(self._roster):
            await self._cancel()
            await self._drain()

    async def _drain(self) -> None:
        draining = frozenset(await self._store.draining(self._dispatcher))
        if self._attendant.heed_drains(draining):
            self._scheduler.lanes.mark_all()
            self._pump.wake()
        for attendance in self._roster:
            # One that drains by itself said so, and the store may have been away just then.
            if attendance.draining and attendance.info.id not in draining:
                await self._store.set_draining(attendance.info.id, True)

    async def _cancel(self) -> None:
        for claimed in await self._store.cancelling(self._dispatcher):
            # Without an attendance the worker is on its way to another session, or to be lost.
            if (attendance := self._attendance_of(claimed)) is None:
                continue
            attempt = claimed.id, claimed.token
            if attendance.stopping_s(attempt, self._clock.now()) >= self._settings.cancel_grace_s:
                self._end_by_force(claimed, attendance)
            self._attendant.abort(attendance, [attempt], "cancelled")

    def _end_by_force(self, claimed: Claimed, attendance: Attendance) -> None:
        info = "its worker did not stop it in time"
        end = Cancelled(claimed.id, claimed.token, forced=True, info=info)
        self._attendant.ends.end(end, attendance)

    async def _expire(self) -> None:
        now, margin_s = self._clock.now(), self._settings.timeout_margin_s
        for claimed in await self._store.overdue():
            attendance = self._attendance_of(claimed)
            if attendance is not None and attendance.is_overdue(claimed, now, margin_s):
                self._time_out(claimed, attendance)

    def _time_out(self, claimed: Claimed, attendance: Attendance) -> None:
        message = f"took longer than its timeout of {claimed.options.timeout_s:g} s"
        error = JobError(Reason.TIMED_OUT, message + ", and its worker did not stop it")
        end = settle_failure(claimed, error, self._random.random(), forced=True)
        self._attendant.ends.end(end, attendance)
        self._attendant.abort(attendance, [(claimed.id, claimed.token)], "timed out")

    def _attendance_of(self, claimed: Claimed) -> Attendance | None:
        return self._roster.of_seat(Seat(claimed.worker, claimed.session))


def _unlike(infos: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Of workers that are alike, one."""
    return list({Profile.key(info): info for info in infos}.values())


def _sign(dispatcher: DispatcherView) -> Sign:
    # One that was forgotten and came back counts from the start again, in another row.
    return dispatcher.started_at, dispatcher.renewed_no
