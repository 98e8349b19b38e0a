"""A schedule: what submits a job or a group again and again, at times that its specs name.

A *nominal time* is a time that the specs name. A *fire* is what became of one: each nominal time
has exactly one, and it ends with exactly one fate. Many in a row that were not submitted for the
same reason are one fire with a `count`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.group import GroupPart
from longshore.model.job import JobState, Submission

UTC_ZONE = "UTC"


class Spec(Struct, frozen=True, omit_defaults=True):
    """When: a cron expression in a time zone, or a time in seconds between two."""

    cron: str = ""
    every_s: float = 0.0
    tz: str = UTC_ZONE


class Timing(Struct, frozen=True, omit_defaults=True):
    """All nominal times of a schedule: those of any spec that are not excluded.

    `exclude` has days (`2026-12-25`), spans of days (`2026-12-24..2027-01-06`) and cron expressions
    in the zone of the spec. With `jitter_s`, each is submitted up to so much later.
    """

    specs: tuple[Spec, ...]
    exclude: tuple[str, ...] = ()
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter_s: float = 0.0


class Overlap(StrEnum):
    """What becomes of a nominal time while the run of an earlier one has not ended."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"
    ALLOW = "allow"


class Catchup(StrEnum):
    """Which of the nominal times that no dispatcher was there for are caught up."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class Rules(Struct, frozen=True, omit_defaults=True):
    """What a schedule does with its nominal times.

    A time is missed if it was not decided `grace_s` after it. Of the missed ones `catchup` takes
    those that are at most `window_s` old, and of `all` the newest `count`. After `pause_after`
    failures in a row the schedule pauses; 0 is never.
    """

    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.LATEST
    window_s: float = 86_400.0
    count: int = 100
    grace_s: float = 60.0
    pause_after: int = 0


class NewSchedule(Struct, frozen=True, omit_defaults=True):
    """A schedule as it is declared. It submits the job or the group, under ids of its own.

    `app` is the app that declared it in code; empty, if it was made by hand.
    """

    id: UUID
    name: str
    timing: Timing
    rules: Rules = Rules()
    job: Submission | None = None
    group: GroupPart | None = None
    app: str = ""
    by: str = ""
    """Who made it, if a token or a key names that. The dispatcher says so, no submitter."""

    def is_like(self, other: NewSchedule) -> bool:
        """Whether two declare the same, whoever made them."""
        return (self.name, self.timing, self.rules, self.app) == (
            other.name,
            other.timing,
            other.rules,
            other.app,
        ) and (self.job, self.group) == (other.job, other.group)


class Fate(StrEnum):
    """What became of a nominal time. A `queued` one has its fate still to come."""

    QUEUED = "queued"
    SUBMITTED = "submitted"
    CAUGHT_UP = "caught_up"
    SKIPPED = "skipped"
    EXPIRED = "expired"


class Fire(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What became of a nominal time, or of `count` in a row up to `last_at`, and why."""

    nominal_at: datetime
    fate: Fate
    why: str = ""
    decided_at: datetime | None = None
    last_at: datetime | None = None
    count: int = 1
    late: bool = False
    """Of a queued one: whether it is caught up once it is submitted."""
    subject: UUID | None = None
    """The job or the group that was submitted for it."""
    is_group: bool = False
    pending: bool = False
    """Whether the submit, which was decided, is still to be made."""
    outcome: JobState | None = None
    """How the job or the group ended."""
    ended_at: datetime | None = None
    settled: bool = False
    """Whether nothing more is to come of it."""


class ScheduleState(Struct, frozen=True, omit_defaults=True):
    """How far a schedule is: all nominal times up to `decided_to` have their fires."""

    decided_to: datetime
    paused_at: datetime | None = None
    paused_by: str = ""
    note: str = ""
    failures: int = 0
    """How many runs in a row failed."""
    last_success_at: datetime | None = None
    """The nominal time of the newest run that succeeded."""


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule as the store has it."""

    new: NewSchedule
    state: ScheduleState
    version: int
    created_at: datetime
    look_at: datetime | None
    """When a dispatcher looks at it next; None once no nominal time is left."""


class Examined(Struct, frozen=True):
    """A schedule, its fires that are not settled, and the store's time when it was read."""

    schedule: Schedule
    fires: tuple[Fire, ...]
    now: datetime


class DueSchedules(Struct, frozen=True):
    """Schedules to look at, and after how many seconds the next one will be."""

    examined: tuple[Examined, ...] = ()
    next_s: float | None = None


class Made(Struct, frozen=True):
    """A fire with what it submits."""

    fire: Fire
    body: bytes = b""


class Decision(Struct, frozen=True):
    """What a look at a schedule decided. It counts if the schedule still has this `version`."""

    schedule: UUID
    version: int
    state: ScheduleState
    look_at: datetime | None
    made: tuple[Made, ...] = ()
    cancels: tuple[Fire, ...] = ()
    """Fires whose runs are to be cancelled."""


class PendingFire(Struct, frozen=True):
    """A submit that was decided and is still to be made."""

    schedule: UUID
    nominal_at: datetime
    body: bytes


class FireResult(Struct, frozen=True):
    """A submit that was made, or refused."""

    schedule: UUID
    nominal_at: datetime
    refused: str = ""


class ScheduledBody(Struct, frozen=True, omit_defaults=True):
    """What a fire submits: a job or a group."""

    name: str
    by: str = ""
    job: Submission | None = None
    group: GroupPart | None = None


class ScheduleView(Struct, frozen=True, kw_only=True):
    """A schedule as it is shown, with its newest fires and what is to say of it."""

    schedule: Schedule
    fires: tuple[Fire, ...] = ()
    now: datetime
    text: str = ""


class Synced(Struct, frozen=True):
    """What a sync of an app's schedules changed, by name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
