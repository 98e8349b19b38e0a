"""Sessions of the plain dialogue: hears plain workers, asks the store, and answers them.

Theory. `wire/plain.py` says what a frame means, and what a plain worker owes. Here that meets the
store. A plain worker has no id, lease or goodbye. So READY or PING from an unknown peer makes a new
worker in the store, with a new id. An idle worker is lost after `plain_expire_s` of silence. A busy
one may be silent: every `plain_probe_s` the dispatcher sends it a PONG, and the worker is lost if
the link finds no connection by its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence

from longshore.core.timing import settle_failure
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.losses import Loss, Losses
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.tasks import Tasks
from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.worker import Attended, WorkerInfo
from longshore.wire import plain
from longshore.wire.dispatcher_side import Session
from longshore.wire.plain import Meaning, PlainSession

log = logging.getLogger("longshore.dispatcher")

FIRST_SESSION = 1


class PlainSessions:
    """Hears and answers the plain workers of a dispatcher."""

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        link: WorkerLink,
        commits: Commits,
        ends: Ends,
        losses: Losses,
    ) -> None:
        self._id, self._store, self._settings, self._clock, _ = environment
        self._new_id = environment.new_id
        self._own_lease = own_lease
        self._link = link
        self._roster = losses.roster
        self._commits = commits
        self._ends = ends
        self._losses = losses
        self._tasks = Tasks()
        self._moving: set[bytes] = set()
        self._closing = False
        self.look_s = min(self._settings.plain_expire_s, self._settings.plain_probe_s) / 10
        """How often to call `look_after`."""

    # receiving

    def receive(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """Two frames came from a worker. Frames that mean nothing are dropped."""
        frame = plain.only(frames)
        known = self._of_peer(peer)
        if frame is None or not (known is None or isinstance(known, PlainSession)):
            log.debug("dropped a plain message from %s", peer.hex())
            return
        busy, automatic = known is not None and known.busy, plain.is_automatic(peer)
        meaning = plain.understand(frame, busy=busy, automatic=automatic)
        if meaning is Meaning.ALIVE:
            self._link.send(peer, plain.frames_of(plain.PONG))
        if known is not None:
            known.heard_at = self._clock.now()
            self._hear(known, meaning, frame)
        elif meaning is not None:
            self._begin(peer, self._join(peer))

    def _of_peer(self, peer: bytes) -> Session | None:
        """The first session of this peer. A connection speaks one dialogue."""
        return next(iter(self._roster.of_peer(peer).values()), None)

    def _hear(self, session: PlainSession, meaning: Meaning | None, frame: bytes) -> None:
        match meaning:
            case Meaning.ALIVE:
                if session.pinged():
                    self._commits.wake()
            case Meaning.RESULT:
                self._ends.report(session, session.answered(frame))
            case Meaning.RESTARTED:
                self._begin(session.peer, self._rejoin(session, "restarted", crash=True))
            case Meaning.IDLE | None:
                pass

    def _begin(self, peer: bytes, work: Coroutine[None, None, None]) -> None:
        """Starts work that lets a peer join or leave, unless such work is under way for it."""
        if peer in self._moving or self._closing:
            work.close()
            return
        self._moving.add(peer)
        task = self._tasks.start(work)
        task.add_done_callback(lambda _: self._moving.discard(peer))

    # joining and leaving

    async def _join(self, peer: bytes, earlier: PlainSession | None = None) -> None:
        info = plain.describe(self._new_id(), peer)
        answer = await self._attend(info)
        if answer is None:
            # The store may have attended it. Its next PING makes a new worker of it.
            why = "the store did not answer when it came"
            await self._losses.declare(Loss(info.id, FIRST_SESSION, why, crash=False))
            return
        session = PlainSession(peer, info, answer, self._clock.now())
        if earlier is not None:
            session.follow(earlier)
        self._roster.add(session)
        log.info("plain worker %s attends", info.name)
        self._commits.wake()

    async def _attend(self, info: WorkerInfo) -> Attended | None:
        """The store's answer; None if it failed, or came too late to rely on."""
        asked_at = self._clock.now()
        try:
            answer = await self._store.attend(self._id, info)
        except StoreUnavailable as error:
            self._own_lease.saw_outage(error)
            return None
        in_time = self._clock.now() - asked_at < self._settings.lease_s / 2
        return answer if isinstance(answer, Attended) and in_time else None

    def start_over(self) -> None:
        """Other dispatchers may have declared these workers lost: each joins anew."""
        for session in self._attended():
            why = "its dispatcher was away from the store"
            self._begin(session.peer, self._rejoin(session, why, crash=False))

    async def _rejoin(self, session: PlainSession, why: str, *, crash: bool) -> None:
        await self._losses.lose(session, why, crash=crash)
        # A worker that crashed forgot what it owed.
        await self._join(session.peer, None if crash else session)

    # giving

    def give(self, session: PlainSession, claimed: Sequence[Attempt]) -> None:
        """The store gave attempts to a session."""
        for one in claimed:
            error = plain.unfit(one)
            if error is not None:
                self._ends.end(settle_failure(one, error, luck=0.0), session)
            elif not self._tell(session, session.assign([one])):
                session.undeliverable([one])
                self._begin(session.peer, self._losses.lose(session, "not connected", crash=False))

    def _tell(self, session: PlainSession, jobs: Sequence[bytes]) -> bool:
        session.probe_from(self._clock.now(), self._settings.plain_probe_s)
        return all(self._link.send(session.peer, plain.frames_of(job)) for job in jobs)

    # looking after them

    async def look_after(self) -> None:
        """Removes idle workers that fell silent, and busy ones whose connection is gone."""
        asked_at = self._clock.now()
        # A dispatcher that was busy or asleep must first read what its workers sent meanwhile.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for session in self._attended():
            if session in self._roster:
                await self._look_at(session, asked_at)

    def _attended(self) -> list[PlainSession]:
        return [one for one in self._roster if isinstance(one, PlainSession)]

    async def _look_at(self, session: PlainSession, asked_at: float) -> None:
        if self._of_peer(session.peer) is not session:
            await self._losses.lose(session, "another worker came by its name", crash=True)
        elif session.is_expired(asked_at, self._settings.plain_expire_s):
            why = f"not heard of for {self._settings.plain_expire_s:g} s"
            await self._losses.lose(session, why, crash=False)
        elif session.busy and asked_at >= session.probe_at:
            await self._probe(session)

    async def _probe(self, session: PlainSession) -> None:
        if self._link.send(session.peer, plain.frames_of(plain.PONG)):
            session.probed(self._clock.now(), self._settings.plain_probe_s)
        else:
            await self._losses.lose(session, "its connection is gone", crash=True)

    async def close(self) -> None:
        """Gives up all plain workers. No dispatcher can adopt them, so their jobs go back."""
        self._closing = True
        await self._tasks.ended()
        for session in self._attended():
            await self._losses.lose(session, "its dispatcher stopped", crash=False)
