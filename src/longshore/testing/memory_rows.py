"""The rows of `MemoryStore`: what is remembered of a job, a worker and a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.lanes import body_hash, lane_of
from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST, OWNED, TERMINAL
from longshore.model.job import (
    Claimed,
    Ended,
    HistoryEntry,
    Job,
    JobError,
    JobState,
    Progress,
    Submission,
)
from longshore.model.worker import DispatcherView, Lane, WorkerInfo, WorkerView
from longshore.wire.messages import Stats

LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass
class JobRow:
    """A job and all that happened to it."""

    number: int
    submission: Submission
    body: int
    lane: Lane
    state: JobState
    created_at: datetime
    run_at: datetime | None
    token: int = 0
    worker: UUID | None = None
    session: int = 0
    round: int = 1
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    expires_at: datetime | None = None
    cancel_asked_at: datetime | None = None
    result: bytes | None = None
    error: JobError | None = None
    history: list[HistoryEntry] = field(default_factory=list)

    @property
    def id(self) -> UUID:
        """What its submitter named it."""
        return self.submission.id

    @property
    def order(self) -> tuple[int, int]:
        """Jobs are claimed in this order."""
        return (-self.submission.priority, self.number)

    @property
    def holds_its_key(self) -> bool:
        """Whether no other job of its kind may have its unique key now."""
        return self.submission.unique_key is not None and self.state not in TERMINAL

    def enter(self, state: JobState, at: datetime, by: str = "", info: str = "") -> None:
        """The job is in this state, its history says so, and nobody owns it who should not."""
        self.state = state
        self.history.append(HistoryEntry(state, at, clean(by), clean(info)))
        if len(self.history) > HISTORY_FIRST + HISTORY_LAST:
            del self.history[HISTORY_FIRST]
        if state in TERMINAL:
            self.ended_at = at
        elif state not in OWNED:
            self.worker, self.session = None, 0

    def note(self, text: str) -> None:
        """The last entry of the history says this too."""
        last = self.history[-1]
        info = "; ".join(filter(None, [last.info, clean(text)]))
        self.history[-1] = structs.replace(last, info=info)

    def claimed(self) -> Claimed:
        """The attempt under way."""
        assert self.worker is not None, f"job {self.id} is not owned"
        return Claimed(
            id=self.id,
            number=self.number,
            token=self.token,
            kind=self.submission.kind,
            args=self.submission.args,
            options=self.submission.options,
            worker=self.worker,
            session=self.session,
            attempt=self.attempt,
            failures=self.failures,
            crashes=self.crashes,
            cancelling=self.state is JobState.CANCELLING,
        )

    def ended(self) -> Ended:
        """The outcome alone."""
        return Ended(self.id, self.state, self.result, self.error)

    def listed(self, progress: Progress | None = None, step: str | None = None) -> Job:
        """The job as it is shown among others: without what may be large."""
        return self._shown(args=b"", result=None, history=(), progress=progress, step=step)

    def whole(self, progress: Progress | None, step: str | None) -> Job:
        """The job as it is shown alone."""
        return self._shown(
            args=self.submission.args,
            result=self.result,
            history=tuple(self.history),
            progress=progress,
            step=step,
        )

    def _shown(
        self,
        *,
        args: bytes,
        result: bytes | None,
        history: tuple[HistoryEntry, ...],
        progress: Progress | None,
        step: str | None,
    ) -> Job:
        return Job(
            id=self.id,
            number=self.number,
            kind=self.submission.kind,
            queue=self.submission.queue,
            target=self.submission.target,
            priority=self.submission.priority,
            state=self.state,
            args=args,
            options=self.submission.options,
            unique_key=self.submission.unique_key,
            created_at=self.created_at,
            run_at=self.run_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            round=self.round,
            attempt=self.attempt,
            failures=self.failures,
            crashes=self.crashes,
            token=self.token,
            worker=self.worker,
            result=result,
            error=self.error,
            history=history,
            progress=progress,
            step=step,
        )


@dataclass
class WorkerRow:
    """A worker that attended at least once."""

    info: WorkerInfo
    dispatcher: UUID
    draining: bool
    started_at: datetime
    attended_at: datetime
    session: int = 1
    alive: bool = True
    ended_at: datetime | None = None
    ended_why: str = ""
    beat_at: datetime | None = None
    stats: Stats | None = None

    def view(self, running: dict[str, int]) -> WorkerView:
        """The worker as it is shown."""
        return WorkerView(
            info=self.info,
            session=self.session,
            dispatcher=self.dispatcher,
            alive=self.alive,
            draining=self.draining,
            running=running,
            started_at=self.started_at,
            attended_at=self.attended_at,
            ended_at=self.ended_at,
            ended_why=self.ended_why,
            seen_at=max(self.attended_at, self.beat_at or self.attended_at),
            cpu_percent=self.stats.cpu_percent if self.stats else None,
            memory_percent=self.stats.memory_percent if self.stats else None,
        )


@dataclass
class DispatcherRow:
    """A dispatcher that renewed at least once."""

    id: UUID
    name: str
    started_at: datetime
    renewed_no: int = 0

    def view(self) -> DispatcherView:
        """The dispatcher as it is shown."""
        return DispatcherView(
            id=self.id, name=self.name, renewed_no=self.renewed_no, started_at=self.started_at
        )


def new_row(job: Submission, number: int, now: datetime) -> JobRow:
    """The row of a job that was just accepted, delayed or ready."""
    run_at = due_at(job, now)
    delayed = run_at is not None and run_at > now
    state = JobState.DELAYED if delayed else JobState.READY
    lane = lane_of(job.queue, job.kind, job.target)
    row = JobRow(number, job, body_hash(job), lane, state, created_at=now, run_at=run_at)
    row.enter(state, now)
    return row


def due_at(job: Submission, now: datetime) -> datetime | None:
    """When a job may start, if its submitter said so; a delay goes before a time."""
    return job.run_at if job.delay_s is None else after(now, job.delay_s)


def after(now: datetime, seconds: float) -> datetime:
    """So many seconds later, as far as there are times."""
    if seconds >= (LATEST - now).total_seconds():
        return LATEST
    return now + timedelta(seconds=seconds) if seconds > 0 else now


def unstorable(job: Submission, now: datetime) -> str | None:
    """What no database could keep of a submission, in words; None if it is sound."""
    texts = (
        ("kind", job.kind),
        ("queue", job.queue),
        ("target", job.target),
        ("unique_key", job.unique_key or ""),
    )
    for name, text in texts:
        if "\0" in text:
            return f"its {name} holds a NUL character"
    if not -(2**15) <= job.priority < 2**15:
        return f"its priority {job.priority} is not between -32768 and 32767"
    if job.run_at is not None and job.run_at.tzinfo is None:
        return "its run_at has no time zone"
    for name, seconds in (("delay_s", job.delay_s), ("timeout_s", job.options.timeout_s)):
        if seconds is not None and not _makes_a_time(now, seconds):
            return f"its {name} of {seconds} is past every calendar"
    try:
        body_hash(job)
    except (UnicodeEncodeError, OverflowError) as error:
        return str(error)
    return None


def _makes_a_time(now: datetime, seconds: float) -> bool:
    return isfinite(seconds) and abs(seconds) < (LATEST - now).total_seconds()


def clean(text: str) -> str:
    """The text without what a database refuses."""
    return text.replace("\0", "").encode(errors="replace").decode()
