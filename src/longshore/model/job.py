"""A job as it is submitted, finished and shown.

Arguments and results are bytes here (msgpack of builtins, see `payload.values`). Only the submitter
and the job's own process look inside.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.checkpoint import CheckpointView
from longshore.model.limits import Debounced, JobLimit
from longshore.model.waited import Waited
from longshore.model.watcher import Watcher

DEFAULT_QUEUE = "default"
ANY_TARGET = ""


class JobState(StrEnum):
    """Where a job is in its life. `core.lifecycle` has the legal moves."""

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
    EXPIRED = "expired"
    CRASHED = "crashed"
    POISONOUS = "poisonous"
    INVALID_ARGUMENTS = "invalid_arguments"
    INVALID_RESULT = "invalid_result"
    INVALID_GROWTH = "invalid_growth"
    UNKNOWN_KIND = "unknown_kind"
    DEPENDENCY_FAILED = "dependency_failed"
    CANCELLED = "cancelled"
    EXITED = "exited"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_STARTED = "not_started"
    IMAGE_MISSING = "image_missing"
    PULL_FAILED = "pull_failed"
    INPUT_MISSING = "input_missing"
    OUTPUT_MISSING = "output_missing"
    OUTPUT_REFUSED = "output_refused"
    TRANSFER_FAILED = "transfer_failed"
    DISK_FULL = "disk_full"
    ENGINE_GONE = "engine_gone"


class JobError(Struct, frozen=True, omit_defaults=True):
    """What went wrong, in a form that outlives the process."""

    reason: Reason
    message: str
    type: str = ""
    traceback: str = ""
    exit_code: int | None = None
    """With which code a command or a container exited, if that is what went wrong."""


class RetryPolicy(Struct, frozen=True, omit_defaults=True, gc=False):
    """How often a job that raised or timed out is tried, and how long it waits in between.

    The n-th retry waits `backoff_s * factor ** (n - 1)`, at most `max_backoff_s`. Chance changes
    that by up to `jitter` of itself, either way.
    """

    attempts: int = 1
    backoff_s: float = 1.0
    factor: float = 2.0
    max_backoff_s: float = 3600.0
    jitter: float = 0.2


class Scheduled(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a job knows of the schedule that submitted it.

    `nominal_at` is the time that it stands for, `last_success_at` that of the newest run which had
    succeeded when this one was decided.
    """

    schedule: str
    nominal_at: datetime
    last_success_at: datetime | None = None


class Options(Struct, frozen=True, omit_defaults=True, gc=False):
    """The options of a job that a claim does not read."""

    timeout_s: float | None = None
    retry: RetryPolicy = RetryPolicy()
    labels: tuple[str, ...] = ()
    raw: bool = False
    references: bool = False
    """Whether arguments stand for results of other jobs of the group (`payload.references`)."""
    expires_s: float | None = None
    """It fails unless it begins within this time of its submit, or of when it is due."""
    turn: bool = False
    """Whether it is a turn of an actor. The store makes those, no submitter does."""
    watchers: tuple[Watcher, ...] = ()
    """Who is told when it has ended. Jobs of groups have none: their group may."""
    reads: bool = False
    """Whether it reads an actor, which a dispatcher makes of a request. Its end removes it."""
    traceparent: str = ""
    """The span that submitted it (W3C trace context). It is no part of the job's body."""
    by: str = ""
    """Who submitted it, if a token or a key names that. The dispatcher says so, no submitter."""
    resources: str = ""
    """What it takes of its worker beside a slot: a shape, with which its target ends."""
    scheduled: Scheduled | None = None
    """The schedule that submitted it. The dispatcher says so, no submitter."""
    limits: tuple[JobLimit, ...] = ()
    """The keys that it counts for, and what limits them unless a rule does (`model.limits`)."""
    debounce: Debounced | None = None
    """With which other jobs it is one run (`core.crowds`)."""
    batch: str = ""
    """A fingerprint of the batch with an `Idempotency-Key` for which it stands."""
    fair: str = ""
    """The key that shares the workers with others (`core.fairness`); empty if it has none."""


