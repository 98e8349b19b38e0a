"""The rows of `MemoryStore`: a job as it is shown, and what is not shown of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import convert, structs

from longshore.core.dependencies import Marks, Waiting
from longshore.core.effects import Change
from longshore.core.lanes import lane_of
from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST, TERMINAL
from longshore.core.turns import next_wake
from longshore.model.actor import (
    TURNS_KEPT,
    ActorTerms,
    Event,
    EventKind,
    MailView,
    Reply,
    ReplyTo,
    Timer,
    TurnView,
)
from longshore.model.attempt import Attempt
from longshore.model.group import NOT_RUN, GroupHead, GroupState, Node, RetryPlan, RunPlan
from longshore.model.job import HistoryEntry, Job, JobError, JobState, Submission
from longshore.model.waited import MOST_STAYS, Stay
from longshore.model.worker import Lane, SessionKey
from longshore.store.actor_rows import NEVER
from longshore.store.rows import (
    clean,
    deadline_at,
    due_at,
    later,
    micros,
    moment,
    pack_error,
    unpack_error,
)
from longshore.store.run_steps import PlannedCopy

_NEW: Final = {
    **dict.fromkeys(("started_at", "ended_at", "worker", "result", "error")),
    **dict.fromkeys(("attempt", "failures", "crashes", "token"), 0),
}


class Note(NamedTuple):
    """A node of which others are still to be told: that it closed, or early of a failure in it."""

    job: UUID
    is_early: bool = False


@dataclass
class NodeRow:
    """A node: where it is in its group, and what ends have told it."""

    node: Node
    group: UUID
    place: int
    unmet: int
    body: int
    marks: Marks = Marks.NOTHING
    open: int = 0
    """How many nodes in its scope are not closed."""
    scope_marks: Marks = Marks.NOTHING
    cause: JobError | None = None
    expanded: int = 0
    """How many elements of a map are jobs already."""
    taken_from: int | None = None
    """The number of the job of an earlier run whose result it took over."""

    @property
    def key(self) -> str:
        """Its key in the group."""
        return self.node.key

    def waiting(self, run_at: datetime | None, now: datetime) -> Waiting:
        """What an end must know of it. A time that its job has already wins over its delay."""
        late_s = self.node.job.delay_s if run_at is None else (run_at - now).total_seconds()
        delay_s = late_s if late_s is not None and late_s > 0 else None
        expires_s = self.node.job.options.expires_s
        return Waiting(self.node.on, self.unmet, self.marks, delay_s, expires_s)


class Run(NamedTuple):
    """What was decided about a group that is a new run of another, in a state of that one."""

    plan: RunPlan
    source: int
    ended_at: datetime | None
    copies: Sequence[PlannedCopy]


@dataclass
class GroupRow:
    """A group, and the jobs of its nodes by their places."""

    head: GroupHead
    number: int
    created_at: datetime
    state: GroupState = GroupState.STAGING
    ended_at: datetime | None = None
    cancelled_by: str = ""
    must_sweep: bool = False
    is_gone: bool = False
    staged_at: datetime = datetime.min
    retries: dict[UUID, RetryPlan] = field(default_factory=dict)
    jobs: dict[int, UUID] = field(default_factory=dict)
    run: Run | None = None
    round: int = 1


@dataclass
class JobRow:
    """A job and all that happened to it."""

    job: Job
    submission: Submission
    body: int
    lane: Lane
    session: int = 0
    expires_at: datetime | None = None
    opened_by: set[UUID | None] = field(default_factory=set)
    node: NodeRow | None = None
    actor: tuple[str, str] | None = None
    """The actor that it is a turn of."""
    calm_by: int | None = None
    rank: int | None = None
    """The place in the order that it inherits, if it was added to its group."""
    behind: Stay | None = None
    """The key that it waits behind, if it does."""
    stays: tuple[Stay, ...] = ()

    @property
    def state(self) -> JobState:
        """Where it is now."""
        return self.job.state

    @property
    def is_cancelling(self) -> bool:
        """Whether it runs, and a user wants it cancelled."""
        return self.state is JobState.CANCELLING

    @property
    def order(self) -> tuple[int, int, int]:
        """Jobs are claimed in this order."""
        return (-self.job.priority, self.inherited, self.job.number)

    @property
    def inherited(self) -> int:
        """The rank that those get which it adds."""
        return self.job.number if self.rank is None else self.rank

    @property
    def holds_its_key(self) -> bool:
        """Whether no other job of its kind may have its unique key now."""
        return self.job.unique_key is not None and self.state not in TERMINAL

    def enter(self, state: JobState, at: datetime, by: str = "", info: str = "") -> None:
        """The job is in this state, and its history says so."""
        history = [*self.job.history, HistoryEntry(state, at, clean(by), clean(info))]
        if len(history) > HISTORY_FIRST + HISTORY_LAST:
            del history[HISTORY_FIRST]
        self.job = structs.replace(self.job, state=state, history=tuple(history))

    def apply(
        self,
        change: Change,
        now: datetime,
        token: int,
        by: str = "",
        ran_s: float | None = None,
    ) -> None:
        """The change is made, with this token. The attempt that it ends ran for `ran_s`."""
        if ran_s is not None and self.job.started_at is not None:
            began_at = max(self.job.started_at, now - timedelta(seconds=ran_s))
            self.job = structs.replace(self.job, started_at=began_at)
        if change.undoes_claim:
            history, attempt = self.job.history[:-1], self.job.attempt - 1
            undone = {"state": change.state, "history": history, "attempt": attempt}
            self.job = structs.replace(self.job, **undone, started_at=None)
        else:
            self.enter(change.state, now, by, change.info)
        self.expires_at = None
        job = self.job
        if not change.keeps_deadline:
            deadline_s = change.deadline_s
            deadline = None if deadline_s is None else after(now, deadline_s)
            job = structs.replace(job, deadline_at=deadline)
        if change.new_round:
            self.opened_by.add(change.request)
            job = structs.replace(
                job, round=job.round + 1, failures=0, crashes=0, result=None, started_at=None
            )
        if not change.keeps_owner:
            job, self.session = structs.replace(job, worker=None), 0
        if not change.keeps_error:
            job = structs.replace(job, error=unpack_error(pack_error(change.error)))
        self.job = structs.replace(
            job,
            token=token,
            ended_at=now if change.ends else None,
            failures=job.failures + change.failures,
            crashes=job.crashes + change.crashes,
            run_at=job.run_at if change.delay_s is None else after(now, change.delay_s),
        )

    def waited_s(self, now: datetime) -> float | None:
        """How long the job has been ready, if a claim can know that."""
        if self.job.attempt or self.node is not None:
            return None
        since = max(self.job.created_at, self.job.run_at or self.job.created_at)
        return max(0.0, (now - since).total_seconds())

    def start(self, slot: SessionKey, token: int, now: datetime, margin_s: float) -> Attempt:
        """A new attempt begins."""
        self.enter(JobState.RUNNING, now, str(slot.worker))
        attempt, timeout_s = self.job.attempt + 1, self.job.options.timeout_s
        self.job = structs.replace(
            self.job, token=token, worker=slot.worker, attempt=attempt, started_at=now
        )
        self.session = slot.session
        self.expires_at = None if timeout_s is None else after(now, timeout_s + margin_s)
        return self.claimed(now)

    def leave_key(self, now: datetime) -> Stay | None:
        """It is behind a key no more; answers how long it was, if it was."""
        stay, self.behind = self.behind, None
        if stay is not None:
            stay = stay._replace(until=now)
            self.stays = (*self.stays, stay)[-MOST_STAYS:]
        return stay

    def is_expired(self, now: datetime) -> bool:
        """Whether it waits, and is past its deadline."""
        deadline = self.job.deadline_at
        return self.state is JobState.READY and deadline is not None and deadline <= now

    def note(self, text: str) -> None:
        """The last entry of the history says this too."""
        *earlier, last = self.job.history
        info = "; ".join(filter(None, [last.info, clean(text)]))
        history = (*earlier, structs.replace(last, info=info))
        self.job = structs.replace(self.job, history=history)

    @property
    def shown(self) -> Job:
        """The job, with how much is open in its scope."""
        if self.node is None or self.job.kind not in NOT_RUN:
            return self.job
        return structs.replace(self.job, open=self.node.open)

    def claimed(self, now: datetime) -> Attempt:
        """The attempt under way."""
        job, deadline = self.job, self.job.deadline_at
        left_s = None if deadline is None else (deadline - now).total_seconds()
        assert job.worker is not None, f"job {job.id} is not owned"
        which = job.id, job.number, job.token, job.kind, job.args, job.options
        tries = job.attempt, job.failures, job.crashes
        limits = self.is_cancelling, job.priority, left_s
        lane = self.lane.hash if job.options.fair else 0
        attempt = Attempt(*which, job.worker, self.session, *tries, *limits, round=job.round)
        return structs.replace(attempt, lane=lane) if lane else attempt


@dataclass
class TurnRow:
    """What a turn left."""

    n: int
    at: datetime
    worker: UUID | None
    read: int
    version: int
    timers: tuple[Timer, ...]
    state: bytes = b""
    starts: bool = False

    def view(self) -> TurnView:
        """As it is shown."""
        ran = self.n, self.at, self.worker, self.read
        return TurnView(*ran, self.version, self.state, self.timers)


@dataclass
class MailRow:
    """A message in a mailbox."""

    number: int
    id: UUID
    name: str
    args: bytes
    at: int
    due_at: int | None
    reply_to: ReplyTo | None = None

    @property
    def is_parked(self) -> bool:
        """Whether turns pass it over."""
        return self.due_at == NEVER

    def event(self) -> Event:
        """As a turn gets it."""
        is_delayed = self.due_at is not None
        at = self.at if self.due_at is None else self.due_at
        what = self.name, self.args, at, self.number, self.id, is_delayed
        return Event(EventKind.MESSAGE, *what, self.reply_to)

    def view(self) -> MailView:
        """As it is shown."""
        due = None if self.due_at is None or self.is_parked else moment(self.due_at)
        what = self.number, self.name, self.args, moment(self.at)
        return MailView(*what, due, self.is_parked)


@dataclass
class Receipt:
    """What is kept of a message from outside."""

    at: datetime
    actor: UUID
    is_ask: bool
    reply: Reply | None = None


@dataclass
class ActorRow:
    """An actor, its last turns and its mailbox."""

    id: UUID
    type: str
    key: str
    terms: ActorTerms
    created_at: datetime
    paused: bool = False
    stopping: bool = False
    turns: list[TurnRow] = field(default_factory=list)
    mail: dict[int, MailRow] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> tuple[str, str]:
        """Its type and key."""
        return self.type, self.key

    @property
    def last(self) -> TurnRow:
        """What its last turn left."""
        return self.turns[-1]

    @property
    def last_number(self) -> int:
        """The highest number of its messages; no turn has read a higher one."""
        return max(self.last.read, *self.mail, 0)

    def unread(self) -> list[MailRow]:
        """The messages that are not delayed, by number."""
        return [one for _, one in sorted(self.mail.items()) if one.due_at is None]

    def delayed(self) -> list[MailRow]:
        """The delayed ones by when they are due, without those that are parked."""
        found = [one for one in self.mail.values() if one.due_at is not None and not one.is_parked]
        return sorted(found, key=lambda one: (one.due_at or 0, one.number))

    def take(self, turn: TurnRow, read_delayed: Collection[int] = ()) -> None:
        """It takes a turn, which has read these."""
        self.turns = [*self.turns, turn][-TURNS_KEPT:]
        read = {one.number for one in self.unread() if one.number <= turn.read}
        read |= {one.number for one in self.delayed() if one.number in read_delayed}
        self.mail = {number: one for number, one in self.mail.items() if number not in read}

    def wake(self) -> int | None:
        """When its next turn is due."""
        return next_wake(
            starts=self.last.starts,
            has_mail=bool(self.unread()),
            timers=self.last.timers,
            delayed_at=next((one.due_at for one in self.delayed()), None),
        )


def new_row(
    given: Submission, body: int, number: int, now: datetime, first: JobState | None = None
) -> JobRow:
    """The row of a job that was just accepted, delayed or ready unless its `first` state is given.

    A job that waits has no time to run yet: its delay begins later.
    """
    due = None if first else due_at(given, micros(now))
    run_at = None if due is None else moment(due)
    state = first or (JobState.READY if run_at is None or run_at <= now else JobState.DELAYED)
    known = {"number": number, "state": state, "created_at": now, "run_at": run_at, "round": 1}
    if (deadline := deadline_at(given, due, micros(now))) is not None:
        known["deadline_at"] = moment(deadline)
    job = convert({**_NEW, **structs.asdict(given), **known}, Job)
    row = JobRow(job, given, body, lane_of(given.queue, given.kind, given.target))
    row.enter(job.state, now)
    return row


def after(now: datetime, seconds: float) -> datetime:
    """So many seconds later, as far as there are times."""
    return moment(later(micros(now), seconds))
