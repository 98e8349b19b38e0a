"""The attendant: talks to workers, on behalf of the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence, Set
from typing import NamedTuple
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.core.introductions import (
    MAX_HELD,
    MAX_REASON_CHARS,
    check_held,
    check_worker,
)
from longshore.core.leases import ping_every_s
from longshore.core.logs import fits
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.dropped import DroppedMessages
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.log_writer import LogWriter
from longshore.dispatcher.losses import Losses
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.plain import PlainAttendant
from longshore.dispatcher.roster import Roster
from longshore.errors import InvalidInput, ProtocolError, StoreUnavailable
from longshore.model.attempt import Attempt, AttemptKey
from longshore.model.reports import Report
from longshore.model.worker import Attended, Gone, Slot, WorkerInfo
from longshore.ports import Clock, Link, Store
from longshore.wire import messages as m
from longshore.wire.codec import encode, from_worker
from longshore.wire.dispatcher_side import Attendance, FullAttendance
from longshore.wire.plain import PlainAttendance

log = logging.getLogger("longshore.dispatcher")

MAX_JOINERS = 2
"""So many workers at a time are being attended. Others wait where they can still be forgotten, not
at the store, before whatever else is urgent there."""


MAX_CONNECTION_WORKERS = 10_000
"""So many workers may attend through one connection."""


class Ask(NamedTuple):
    """What a worker that wants to be attended said, from where and when."""

    peer: bytes
    info: WorkerInfo
    ready: m.Ready
    at: float


class Attendant:
    """Everything that workers say comes here, and everything they are told goes out from here."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        clock: Clock,
        roster: Roster,
        commits: Commits,
        own_lease: OwnLease,
        losses: Losses,
        plain: PlainAttendant,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._clock = clock
        self._roster = roster
        self._commits = commits
        self._own_lease = own_lease
        self._losses = losses
        self._plain = plain
        self._tasks: set[asyncio.Task[None]] = set()
        self._asks: dict[tuple[UUID, str], Ask] = {}
        self._joining: set[tuple[bytes, UUID]] = set()
        self._joiners = 0
        self._junk = DroppedMessages(clock, "workers")
        self.log_writer = LogWriter(store, own_lease.saw_outage)
        self.link: Link
        self.ends: Ends

    # receiving

    def receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        """Messages came from workers. Junk is dropped: a stranger can do no harm."""
        for peer, frames in arrived:
            # Each by itself: what one peer sends must not cost the others their messages.
            try:
                if len(frames) == 2:
                    self._plain.receive(peer, frames)
                else:
                    self._hear(peer, from_worker.decode(frames))
            except ProtocolError as error:
                self._junk.dropped(peer, error)
            except Exception:
                self._junk.failed(peer)

    def _hear(self, peer: bytes, message: m.WorkerMessage) -> None:
        if isinstance(message, m.Ready):
            self._asked(peer, message)
            return
        attendance = self._roster.of_peer(peer).get(message.worker)
        if not isinstance(attendance, FullAttendance):
            return
        if attendance.info.key != self.link.key_of(peer):
            return
        attendance.heard_at = self._clock.now()
        match message:
            case m.Ping() if len(message.held) + len(message.unacknowledged) <= 2 * MAX_HELD:
                self._pinged(attendance, message)
            case m.Done():
                self._done(attendance, message)
            case m.Logs():
                self.log_writer.add(
                    [
                        one
                        for one in message.entries
                        if attendance.holds((one.job, one.token)) and fits(one)
                    ]
                )
            case m.Bye():
                self._start(self._left(attendance, message.reason[:MAX_REASON_CHARS]))

    def _done(self, attendance: FullAttendance, done: m.Done) -> None:
        for report in done.reports:
            try:
                self._ended(attendance, report)
            except Exception:
                self._junk.failed(attendance.peer)

    def _ended(self, attendance: FullAttendance, report: Report) -> None:
        """What an attempt said is in the store no later than its end."""
        if report.token in self.log_writer.unwritten:
            self.log_writer.after(report.token, lambda: self.ends.report(attendance, report))
        else:
            self.ends.report(attendance, report)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # joining and leaving

    def _asked(self, peer: bytes, ready: m.Ready) -> None:
        info = _info(ready, self.link.key_of(peer))
        reason = _unfit(ready, info)
        others = self._roster.of_peer(peer)
        if len(others) >= MAX_CONNECTION_WORKERS and info.id not in others:
            reason = f"its connection carries {len(others):,} workers; open another one"
        if reason is not None:
            self.link.send(peer, encode(m.Exit(info.id, reason)))
            return
        if (peer, info.id) in self._joining:
            return
        # In the place of what it asked before, if that was not looked at yet: whoever has waited
        # the longest is next, and is answered where it waits now.
        self._asks[info.id, info.key] = Ask(peer, info, ready, self._clock.now())
        if self._joiners < MAX_JOINERS:
            self._joiners += 1
            self._start(self._join())

    async def _join(self) -> None:
        """Attends one after the other who asked for it."""
        try:
            while self._asks:
                ask = self._asks.pop(next(iter(self._asks)))
                joining = ask.peer, ask.info.id
                self._joining.add(joining)
                try:
                    await self._attend(ask)
                except StoreUnavailable as error:
                    self._own_lease.saw_outage(error)
                finally:
                    self._joining.discard(joining)
        finally:
            self._joiners -= 1

    async def _attend(self, ask: Ask) -> None:
        peer, info, ready, _ = ask
        if self._own_lease.lease_s() is None or not self._is_waiting(ask):
            return
        answer = await self._store.attend(
            self._dispatcher, info, draining=ready.draining, session=ready.session
        )
        if isinstance(answer, Gone):
            self.link.send(peer, encode(m.Gone(info.id, answer.reason)))
        elif isinstance(answer, Attended) and self._may_welcome(ask, answer):
            now = self._clock.now()
            await self._welcome(FullAttendance(peer, info, answer, now, ready.draining), ready)

    def _may_welcome(self, ask: Ask, answer: Attended) -> bool:
        """Whether the worker still waits here, and can be given a lease. If not it asks again."""
        newest = answer.session > self._roster.session_of(ask.ready.worker)
        return self._is_waiting(ask) and newest and self._own_lease.lease_s() is not None

    def _is_waiting(self, ask: Ask) -> bool:
        return self._clock.now() - ask.at < self._settings.lease_s / 2

    async def _welcome(self, attendance: FullAttendance, ready: m.Ready) -> None:
        through = self._roster.of_peer(attendance.peer).values()
        plain = [one for one in through if isinstance(one, PlainAttendance)]
        self._roster.add(attendance)
        settings, info = self._settings, attendance.info
        welcome = attendance.welcome(ready, self._ping_s(), settings.lease_s)
        if not self._tell(attendance, welcome):
            attendance.unsent()
        log.info("worker %s attends, session %d", info.name or info.id, attendance.session)
        self._commits.wake()
        for previous in plain:
            await self._losses.lose(previous, "it came back as another worker", crash=False)

    async def _left(self, attendance: Attendance, reason: str) -> None:
        await self._losses.lose(attendance, reason or "left", crash=False)

    async def lose(self, attendance: Attendance, why: str) -> None:
        """A worker is no more: its jobs go to others."""
        self._roster.remove(attendance)
        log.warning("worker %s is lost: %s", attendance.info.name or attendance.info.id, why)
        crash = not self._own_lease.blames_store()
        await self._losses.lose(attendance, why, crash=crash, lost=True)

    # while attending

    def _pinged(self, attendance: FullAttendance, ping: m.Ping) -> None:
        lease_s = self._own_lease.lease_s()
        was_draining, was_choked = attendance.draining, attendance.is_choked
        answers = attendance.pinged(self._clock.now(), ping, self._ping_s(), lease_s)
        if not self._tell(attendance, answers):
            attendance.unsent()
        unheard, attendance.unheard = attendance.unheard, []
        for ack in unheard:
            self.acknowledge(attendance, ack)
        if was_choked and not attendance.is_choked:
            self._commits.wake()
        if ping.draining and not was_draining:
            self._start(self._mark_draining(attendance.info.id))

    def _ping_s(self) -> float:
        settings = self._settings
        return ping_every_s(
            len(self._roster), settings.ping_s, settings.max_pings_per_s, settings.lease_s
        )

    async def _mark_draining(self, worker: UUID) -> None:
        try:
            await self._store.set_draining(worker, True)
        except StoreUnavailable as error:
            self._own_lease.saw_outage(error)

    def give(self, slot: Slot, claimed: Sequence[Attempt]) -> None:
        """Attempts were claimed for a session. If it is over, its next one has them already."""
        attendance = self._roster.of_session(slot)
        if isinstance(attendance, PlainAttendance):
            self._plain.give(attendance, claimed)
        elif isinstance(attendance, FullAttendance) and not self._tell(
            attendance, attendance.assign(claimed)
        ):
            attendance.undeliverable(claimed)

    def abort(self, attendance: Attendance, attempts: Sequence[AttemptKey], reason: str) -> None:
        """Tells a worker to stop attempts."""
        self._tell(attendance, attendance.abort(attempts, reason))

    def heed_drains(self, draining: Set[UUID]) -> bool:
        """Tells those workers to leave that are to drain; answers whether any changed."""
        changed = False
        for attendance in self._roster:
            before = attendance.draining
            self._tell(attendance, attendance.heed(attendance.info.id in draining))
            changed = changed or attendance.draining is not before
        return changed

    def acknowledge(self, attendance: Attendance, ack: m.Ack) -> None:
        """Tells a worker what it may forget."""
        if not self._tell(attendance, attendance.acknowledge(ack)):
            attendance.unheard.append(ack)

    def _tell(self, attendance: Attendance, messages: Sequence[m.DispatcherMessage]) -> bool:
        # What cannot be sent is made good by the next PING, or by the worker's loss.
        sent = [self.link.send(attendance.peer, encode(one)) for one in messages]
        return all(sent)

    async def close(self) -> None:
        """Waits for what it has begun. Who still asks to be attended turns to another."""
        self._asks.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _unfit(ready: m.Ready, info: WorkerInfo) -> str | None:
    """Why a worker cannot be attended, if it cannot."""
    if ready.v != m.PROTOCOL_VERSION:
        return f"this dispatcher speaks protocol {m.PROTOCOL_VERSION}, not {ready.v}"
    try:
        check_worker(info)
        check_held(ready.held, ready.unacknowledged)
    except InvalidInput as error:
        return f"READY is refused: {error}"
    return None


def _info(ready: m.Ready, key: str) -> WorkerInfo:
    return WorkerInfo(
        id=ready.worker,
        name=ready.name,
        host=ready.host,
        pid=ready.pid,
        kinds=ready.kinds,
        queues=ready.queues,
        target=ready.target,
        pools=ready.pools,
        process=ready.process,
        key=key,
    )
