"""A job as it is submitted, claimed, finished and shown.

All of these are values: frozen, comparable, safe to hand around. Arguments and results are bytes
here (msgpack of builtins, see `payload.values`); only the submitter and the job's own process look
inside.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from uuid import UUID

from msgspec import Struct

DEFAULT_QUEUE = "default"
ANY_TARGET = ""


class JobState(StrEnum):
    """Where a job is in its life. The legal moves between these are in `core.lifecycle`."""

    WAITING = "waiting"
    DELAYED = "delayed"
    READY = "ready"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEPENDENCY_FAILED = "dependency_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why an attempt, or a job, did not succeed."""

    RAISED = "raised"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    POISONOUS = "poisonous"
    INVALID_ARGUMENTS = "invalid_arguments"
    INVALID_RESULT = "invalid_result"
    UNKNOWN_KIND = "unknown_kind"
    CANCELLED = "cancelled"


class JobError(Struct, frozen=True, omit_defaults=True):
    """What went wrong, in a form that outlives the process it happened in."""

    reason: Reason
    message: str
    type: str = ""
    traceback: str = ""


class RetryPolicy(Struct, frozen=True, omit_defaults=True, gc=False):
    """How often a job that raised or timed out is tried, and how long it backs off in between.

    The n-th retry waits `backoff_s * factor ** (n - 1)`, at most `max_backoff_s`, then varied by up
    to `jitter` of itself either way.
    """

    attempts: int = 1
    backoff_s: float = 1.0
    factor: float = 2.0
    max_backoff_s: float = 3600.0
    jitter: float = 0.2


class Options(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a job carries that no claim ever looks at."""

    timeout_s: float | None = None
    retry: RetryPolicy = RetryPolicy()
    labels: tuple[str, ...] = ()
    raw: bool = False


class Submission(Struct, frozen=True, omit_defaults=True, gc=False):
    """A job as its submitter describes it. The id makes a repeated submit the same job."""

    id: UUID
    kind: str
    args: bytes
    queue: str = DEFAULT_QUEUE
    target: str = ANY_TARGET
    priority: int = 0
    run_at: datetime | None = None
    delay_s: float | None = None
    unique_key: str | None = None
    options: Options = Options()


class Submitted(Struct, frozen=True, gc=False):
    """A submit that was accepted; `existing` if its unique key led to a job already there."""

    id: UUID
    number: int
    existing: bool = False


class Refused(Struct, frozen=True):
    """A submit that was not accepted; `code` is that of an error in `longshore.errors`."""

    id: UUID
    code: str
    message: str


class Verdict(StrEnum):
    """What became of a finish. All three let the worker forget the attempt."""

    RECORDED = "recorded"
    ALREADY_RECORDED = "already_recorded"
    STALE = "stale"


class Finished(Struct, frozen=True, gc=False):
    """The answer to one finish; `state` is the job's state after it, if it was recorded."""

    job: UUID
    token: int
    verdict: Verdict
    state: JobState | None = None


class HistoryEntry(Struct, frozen=True):
    """One change of state. `info` says more, in words, where there is more to say."""

    state: JobState
    at: datetime
    by: str = ""
    info: str = ""


class Progress(Struct, frozen=True, omit_defaults=True):
    """How far a running job says it is."""

    done: float
    total: float | None = None
    text: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """A job as it is shown: everything the store knows of it."""

    id: UUID
    number: int
    kind: str
    queue: str
    target: str
    priority: int
    state: JobState
    args: bytes
    options: Options
    unique_key: str | None
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    round: int
    attempt: int
    failures: int
    crashes: int
    token: int
    worker: UUID | None
    result: bytes | None
    error: JobError | None
    history: tuple[HistoryEntry, ...] = ()
    progress: Progress | None = None
    step: str | None = None


class Ended(Struct, frozen=True, gc=False):
    """A job's outcome and nothing else: what somebody who waits for it needs."""

    id: UUID
    state: JobState
    result: bytes | None = None
    error: JobError | None = None


class LogKind(IntEnum):
    """What a log entry is. The newest step and progress are shown with the job."""

    TEXT = 0
    STEP = 1
    PROGRESS = 2


class LogEntry(Struct, frozen=True):
    """One thing an attempt said, numbered by its worker so that a repeat is recognised."""

    job: UUID
    token: int
    seq: int
    kind: LogKind
    data: bytes


class JobFilter(Struct, frozen=True, omit_defaults=True):
    """Which jobs to list: all that match every given part, newest first, below `before`.

    A job has every one of `labels`, and was submitted at `since` or later.
    """

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    worker: UUID | None = None
    before: int | None = None
    limit: int = 50
    labels: tuple[str, ...] = ()
    since: datetime | None = None


class JobPage(Struct, frozen=True):
    """Jobs, newest first. If it had to stop before the page was full, `stopped_at` is where.

    Every job from there on was looked at, and none below: `before` that number the list goes on.
    """

    jobs: tuple[Job, ...] = ()
    stopped_at: int | None = None


class CancelVerdict(StrEnum):
    """What a cancel did."""

    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    ALREADY_ENDED = "already_ended"
    NOT_FOUND = "not_found"


class RetryVerdict(StrEnum):
    """What a manual retry did."""

    RETRIED = "retried"
    NOT_ENDED = "not_ended"
    SUCCEEDED = "succeeded"
    UNIQUE_KEY_TAKEN = "unique_key_taken"
    NOT_FOUND = "not_found"