class Submission(Struct, frozen=True, omit_defaults=True, gc=False):
    """A job as its submitter describes it. By the id the store recognises a repeated submit."""

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

    def is_like(self, other: Submission) -> bool:
        """Whether two jobs differ only in id, arguments, unique key and times: most neighbours."""
        return (
            self.kind == other.kind
            and self.options == other.options
            and self.queue == other.queue
            and self.target == other.target
            and self.priority == other.priority
        )


class Submitted(Struct, frozen=True, gc=False):
    """An accepted submit; `existing` if its unique key belongs to an earlier job."""

    id: UUID
    number: int
    existing: bool = False


class Refused(Struct, frozen=True):
    """A refused submit; `code` is that of an error in `longshore.errors`."""

    id: UUID
    code: str
    message: str


class Verdict(StrEnum):
    """What the store did with an end. After each of these the worker forgets the attempt."""

    RECORDED = "recorded"
    ALREADY_RECORDED = "already_recorded"
    STALE = "stale"


class Finished(Struct, frozen=True, gc=False):
    """The answer to one end; `state` is the job's state after it, if it was recorded."""

    job: UUID
    token: int
    verdict: Verdict
    state: JobState | None = None


class HistoryEntry(Struct, frozen=True):
    """One change of state. `info` says more in words."""

    state: JobState
    at: datetime
    by: str = ""
    info: str = ""


class Progress(Struct, frozen=True, omit_defaults=True):
    """How far a running job is, by its own words."""

    done: float
    total: float | None = None
    text: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """Everything the store knows of a job."""

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
    deadline_at: datetime | None = None
    """It fails unless it begins before this time; None once an attempt has begun and ended."""
    history: tuple[HistoryEntry, ...] = ()
    progress: Progress | None = None
    step: str | None = None
    group: UUID | None = None
    held_behind: int | None = None
    """Set while its worker holds it ahead of its slots: how many running jobs it waits for."""
    open: int = 0
    """Of a map or a sub-group: how many jobs in its scope are not closed."""
    checkpoint: CheckpointView | None = None
    """The files that its next attempt begins with. Lists do not tell."""
    waited: tuple[Waited, ...] = ()
    """How long it waited for what in this round, the longest first. Lists do not tell."""


class Ended(Struct, frozen=True, gc=False):
    """A job's outcome, for clients that wait for it."""

    id: UUID
    state: JobState
    result: bytes | None = None
    error: JobError | None = None


class LogKind(IntEnum):
    """The kind of a log entry. Commands show the newest step and progress with the job."""

    TEXT = 0
    STEP = 1
    PROGRESS = 2


class LogEntry(Struct, frozen=True):
    """One thing an attempt said. Its worker numbers it, so that the store recognises a repeat."""

    job: UUID
    token: int
    seq: int
    kind: LogKind
    data: bytes


class ArgTerm(Struct, frozen=True, array_like=True):
    """An argument, or a part of one, that a job must have been given.

    `path` names it, its parts divided by dots: `user.id`, `items.0`. `value` is its text: a string
    as it is, any other value as JSON has it.
    """

    path: str
    value: str


class JobFilter(Struct, frozen=True, omit_defaults=True):
    """Which jobs to list: those that match every given field, newest first.

    Their numbers are below `before`. They have all `labels`, and came at `since` or later, and
    before `until`. If `ids` are given, they are among these. Their last attempt ran, or runs, for
    at least `slower_s`. The text `error` occurs in what went wrong. They have all `args`.
    """

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    worker: UUID | None = None
    before: int | None = None
    limit: int = 50
    labels: tuple[str, ...] = ()
    since: datetime | None = None
    group: UUID | None = None
    ids: tuple[UUID, ...] = ()
    until: datetime | None = None
    slower_s: float | None = None
    error: str | None = None
    args: tuple[ArgTerm, ...] = ()


class JobPage(Struct, frozen=True):
    """Jobs, newest first. If the search stopped before the page was full, `stopped_at` is where.

    The search has seen every job from that number on, and none below: the next page is `before` it.
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
    IN_GROUP = "in_group"
    NOT_FOUND = "not_found"
