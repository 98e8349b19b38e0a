"""The worker's side of the dialogue, without sockets or clock.

Theory. A worker sends READY to a dispatcher, and nothing else until WELCOME comes. From then on it
is in a session. It sends PING every `ping_s`, and each PONG renews its lease, counted from when
that PING was sent. The agent calls `receive` and `tick`, and acts on the events that these return.
Three things can go wrong:

- The dispatcher is silent, or cannot renew the lease: `Moved`. The worker joins the next dispatcher
  on its list, and keeps its jobs.
- The lease is about to end all the same: `StopAll`, first politely, then with a kill. Then the
  worker joins under a new id (`Orphaned`), because other workers may get its jobs now.
- The dispatcher says GONE, because the worker was declared lost: it kills its jobs at once, and
  joins under a new id.

Reports stay here until the dispatcher acknowledges them. The worker sends them again after every
WELCOME, when the dispatcher asks for them (RESEND), and when they stay unacknowledged for
`resend_s`. That is harmless: by its token the store records each once. Log entries stay too, as far
as the bounds allow, until the end of their attempt is acknowledged: that says that the store has
them. Past the bounds the oldest are dropped, and leave a gap between the numbers of the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from uuid import UUID

from msgspec import Struct, structs

from longshore.core.leases import Lease
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import LogEntry
from longshore.model.reports import Report
from longshore.model.worker import Ahead, Run, Stats
from longshore.wire import messages as m
from longshore.wire.logs import UnackedLogs
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
    """A session began: a dispatcher attends the worker."""

    session: int


class Moved(Struct, frozen=True):
    """This dispatcher does not help: connect to the next one, then call `connected`."""

    reason: str


class Orphaned(Struct, frozen=True):
    """The worker lost its id: stop everything, then `rejoin` under a new one."""

    reason: str


class Dismissed(Struct, frozen=True):
    """The dispatcher asks the worker to drain and leave."""

    reason: str


class Recorded(Struct, frozen=True):
    """Reports that the store recorded, and `stale` ones that it refused: another owns the job."""

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
    """One worker's dialogue with its dispatcher, whichever that is. Time is a parameter."""

    def __init__(self, ready: m.Ready, patience: Patience) -> None:
        self._ready = ready
        self._patience = patience
        self._outgoing: list[m.WorkerMessage] = []
        # By token: no token is given twice.
        self._running: dict[int, UUID] = {}
        self._had: OrderedDict[int, None] = OrderedDict()
        self._reports = UnackedReports()
        self._logs = UnackedLogs()
        self.runs: Callable[[float], dict[str, tuple[Run, ...]] | None] = lambda _: None
        """Answers which attempts run, by pool, and for how long, as each PING says."""
        self.asking: Callable[[UUID, int], None] = lambda worker, session: None
        """Called with the number of each session before it is asked for."""
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
        """This worker's id."""
        return self._ready.worker

    @property
    def running(self) -> frozenset[AttemptKey]:
        """The attempts that started and have not ended."""
        return frozenset((job, token) for token, job in self._running.items())

    @property
    def settled(self) -> bool:
        """Whether nothing runs, and every report is acknowledged."""
        return not (self._running or self._reports)

    @property
    def stop_times(self) -> tuple[float, float] | None:
        """When to abort jobs, and when to kill them, if the lease is not renewed."""
        if self._lease is None:
            return None
        abort_s, kill_s = self._patience.abort_before_s, self._patience.kill_before_s
        return self._lease.abort_at(abort_s), self._lease.kill_at(kill_s)

    def resume(self, session: int, held: Iterable[AttemptKey]) -> None:
        """An earlier agent of this worker held these attempts, and had asked for this session."""
        self._asked = max(self._asked, session)
        for job, token in held:
            self._had[token] = None
            self._running[token] = job

    def connected(self, now: float) -> None:
        """There is a new connection: the worker says READY on it."""
        self._forget_dispatcher()
        self._asked += 1
        self.asking(self.worker, self._asked)
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
        """Comes back as a new worker without jobs. Unacknowledged reports stay.

        It says BYE for the old id, or the dispatcher would wait for it until its lease ended.
        """
        bye = m.Bye(self.worker, "it came back as another worker")
        goodbye: list[m.WorkerMessage] = [bye] if self.session is not None else []
        self._ready = structs.replace(self._ready, worker=worker)
        self._logs.abandon(self._running)
        self._running.clear()
        self._lease = None
        self.connected(now)
        self._outgoing = goodbye + self._outgoing

    def drain(self, now: float) -> None:
        """The worker wants no more jobs."""
        self._ready = structs.replace(self._ready, draining=True)
        if self.session is not None:
            self._ping(now)

    def ended(self, report: Report) -> None:
        """An attempt ended. The next flush sends its report, which stays until acknowledged.

        If the worker had to give the attempt up before, it has no report to send.
        """
        if self._running.pop(report.token, None) is not None:
            self._reports.add(report)

    def said(self, entry: LogEntry) -> None:
        """An attempt made a log entry. Past the bound, the oldest that was not sent is dropped."""
        if entry.token in self._running:
            self._logs.add(entry)

    def bye(self, reason: str) -> None:
        """The worker leaves for good."""
        if self.session is not None:
            self._outgoing.append(m.Bye(self.worker, reason))

    def flush(self) -> list[m.WorkerMessage]:
        """The messages to send now, in order. Log entries go before the end of their attempt."""
        if self.session is not None:
            if self._logs.fresh:
                self._outgoing += [m.Logs(self.worker, part) for part in self._logs.take()]
            if self._reports.has_unsent:
                self._outgoing += [
                    m.Done(self.worker, part, self.ahead) for part in self._reports.take()
                ]
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
            self.ahead,
            self.runs(now),
        )
        self._outgoing.append(message)

    def _resend(self, tokens: Iterable[int]) -> None:
        """Sends reports again, each after the log entries of its attempt."""
        self._logs.repeat(self._reports.repeat(tokens))

    stats: Stats = Stats()
    """What the next PING says of the machine."""

    ahead: Ahead = Ahead()
    """What the worker holds ahead of its slots, as the next PING or DONE says."""

    # what the dispatcher says

    def receive(self, now: float, message: m.DispatcherMessage) -> list[Event]:
        """A message came. A message that names another worker is ignored."""
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
        self._logs.repeat_all()
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
        """Whether enough of the lease is left. The dispatcher sends again what is not started."""
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
        tokens = [token for _, token in (*ack.attempts, *ack.stale)]
        self._reports.forget(tokens)
        if self._logs.sent:
            for token in tokens:
                self._logs.forget(token)
        return [Recorded(ack.attempts, ack.stale)]
