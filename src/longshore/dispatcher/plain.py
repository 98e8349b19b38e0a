"""The plain attendant: talks to workers that speak the plain dialogue, on behalf of the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.core.timing import settle_failure
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.losses import Loss, Losses
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.roster import Roster
from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.worker import Attended, WorkerInfo
from longshore.ports import Clock, Link, Store
from longshore.wire import plain
from longshore.wire.dispatcher_side import Attendance
from longshore.wire.plain import PlainAttendance

log = logging.getLogger("longshore.dispatcher")

FIRST_SESSION = 1


class PlainAttendant:
    """Everything that plain workers say comes here, and everything they are told goes out here."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        *,
        clock: Clock,
        new_id: Callable[[], UUID],
        roster: Roster,
        commits: Commits,
        own_lease: OwnLease,
        losses: Losses,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._clock = clock
        self._new_id = new_id
        self._roster = roster
        self._commits = commits
        self._own_lease = own_lease
        self._losses = losses
        self._tasks: set[asyncio.Task[None]] = set()
        self._moving: set[bytes] = set()
        self._closing = False
        self.look_s = min(settings.plain_expire_s, settings.plain_probe_s) / 10
        """How often to `look_after` the workers."""
        self.link: Link
        self.ends: Ends

    # receiving

    def receive(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """Two frames came from a worker. What means nothing is dropped."""
        frame = plain.only(frames)
        known = self._of_peer(peer)
        if frame is None or not (known is None or isinstance(known, PlainAttendance)):
            log.debug("dropped a plain message from %s", peer.hex())
            return
        busy, automatic = known is not None and known.busy, plain.is_automatic(peer)
        event = plain.understand(frame, busy=busy, automatic=automatic)
        if isinstance(event, plain.Pinged):
            self.link.send(peer, plain.encode(plain.Pong()))
        if known is not None:
            known.heard_at = self._clock.now()
            self._hear(known, event)
        elif event is not None:
            self._begin(peer, self._join(peer))

    def _of_peer(self, peer: bytes) -> Attendance | None:
        """Who came first through this peer: a connection speaks one dialogue."""
        return next(iter(self._roster.of_peer(peer).values()), None)

    def _hear(self, attendance: PlainAttendance, event: plain.Event | None) -> None:
        match event:
            case plain.Pinged():
                if attendance.pinged():
                    self._commits.wake()
            case plain.Answered():
                self.ends.report(attendance, attendance.answered(event.result))
            case plain.Restarted():
                self._begin(attendance.peer, self._restart(attendance))
            case plain.Came() | None:
                pass

    def _begin(self, peer: bytes, work: Coroutine[None, None, None]) -> None:
        """A peer comes or goes, unless it is about to already."""
        if peer in self._moving or self._closing:
            work.close()
            return
        self._moving.add(peer)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._moving.discard(peer))

    # joining and leaving

    async def _join(self, peer: bytes, earlier: PlainAttendance | None = None) -> None:
        info = plain.describe(self._new_id(), peer)
        answer = await self._attend(info)
        if answer is None:
            # The store may have it all the same; its next PING makes another worker of it.
            why = "the store did not answer when it came"
            await self._losses.declare(Loss(info.id, FIRST_SESSION, why, crash=False))
            return
        attendance = PlainAttendance(peer, info, answer, self._clock.now())
        if earlier is not None:
            attendance.follow(earlier)
        self._roster.add(attendance)
        log.info("plain worker %s attends", info.name)
        self._commits.wake()

    async def _attend(self, info: WorkerInfo) -> Attended | None:
        """The store's answer; None if there was none, or too late for it to be true still."""
        asked_at = self._clock.now()
        try:
            answer = await self._store.attend(self._dispatcher, info)
        except StoreUnavailable as error:
            self._own_lease.saw_outage(error)
            return None
        in_time = self._clock.now() - asked_at < self._settings.lease_s / 2
        return answer if isinstance(answer, Attended) and in_time else None

    async def _restart(self, attendance: PlainAttendance) -> None:
        await self._lose(attendance, "restarted", crash=True)
        await self._join(attendance.peer)

    def start_over(self) -> None:
        """Others may have declared these workers lost: each is attended anew, with what it owes."""
        for attendance in self._attended():
            self._begin(attendance.peer, self._follow(attendance))

    async def _follow(self, attendance: PlainAttendance) -> None:
        await self._lose(attendance, "its dispatcher was away from the store", crash=False)
        await self._join(attendance.peer, attendance)

    async def _lose(self, attendance: PlainAttendance, why: str, *, crash: bool) -> None:
        if crash:
            log.warning("plain worker %s is lost: %s", attendance.info.name, why)
        await self._losses.lose(attendance, why, crash=crash)

    # giving

    def give(self, attendance: PlainAttendance, claimed: Sequence[Attempt]) -> None:
        """Attempts were claimed for a session."""
        for one in claimed:
            error = plain.unfit(one)
            if error is not None:
                self.ends.end(settle_failure(one, error, luck=0.0), attendance)
            elif not self._tell(attendance, attendance.assign([one])):
                attendance.undeliverable([one])
                self._begin(attendance.peer, self._lose(attendance, "not connected", crash=False))

    def _tell(self, attendance: PlainAttendance, messages: Sequence[plain.Work]) -> bool:
        attendance.probe_from(self._clock.now(), self._settings.plain_probe_s)
        return all(self.link.send(attendance.peer, plain.encode(one)) for one in messages)

    # looking after them

    async def look_after(self) -> None:
        """Removes idle workers that fell silent, and busy ones that are not there any more."""
        asked_at = self._clock.now()
        # A dispatcher that was itself held up must first read what its workers sent meanwhile.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for attendance in self._attended():
            if attendance in self._roster:
                await self._look_at(attendance, asked_at)

    def _attended(self) -> list[PlainAttendance]:
        return [one for one in self._roster if isinstance(one, PlainAttendance)]

    async def _look_at(self, attendance: PlainAttendance, asked_at: float) -> None:
        if self._of_peer(attendance.peer) is not attendance:
            await self._lose(attendance, "another worker came by its name", crash=True)
        elif attendance.is_expired(asked_at, self._settings.plain_expire_s):
            why = f"not heard of for {self._settings.plain_expire_s:g} s"
            await self._lose(attendance, why, crash=False)
        elif attendance.busy and asked_at >= attendance.probe_at:
            await self._probe(attendance)

    async def _probe(self, attendance: PlainAttendance) -> None:
        if self.link.send(attendance.peer, plain.encode(plain.Pong())):
            attendance.probed(self._clock.now(), self._settings.plain_probe_s)
        else:
            await self._lose(attendance, "its connection is gone", crash=True)

    async def close(self) -> None:
        """Lets go of all plain workers: nobody can adopt them, so their jobs go back at no cost."""
        self._closing = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for attendance in self._attended():
            await self._losses.lose(attendance, "its dispatcher stopped", crash=False)
