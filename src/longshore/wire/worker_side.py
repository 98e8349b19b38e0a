"""The worker's side of the dialogue, without sockets or clock.

Theory. A worker joins a dispatcher with READY and is attended once WELCOME comes; until then it
says nothing else. From then on it sends PING every `ping_s`, and each PONG renews its lease from
the moment that PING was sent. Three things can go wrong, and each has one answer:

- the dispatcher is silent, or cannot renew the lease: `Moved`, the next dispatcher on the list is
  joined, with everything that is held;
- the lease runs out all the same: `StopAll`, first politely, then for good, and the worker joins
  anew under another id, because what it held is nobody's any more;
- the dispatcher says GONE: the same, at once.

Reports stay here until they are acknowledged. They are sent again after every WELCOME, when the
dispatcher asks for them (RESEND), and when they stay unacknowledged for `resend_s`. That is
harmless: they carry their token, and the store counts each once. What attempts said goes the same
way: it is kept, as far as the bounds allow, until the attempt's end is acknowledged, which says
that the store has what was said before it. Past the bounds the oldest is dropped, and shows as a
gap between the numbers of what is left.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct, structs

from longshore.core.leases import Lease
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import LogEntry
from longshore.model.reports import Report
from longshore.model.worker import Stats
from longshore.wire import messages as m
from longshore.wire.logs import Said
from longshore.wire.reports import UnackedReports

REMEMBERED_ATTEMPTS = 10_000


class Start(Struct, frozen=True, gc=False):
    """An attempt to begin."""

    assignment: Assignment


class Stop(Struct, frozen=True):
    """An attempt to abort."""

    attempt: AttemptKey
    reason: str


class StopAll(Struct, frozen=True):
    """Everything must stop: politely first, then killed."""

    reason: str
    kill: bool


class Joined(Struct, frozen=True):
    """The worker is attended."""

    session: int


class Moved(Struct, frozen=True):
    """This dispatcher is no good: connect to the next one, then call `connected`."""

    reason: str


class Orphaned(Struct, frozen=True):
    """The worker's id is dead: stop everything, then `rejoin` under a new one."""

    reason: str


class Dismissed(Struct, frozen=True):
    """The dispatcher asks the worker to drain and leave."""

    reason: str


class Recorded(Struct, frozen=True):
    """Reports that came through; the stale ones were refused, as somebody else owns the job."""

    attempts: tuple[AttemptKey, ...]
    stale: tuple[AttemptKey, ...]


Event = Start | Stop | StopAll | Joined | Moved | Orphaned | Dismissed | Recorded


class Patience(Struct, frozen=True):
    """How long a worker waits for what."""

    broker_timeout_s: float = 1.0
    silent_periods: int = 3
    abort_before_s: float = 5.0
    kill_before_s: float = 2.0
    resend_s: float = 5.0


