"""The worker's agent: keeps up the dialogue with a dispatcher while executors run the jobs.

It imports no app and runs no job: the executors' processes do. So the heartbeat goes on, whatever a
job does. The session makes all decisions of the dialogue. The agent carries bytes, time and
attempts between the session, the link and the executors.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, assert_never
from uuid import UUID

from msgspec.structs import replace

from longshore.config import WorkerSettings
from longshore.core.devices import Devices
from longshore.core.lookahead import MOST_BYTES, Lookahead
from longshore.errors import ProtocolError
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import LogEntry
from longshore.model.reports import CancelReport, NotBegunReport, ReleaseReport, Report
from longshore.model.worker import AHEAD_POOLS, Ahead, Run, Stats
from longshore.ports import (
    BeginsLate,
    Clock,
    Executor,
    GathersBatches,
    Link,
    OnLog,
    OnMessages,
    OnReport,
    QueueingExecutor,
    WorkerState,
)
from longshore.wire import worker_side as w
from longshore.wire.codec import encode, from_dispatcher
from longshore.wire.messages import Ready
from longshore.worker.failure_text import called, failure, ids, refused
from longshore.worker.identity import Begun
from longshore.worker.identity import Identity as Identity
from longshore.worker.line import Line, Waiting
from longshore.worker.takeback import AgentTakeback

log = logging.getLogger("longshore.worker")

Connect = Callable[[str, OnMessages], Link]
Executors = Mapping[str, Executor]
"""By pool. The first also gets jobs of kinds that no executor knows: it reports them as failed."""
LEAVE_S = 2.0
REPORT_EVERY_S: Final = 0.002
"""While a pool has something to go on with, its ends are gathered, so long at least, and sent
together: what a transaction costs, they share."""
REPORT_WITHIN_S: Final = 0.025
"""No end waits longer for others."""
NOTHING_AHEAD: Final = Ahead()


class Worker:
    """One worker: several dispatcher addresses, one of which it attends at a time."""

    def __init__(
        self,
        identity: Identity,
        settings: WorkerSettings,
        addresses: Sequence[str],
        *,
        connect: Connect,
        make_executors: Callable[[OnReport, OnLog], Executors],
        clock: Clock,
        new_id: Callable[[], UUID],
        measure: Callable[[], Stats],
        on_joined: Callable[[], None] = lambda: None,
        state: WorkerState | None = None,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._addresses = deque(addresses)
        self._connect = connect
        self._clock = clock
        self._new_id = new_id
        self._measure = measure
        self._on_joined = on_joined
        self._executors = make_executors(self._reported, self._said)
        self._takeback = AgentTakeback(state, self._executors)
        self._begun: dict[str, dict[int, Begun]] = {pool: {} for pool in self._executors}
        """The attempts that executors run, by pool and token."""
        self._stopping: set[int] = set()
        """The tokens of attempts that executors were told to abort, and that have not ended."""
        self._devices = Devices(identity.resources, identity.first_devices)
        self._lines = {pool: Line() for pool in self._executors}
        self._queueing = {
            pool: executor
            for pool, executor in self._executors.items()
            if isinstance(executor, QueueingExecutor)
        }
        for pool, executor in self._executors.items():
            if isinstance(executor, BeginsLate):
                executor.on_begun = partial(self._has_begun, pool)
        self._unfed: set[str] = set()
        """Pools whose executors can take something from their lines, perhaps."""
        self._lookahead = Lookahead(settings.lookahead_s, settings.lookahead_runs)
        self._hand_back_timer: asyncio.TimerHandle | None = None
        self._report_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._heard_at = 0.0
        self._draining = asyncio.Event()
        self._hurry = asyncio.Event()
        self._settled = asyncio.Event()
        self._link: Link
        self._session: w.WorkerSession

    # the life of a worker

    async def run(self) -> None:
        """Works until a drain ends; raises `AppError` if the app cannot be loaded."""
        try:
            await self._load()
            if self._draining.is_set():
                return
            ready = self._ready()
            if not ready.kinds and not ready.gateway:
                log.warning(
                    "the app declares no jobs (0 kinds), so this worker is given none: the module "
                    "with its @app.job functions is probably not imported where the app is made"
                )
            self._session = w.WorkerSession(ready, self._patience())
            self._session.runs = self._runs
            self._resume(ready)
            self._open_link()
            measuring = asyncio.create_task(self._keep_measuring())
            await self._draining.wait()
            await self._wind_down()
            measuring.cancel()
        finally:
            await self._close()

    async def _load(self) -> None:
        """Has the executors load the app. A drain cuts it short: an import may take any time."""
        opening = asyncio.create_task(self._open_executors())
        draining = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait((opening, draining), return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()
            opening.cancel()
            await asyncio.gather(opening, draining, return_exceptions=True)
        if not opening.cancelled():
            opening.result()

    async def _open_executors(self) -> None:
        for executor in self._executors.values():
            await executor.open()
        self._takeback.opened()

    def _resume(self, ready: Ready) -> None:
        taken = self._takeback.resume(self._session, ready, self._begun, self._clock.now())
        for one in taken.resumed:
            self._devices.hold(one.assignment.token, one.assignment.devices)
        for report in taken.given_up:
            self._abort(report)

    def drain(self) -> None:
        """Takes no more jobs, finishes those that run or hands them back, then leaves."""
        self._draining.set()

    def hurry(self) -> None:
        """Hands back at once the jobs that still run, and leaves."""
        self._draining.set()
        self._hurry.set()

    def _ready(self) -> Ready:
        worker = self._takeback.worker_id(self._new_id)
        return self._identity.ready(worker, self._executors, outlived=self._takeback.is_on)

    def _patience(self) -> w.Patience:
        return w.Patience(
            self._settings.broker_timeout_s,
            self._settings.silent_periods,
            self._settings.abort_before_s,
            self._settings.kill_before_s,
            self._settings.resend_s,
        )

    async def _keep_measuring(self) -> None:
        while True:
            self._session.stats = self._measure()
            await asyncio.sleep(self._settings.stats_s)

    async def _wind_down(self) -> None:
        self._session.drain(self._clock.now())
        if running := len(self._session.running):
            log.info(
                "draining: %s %g s to finish before being handed back; a second signal hands "
                "back now",
                "1 running job has" if running == 1 else f"{running} running jobs have",
                self._settings.drain_s,
            )
        for pool, line in self._lines.items():
            self._take_back(pool)
            self._hand_back(line.clear())
            if isinstance(executor := self._executors[pool], GathersBatches):
                executor.no_more()
        self._flush()
        if not await self._settles(self._settings.drain_s):
            running = len(self._session.running)
            log.info("handing back %d running job%s", running, "" if running == 1 else "s")
            for attempt in self._session.running:
                self._abort(ReleaseReport(*attempt))
            if not await self._settles(self._settings.abort_grace_s + LEAVE_S):
                log.warning("leaving before a dispatcher recorded the jobs that were handed back")
        self._session.bye("drained")
        self._flush()

    async def _settles(self, seconds: float) -> bool:
        """Whether all that this worker holds is recorded in time. A hurry kills what runs."""
        hurry = asyncio.create_task(self._hurried())
        try:
            async with asyncio.timeout(seconds):
                while not self._session.settled:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            return False
        finally:
            hurry.cancel()
        return True

    async def _hurried(self) -> None:
        await self._hurry.wait()
        for executor in self._executors.values():
            executor.kill()

    async def _close(self) -> None:
        for timer in (self._timer, self._hand_back_timer, self._report_timer):
            if timer is not None:
                timer.cancel()
        if hasattr(self, "_link"):
            # ZeroMQ needs a moment of the loop to hand the goodbye to the kernel.
            await asyncio.sleep(0.05)
            self._link.close()
        for executor in self._executors.values():
            await executor.close()

    # the dialogue

    def _open_link(self) -> None:
        address = self._addresses[0]
        log.info("connecting to the dispatcher at %s", address)
        self._link = self._connect(address, self._receive)
        self._session.connected(self._clock.now())
        self._flush()

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        link, self._heard_at = self._link, self._clock.now()
        for _, frames in arrived:
            if self._link is not link:
                return
            try:
                message = from_dispatcher.decode(frames)
                events = self._session.receive(self._heard_at, message)
                # First of all: what outlives the agent is never behind what it runs.
                self._takeback.extend(self._session)
                self._apply(events)
            except ProtocolError as error:
                log.warning(
                    "the dispatcher sent a message that this worker does not understand: %s", error
                )
        # Later: first the executors pass on the attempts that came.
        if self._report_timer is None:
            self._flush_soon()

    def _tick(self) -> None:
        self._timer = None
        self._apply(self._session.tick(self._clock.now()))
        self._flush()

    def _flush(self) -> None:
        self._flushing = False
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        self._session.ahead = self._ahead()
        for message in self._session.flush():
            self._link.send(b"", encode(message))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self._session.wake_at()
        if wake_at is not None:
            delay = max(0.0, wake_at - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _report_later(self, pool: str) -> None:
        if not self._flushing and self._report_timer is None:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(self._gather_s(pool), self._flush)

    def _gather_s(self, pool: str) -> float:
        """A third of the time that the pool's line lasts, so that more comes before it is empty."""
        line, executor = self._lines[pool], self._executors[pool]
        held = (len(line) + len(line.given)) / executor.slots
        lasts_s = held * self._lookahead.usual_s(executor.kinds)
        return min(max(REPORT_EVERY_S, lasts_s / 3), REPORT_WITHIN_S)

    def _apply(self, events: Sequence[w.Event]) -> None:
        for event in events:
            match event:
                case w.Start():
                    self._begin(event.assignment)
                case w.Stop(attempt):
                    self._abort(CancelReport(*attempt))
                case w.StopAll(reason, kill):
                    self._stop_all(reason, kill)
                case w.Joined(session):
                    log.info("attended, session %d", session)
                    self._on_joined()
                case w.Moved(reason):
                    self._move(reason)
                case w.Orphaned(reason):
                    log.warning("joining anew as another worker: %s", reason)
                    self._takeback.forget()
                    self._session.rejoin(self._new_id(), self._clock.now())
                case w.Dismissed(reason):
                    log.info("told to leave: %s", reason)
                    self.drain()
                case w.Recorded(attempts, stale):
                    self._takeback.recorded(attempts, stale)
                    for job, token in stale:
                        log.warning(*refused(job, token), extra={"job": job, "attempt": token})
                case _:
                    assert_never(event)
        if self._session.settled:
            self._settled.set()

    def _move(self, reason: str) -> None:
        log.warning("%s at %s", reason, self._addresses[0])
        self._addresses.rotate(-1)
        self._link.close()
        self._open_link()

    # the attempts

    def _begin(self, assignment: Assignment) -> None:
        if self._draining.is_set():
            self._hand_back([assignment.key])
            return
        if assignment.resources and not self._devices.ever_fit(assignment.resources):
            log.warning("job %s needs devices: %s", assignment.job, assignment.resources)
            self._hand_back([assignment.key])
            return
        pool = self._pool(assignment.kind)
        has_time = assignment.begin_within_s is None
        if has_time and pool not in AHEAD_POOLS and self._start_at_once(pool, assignment):
            return
        line, at = self._lines[pool], self._begins_at(pool)
        if line.is_urgent(assignment):
            self._take_back(pool)
        if not line and self._has_room(pool, assignment):
            self._start_in_time(pool, Waiting(at, assignment))
        else:
            line.add(assignment, at)
            self._feed_soon(pool)
        held = self._lookahead.lookahead_s and pool in AHEAD_POOLS and (line or line.given)
        if held and self._hand_back_timer is None:
            self._watch_lines(self._lookahead.hand_back_s)

    def _start_at_once(self, pool: str, assignment: Assignment) -> bool:
        """Starts an attempt in a pool that holds nothing ahead, if a slot is free, as most are."""
        begun, executor = self._begun[pool], self._executors[pool]
        if self._lines[pool] or len(begun) >= executor.slots:
            return False
        if assignment.resources:
            if not self._devices.fit(assignment.resources):
                return False
            assignment = self._equipped(assignment)
        begun[assignment.token] = Begun(assignment, self._heard_at)
        self._takeback.began(assignment)
        executor.start(assignment)
        return True

    def _pool(self, kind: str) -> str:
        for executor in self._executors.values():
            if kind in executor.kinds:
                return executor.kinds[kind].pool
        return next(iter(self._executors))

    def _begins_at(self, pool: str) -> float:
        # To read the clock costs more than to start a coroutine, and that one begins as it comes.
        return self._clock.now() if pool in AHEAD_POOLS else self._heard_at

    def _feed_soon(self, pool: str) -> None:
        if not self._unfed:
            asyncio.get_running_loop().call_soon(self._feed)
        self._unfed.add(pool)

    def _feed(self) -> None:
        """Passes on what the executors have room for."""
        while self._unfed:
            pool = self._unfed.pop()
            line = self._lines[pool]
            while line and self._has_room(pool, line.next):
                self._start_in_time(pool, line.pop())

    def _has_room(self, pool: str, assignment: Assignment) -> bool:
        if assignment.resources and not self._devices.fit(assignment.resources):
            return False
        # An aborted attempt may still hold its slot after the dispatcher gave the slot to another.
        held, slots = len(self._begun[pool]), self._executors[pool].slots
        if pool not in self._queueing:
            return held < slots
        held += len(self._lines[pool].given)
        return held < slots or held < slots * (1 + self._in_process(assignment))

    def _in_process(self, assignment: Assignment) -> int:
        """How many attempts like this one may wait in a process. One with a deadline waits here.

        So does one that has devices: from its start on, no other has them.
        """
        if assignment.begin_within_s is not None or assignment.resources:
            return 0
        return self._lookahead.in_process(assignment.kind)

    def _start_in_time(self, pool: str, waiting: Waiting) -> None:
        """Starts an attempt, or hands it back if it has expired: then a dispatcher ends it."""
        within_s = waiting.assignment.begin_within_s
        if within_s is not None and self._clock.now() - waiting.at >= within_s:
            self._hand_back([waiting.assignment.key])
        else:
            self._start(pool, waiting)

    def _start(self, pool: str, waiting: Waiting) -> None:
        assignment = self._equipped(waiting.assignment)
        line, begun, executor = self._lines[pool], self._begun[pool], self._executors[pool]
        if len(begun) + len(line.given) < executor.slots:
            begun[assignment.token] = Begun(assignment, self._begins_at(pool))
        else:
            line.give(waiting)
        self._takeback.began(assignment)
        queueing = self._queueing.get(pool)
        if queueing is not None and self._in_process(assignment):
            queueing.start_short(assignment)
        else:
            executor.start(assignment)

    def _equipped(self, assignment: Assignment) -> Assignment:
        """The attempt with the devices that it needs, which are free."""
        if not assignment.resources:
            return assignment
        devices = self._devices.take(assignment.token, assignment.resources)
        return replace(assignment, devices=devices) if devices else assignment

    def _has_begun(self, pool: str, token: int, ago_s: float) -> None:
        begun, given = self._begun[pool], self._lines[pool].given
        known = given.pop(token, None) or begun.get(token)
        if known is not None:
            begun[token] = Begun(known.assignment, self._clock.now() - ago_s)

    # what is held ahead

    def _watch_lines(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._hand_back_timer = loop.call_later(after_s, self._hand_back_waiting)

    def _hand_back_waiting(self) -> None:
        """Hands back what has waited for too long: another worker may be idle."""
        self._hand_back_timer = None
        now, after_s = self._clock.now(), self._lookahead.hand_back_s
        lines = {pool: line for pool, line in self._lines.items() if pool in AHEAD_POOLS}
        for pool, line in lines.items():
            if line.has_late_given(now, after_s):
                self._take_back(pool)
            late = line.late(now, after_s)
            for _, token in late:
                line.remove(token)
            if late:
                self._lookahead.handed_back()
                self._hand_back(late)
        late_at = min((line.late_at(after_s) for line in lines.values()), default=inf)
        if late_at < inf:
            # What began unheard cannot be taken back: its beginning is told in a moment.
            self._watch_lines(max(REPORT_EVERY_S, late_at - now))

    def _take_back(self, pool: str) -> None:
        """Puts into its line again what waits in an executor and has not begun."""
        line = self._lines[pool]
        if line.given:
            line.taken_back(self._queueing[pool].take_back(line.given.keys()))
            self._feed_soon(pool)

    def _ahead(self) -> Ahead:
        """What the worker holds ahead of its slots from now on, if it is given that."""
        if self._draining.is_set() or not self._lookahead.knows_short:
            return NOTHING_AHEAD
        now, pools, kinds = self._clock.now(), dict[str, int](), set[str]()
        for pool in AHEAD_POOLS & self._executors.keys():
            executor = self._executors[pool]
            own = [kind for kind, info in executor.kinds.items() if info.pool == pool]
            running = [
                (one.assignment.kind, inf if token in self._stopping else now - one.at)
                for token, one in self._begun[pool].items()
            ]
            most = self._lookahead.ahead(own, executor.slots, running)
            if most and self._lines[pool].bytes < MOST_BYTES:
                pools[pool] = most
                kinds |= self._lookahead.short(own)
        return Ahead(pools, tuple(sorted(kinds)))

    def _runs(self, now: float) -> dict[str, tuple[Run, ...]]:
        """Which attempts run, and for how long. The others are held ahead."""
        return {
            pool: tuple(Run(token, now - one.at) for token, one in begun.items())
            for pool, begun in self._begun.items()
            if begun
        }

    # ends

    def _abort(self, report: Report) -> None:
        for pool, begun in self._begun.items():
            line = self._lines[pool]
            if report.token in line.given:
                self._take_back(pool)
            if report.token in begun or report.token in line.given:
                self._stopping.add(report.token)
                self._executors[pool].abort(report)
                return
        held = [line for line in self._lines.values() if line.remove(report.token) is not None]
        if held and isinstance(report, ReleaseReport):
            report = NotBegunReport(*report.key)
        self._session.ended(report)
        self._flush_soon()

    def _hand_back(self, attempts: Iterable[AttemptKey]) -> None:
        for attempt in attempts:
            self._session.ended(NotBegunReport(*attempt))
        self._flush_soon()

    def _stop_all(self, reason: str, kill: bool) -> None:
        log.warning("stopping %d jobs: %s", len(self._session.running), reason)
        if kill:
            for line in self._lines.values():
                line.clear()
            for executor in self._executors.values():
                executor.kill()
        else:
            for attempt in self._session.running:
                self._abort(ReleaseReport(*attempt))

    def _reported(self, report: Report, took_s: float | None = None, /) -> None:
        for pool, begun in self._begun.items():
            if report.token in self._lines[pool].given:
                # It began and ended since the executor last told of something.
                self._has_begun(pool, report.token, took_s or 0.0)
            if (one := begun.pop(report.token, None)) is not None:
                report = self._ran(pool, one, report, took_s)
                break
        self._takeback.ended(report.token)
        self._session.ended(report)
        if self._devices.release(report.token):
            for waits in self._executors:
                self._feed_soon(waits)
        line = self._lines[pool]
        if line:
            self._feed_soon(pool)
        if pool in AHEAD_POOLS and (line or line.given):
            self._report_later(pool)
        else:
            self._flush_soon()

    def _ran(self, pool: str, begun: Begun, report: Report, took_s: float | None) -> Report:
        """The report of an attempt that ran; in a pool that looks ahead, with how long it did."""
        if why := failure(report):
            about = ids(begun.assignment)
            log.warning("%s failed: %s", called(begun.assignment), why, extra=about)
        was_stopping = report.token in self._stopping
        self._stopping.discard(report.token)
        if pool not in AHEAD_POOLS or isinstance(report, NotBegunReport):
            return report
        ran_s = self._clock.now() - begun.at if took_s is None else took_s
        # Of a turn nothing is learnt: a worker never holds one ahead.
        tells = not was_stopping and begun.assignment.worker is None
        self._lookahead.ran(begun.assignment.kind, ran_s if tells else None)
        return replace(report, ran_s=ran_s)

    def _said(self, entry: LogEntry) -> None:
        self._session.said(entry)
        self._flush_soon()
