"""Sessions of the full dialogue: hears workers, asks the store, and answers them.

Theory. Frames from workers arrive here. READY goes to `joining.py`, which has the store attend the
worker and comes back with a `FullSession`. Any other message must come from the connection of a
session in the roster, and with its key; all else is dropped, because anybody can connect. The
session (`wire/dispatcher_side.py`) decides the answers. Ends go to the store through `ends.py`, log
entries through `log_writer.py`, and an end waits until the entries before it are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from longshore.core.leases import ping_every_s
from longshore.core.logs import fits
from longshore.core.worker_limits import MAX_HELD, MAX_REASON_CHARS
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.dropped import DroppedMessages
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.log_writer import LogWriter
from longshore.dispatcher.losses import Losses
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.joining import Joining
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.sessions.plain import PlainSessions
from longshore.dispatcher.tasks import Tasks
from longshore.errors import ProtocolError
from longshore.model.actor import Reply
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Failed, PutAside, ReadDone
from longshore.model.job import JobError, Reason
from longshore.model.reports import Report
from longshore.model.worker import SessionKey
from longshore.wire import messages as m
from longshore.wire.codec import from_worker
from longshore.wire.dispatcher_side import FullSession
from longshore.wire.plain import PlainSession

log = logging.getLogger("longshore.dispatcher")


class FullSessions:
    """Hears all messages of workers; passes those of two frames to the plain dialogue."""

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        link: WorkerLink,
        commits: Commits,
        ends: Ends,
        losses: Losses,
        plain: PlainSessions,
        issue: Callable[[Attempt], str],
    ) -> None:
        self._issue = issue
        _, self._store, self._settings, self._clock, _ = environment
        self._own_lease = own_lease
        self._link = link
        self._roster = losses.roster
        self._commits = commits
        self._ends = ends
        self._losses = losses
        self._plain = plain
        self._tasks = Tasks()
        self._joining = Joining(environment, own_lease, link, self._roster, self._welcome)
        self._junk = DroppedMessages(self._clock, "workers")
        self.log_writer = LogWriter(self._store, own_lease.saw_outage)

    # receiving

    def receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        """Messages came from workers. Junk is dropped."""
        for peer, frames in arrived:
            # One by one: a bad message must not cost other peers theirs.
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
            self._joining.asked(peer, message)
            return
        session = self._roster.of_peer(peer).get(message.worker)
        if not isinstance(session, FullSession):
            return
        if session.info.key != self._link.key_of(peer):
            return
        session.heard_at = self._clock.now()
        match message:
            case m.Ping() if _named(message) <= 2 * MAX_HELD:
                self._pinged(session, message)
            case m.Done():
                self._done(session, message)
            case m.Logs():
                own = [one for one in message.entries if session.holds((one.job, one.token))]
                self.log_writer.add([one for one in own if fits(one)])
            case m.Bye():
                reason = message.reason[:MAX_REASON_CHARS] or "left"
                if message.lost and session.is_proxied:
                    self._tasks.start(self._losses.lose_silent(session, reason))
                else:
                    self._tasks.start(self._losses.lose(session, reason, crash=False))

    def _done(self, session: FullSession, done: m.Done) -> None:
        session.ahead = done.ahead
        ends: list[End] = []
        for report in done.reports:
            try:
                if report.token in self.log_writer.unwritten:
                    self._end_after_its_log(session, report)
                elif (end := self._ends.decide(session, report)) is not None:
                    ends.append(end)
            except Exception:
                self._junk.failed(session.peer)
        if ends:
            self._ends.record(session, ends)

    def _end_after_its_log(self, session: FullSession, report: Report) -> None:
        """Log entries of an attempt must be in the store before its end."""
        self.log_writer.after(report.token, lambda: self._ends.report(session, report))

    # while a session lasts

    async def _welcome(self, session: FullSession, ready: m.Ready) -> None:
        through = self._roster.of_peer(session.peer).values()
        plain = [one for one in through if isinstance(one, PlainSession)]
        self._roster.add(session)
        session.issue = self._issue
        welcome = session.welcome(ready, self._ping_s(), self._settings.lease_s)
        if not self._link.tell(session, welcome):
            session.unsent()
        about = {"worker": session.worker}
        log.info("worker %s attends, session %d", session.name, session.number, extra=about)
        self._end_broken(session)
        self._commits.wake()
        for previous in plain:
            await self._losses.lose(previous, "it came back as another worker", crash=False)

    def _pinged(self, session: FullSession, ping: m.Ping) -> None:
        lease_s = self._own_lease.lease_s()
        was_draining, room = session.draining, session.room
        answers = session.pinged(self._clock.now(), ping, self._ping_s(), lease_s)
        if not self._link.tell(session, answers):
            session.unsent()
        acks, session.unsent_acks = session.unsent_acks, []
        for ack in acks:
            self._link.acknowledge(session, ack)
        if session.in_doubt:
            self._tasks.start(self._own_lease.surviving(partial(self.read_back, [session])))
        if session.room > room:
            self._commits.wake()
        if ping.draining and not was_draining:
            mark = partial(self._store.set_draining, session.worker, True)
            self._tasks.start(self._own_lease.surviving(mark))

    async def read_back(self, sessions: Sequence[FullSession]) -> None:
        """Reads what the store has placed on proxied workers, before anything is sent again."""
        asked_at = self._clock.now()
        slots = [SessionKey(one.worker, one.number) for one in sessions]
        placed = {one.token for one in await self._store.placed(slots)}
        for session in sessions:
            if session in self._roster:
                room = session.room
                if not self._link.tell(session, session.read_back(placed, asked_at)):
                    session.unsent()
                if session.room > room:
                    self._commits.wake()

    def _ping_s(self) -> float:
        settings = self._settings
        return ping_every_s(
            len(self._roster), settings.ping_s, settings.max_pings_per_s, settings.lease_s
        )

    def give(self, slot: SessionKey, claimed: Sequence[Attempt]) -> None:
        """The store gave attempts to a session. If it is over, the worker's next one has them."""
        session = self._roster.of_session(slot)
        if session is not None:
            session.given_at = self._clock.now()
        if isinstance(session, PlainSession):
            self._plain.give(session, claimed)
        elif isinstance(session, FullSession):
            if not self._link.tell(session, session.assign(claimed)):
                session.undeliverable(claimed)
            if any(one.problem or one.paused for one in claimed):
                self._end_broken(session)

    def _end_broken(self, session: FullSession) -> None:
        """Ends the attempts whose arguments cannot be built, or whose actors are paused."""
        for one in session.broken():
            if one.paused:
                self._ends.end(PutAside(*one.key, info="its actor is paused"), session)
                continue
            error = JobError(Reason.INVALID_ARGUMENTS, one.problem)
            if one.options.reads:
                self._ends.end(ReadDone(*one.key, reply=Reply(one.id, error=error)), session)
                continue
            self._ends.end(Failed(*one.key, error, forced=True, info=one.problem), session)

    async def close(self) -> None:
        """Waits for what is under way."""
        await self._joining.close()
        await self._tasks.ended()


def _named(ping: m.Ping) -> int:
    """How many attempts a PING names, those that run once."""
    begun = sum(map(len, ping.begun.values())) if ping.begun else 0
    return max(len(ping.held), begun) + len(ping.unacknowledged)