class WorkerSession:
    """One worker's dialogue with whichever dispatcher attends it. Time is always a parameter."""

    def __init__(self, ready: m.Ready, patience: Patience) -> None:
        self._ready = ready
        self._patience = patience
        self._outgoing: list[m.WorkerMessage] = []
        # By token: each is given once, ever.
        self._running: dict[int, UUID] = {}
        self._had: OrderedDict[int, None] = OrderedDict()
        self._reports = UnackedReports()
        self._said = Said()
        self._lease: Lease | None = None
        self._ready_at = 0.0
        self._asked = 0
        self._forget_dispatcher()

    def _forget_dispatcher(self) -> None:
        self.session: int | None = None
        self._ping_s = self._patience.broker_timeout_s
        self._ping_no = 0
        self._pings: dict[int, float] = {}
        self._ping_at: float | None = None
        self._unanswered_since: float | None = None
        self._seen = 0
        self._stopping = False

    # what the agent tells

    @property
    def worker(self) -> UUID:
        """The id under which this worker attends."""
        return self._ready.worker

    @property
    def running(self) -> frozenset[AttemptKey]:
        """The attempts that were started and have not ended."""
        return frozenset((job, token) for token, job in self._running.items())

    @property
    def settled(self) -> bool:
        """Whether nothing runs and nothing waits to be acknowledged."""
        return not (self._running or self._reports)

    def connected(self, now: float) -> None:
        """A new connection is there: say READY on it."""
        self._forget_dispatcher()
        self._asked += 1
        self._ready_at = now
        self._unanswered_since = now
        self._outgoing = [self._introduction()]

    def _introduction(self) -> m.Ready:
        return structs.replace(
            self._ready,
            session=self._asked,
            held=tuple(self.running),
            unacknowledged=self._reports.attempts,
        )

    def rejoin(self, worker: UUID, now: float) -> None:
        """Comes back as a new worker that holds nothing; results not yet acknowledged are kept.

        The old one says BYE, or its dispatcher would wait for it until its lease ended.
        """
        bye = m.Bye(self.worker, "it came back as another worker")
        goodbye: list[m.WorkerMessage] = [bye] if self.session is not None else []
        self._ready = structs.replace(self._ready, worker=worker)
        self._said.abandon(self._running)
        self._running.clear()
        self._lease = None
        self.connected(now)
        self._outgoing = goodbye + self._outgoing

    def drain(self, now: float) -> None:
        """Wants no more jobs from now on."""
        self._ready = structs.replace(self._ready, draining=True)
        if self.session is not None:
            self._ping(now)

    def ended(self, report: Report) -> None:
        """An attempt ended; it goes out with the next flush and stays until acknowledged.

        What ended after the worker had to give it up is nobody's business any more.
        """
        if self._running.pop(report.token, None) is not None:
            self._reports.add(report)

    def said(self, entry: LogEntry) -> None:
        """An attempt said something. Past the bound the oldest that was not sent is dropped."""
        if entry.token in self._running:
            self._said.add(entry)

    def bye(self, reason: str) -> None:
        """Leaves for good."""
        if self.session is not None:
            self._outgoing.append(m.Bye(self.worker, reason))

    def flush(self) -> list[m.WorkerMessage]:
        """The messages to send now, in order. Log entries go before the end of their attempt."""
        if self.session is not None:
            if self._said.fresh:
                self._outgoing += [m.Logs(self.worker, part) for part in self._said.take()]
            if self._reports.has_unsent:
                self._outgoing += [m.Done(self.worker, part) for part in self._reports.take()]
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # what the clock tells

    def wake_at(self) -> float | None:
        """When `tick` next has something to do."""
        times = [self._ping_at, self._silence_at(), self._stop_at()]
        return min((time for time in times if time is not None), default=None)

    def _silence_at(self) -> float | None:
        if self._unanswered_since is None:
            return None
        return self._unanswered_since + (
            self._patience.broker_timeout_s * self._patience.silent_periods
        )

    def _stop_at(self) -> float | None:
        if self._lease is None or not self._running:
            return None
        if self._stopping:
            return self._lease.kill_at(self._patience.kill_before_s)
        return self._lease.abort_at(self._patience.abort_before_s)

    def tick(self, now: float) -> list[Event]:
        """Time has passed."""
        events: list[Event] = []
        stop_at = self._stop_at()
        if stop_at is not None and now >= stop_at:
            events += self._self_stop()
        silence_at = self._silence_at()
        if silence_at is not None and now >= silence_at:
            self._unanswered_since = now
            events.append(Moved("the dispatcher does not answer"))
        elif self._ping_at is not None and now >= self._ping_at:
            self._ping(now)
        return events

    def _self_stop(self) -> list[Event]:
        reason = "no dispatcher renewed the worker's lease"
        if self._stopping:
            return [StopAll(reason, kill=True), Orphaned(reason)]
        self._stopping = True
        return [StopAll(reason, kill=False)]

    def _ping(self, now: float) -> None:
        self._resend(self._reports.overdue(now, self._patience.resend_s))
        self._ping_no += 1
        self._pings[self._ping_no] = now
        self._ping_at = now + self._ping_s
        if self._unanswered_since is None:
            self._unanswered_since = now
        message = m.Ping(
            self.worker,
            self._ping_no,
            self._seen,
            tuple(self.running),
            self._reports.attempts,
            self._ready.draining,
            self.stats,
        )
        self._outgoing.append(message)

    def _resend(self, tokens: Iterable[int]) -> None:
        """Reports go out once more, each after what its attempt said."""
        self._said.repeat(self._reports.repeat(tokens))

    stats: Stats = Stats()
    """What the next PING says of the machine."""

    # what the dispatcher says

    def receive(self, now: float, message: m.DispatcherMessage) -> list[Event]:
        """A message came. What names another worker is ignored."""
        if message.worker != self.worker:
            return []
        if self.session is not None:
            self._unanswered_since = None
        match message:
            case m.Welcome():
                return self._welcomed(now, message)
            case m.Pong():
                return self._ponged(now, message)
            case m.Jobs():
                return self._given(now, message)
            case m.Abort():
                return [
                    Stop(attempt, message.reason)
                    for attempt in message.attempts
                    if attempt[1] in self._running
                ]
            case m.Resend():
                self._resend(token for _, token in message.attempts)
                return []
            case m.Ack():
                return self._acknowledged(message)
            case m.Exit():
                return [Dismissed(message.reason)]
            case m.Gone():
                return [StopAll(message.reason, kill=True), Orphaned(message.reason)]

    def _welcomed(self, now: float, welcome: m.Welcome) -> list[Event]:
        if welcome.session != self._asked:
            return []
        self.session = welcome.session
        self._unanswered_since = None
        self._ping_s = welcome.ping_s
        self._seen = 0
        self._stopping = False
        self._lease = Lease(self._ready_at, welcome.lease_s)
        self._reports.repeat_all()
        self._said.repeat_all()
        self._ping(now)
        return [Joined(welcome.session)]

    def _ponged(self, now: float, pong: m.Pong) -> list[Event]:
        sent_at = self._pings.pop(pong.no, None)
        self._pings = {no: at for no, at in self._pings.items() if no > pong.no}
        self._ping_s = pong.ping_s
        if sent_at is None:
            return []
        if pong.lease_s is not None:
            self._lease = Lease(sent_at, pong.lease_s)
            self._stopping = False
        elif self._lease is not None and self._lease.less_than_half_left(now):
            return [Moved("the dispatcher cannot reach its store")]
        return []

    def _given(self, now: float, jobs: m.Jobs) -> list[Event]:
        if self.session is None:
            return []
        self._seen = max(self._seen, jobs.seq)
        return [Start(job) for job in self._new(jobs.jobs)] if self._may_start(now) else []

    def _may_start(self, now: float) -> bool:
        """Whether the lease is good for more; what is not started now is sent again."""
        lease, before_s = self._lease, self._patience.abort_before_s
        return lease is not None and now < lease.abort_at(before_s)

    def _new(self, jobs: Iterable[Assignment]) -> list[Assignment]:
        fresh = []
        for job in jobs:
            if job.token not in self._had:
                self._had[job.token] = None
                self._running[job.token] = job.job
                fresh.append(job)
        while len(self._had) > REMEMBERED_ATTEMPTS:
            self._had.popitem(last=False)
        return fresh

    def _acknowledged(self, ack: m.Ack) -> list[Event]:
        for _, token in (*ack.attempts, *ack.stale):
            self._reports.forget(token)
            if self._said.sent:
                self._said.forget(token)
        return [Recorded(ack.attempts, ack.stale)]
