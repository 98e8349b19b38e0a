"""What a job's own code sees of Longshore while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from logging import Logger
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from longshore.core.limits import MAX_SNOOZE_S
from longshore.core.tracing import with_trace
from longshore.core.turns import MAX_TURN_GROUP
from longshore.errors import Conflict, InvalidInput, NotSerialisable, TooLarge, WrongState
from longshore.executors import scratch
from longshore.executors.host.growth import OwnGroup
from longshore.executors.output.attempt_log import AttemptLog
from longshore.executors.output.logger import JobLogger
from longshore.executors.text import bounded
from longshore.executors.tracing import current_traceparent
from longshore.model.actor import Message, ReplyTo
from longshore.model.attempt import Assignment
from longshore.model.group import GroupPart
from longshore.model.ids import derive_id, submitted_id
from longshore.model.job import LogEntry, Progress, Scheduled, Submission
from longshore.model.log import LogLimits
from longshore.model.reports import OutboxGroup, OutboxItem, OutboxJob, OutboxMessage
from longshore.model.watcher import Watcher
from longshore.payload.references import refuse_outside_a_group

MAX_TEXT_BYTES = 4 * 1024
MAX_OUTBOX_BYTES = 16 * 1024 * 1024
MESSAGE_BYTES: Final = 200
"""About what a message takes beside its arguments."""
FIRST_MESSAGE: Final = 1 << 40
"""From here on the numbers are for messages, below it for jobs (see `derive_id`)."""
FIRST_GROUP: Final = 1 << 61
"""From here on they are for groups."""

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")


@runtime_checkable
class Describes(Protocol):
    """Something that describes a job to submit, as `fetch.call(…)` does."""

    @property
    def submission(self) -> Submission:
        """The job."""

    def take_id(self, id: UUID) -> Submission:
        """The job under this id from now on, unless it has one already that must stay."""


@runtime_checkable
class DescribesGroup(Protocol):
    """Something that describes a group to submit, as `app.group(…)` does."""

    def take_group(self, id: UUID, watchers: tuple[Watcher, ...]) -> GroupPart:
        """The whole group under this id. From then on it is submitted."""


Given = tuple[tuple[object, ...], Mapping[str, object]]
"""The arguments of a message: those by place, and those by name."""


@runtime_checkable
class Addresses(Protocol):
    """Something that names an actor, as `Type.ref(key)` does."""

    def message(
        self, id: UUID, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Message:
        """A message to it, with its arguments checked."""


class Retry(Exception):
    """Raised by a job that wants to be tried again, `after` so long if that is given.

    `after` is a timedelta or a number of seconds, at most `MAX_SNOOZE_S` (366 days); `after_s` is
    the same in seconds only.

    It uses up one of the job's attempts, as any other failure does.
    """

    __module__ = "longshore"

    def __init__(
        self,
        message: str = "the job asked to be tried again",
        *,
        after: timedelta | float | None = None,
        after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        is_given = after is not None or after_s is not None
        self.after_s = _delay_s("Retry", after, after_s) if is_given else None


def _delay_s(who: str, after: timedelta | float | None, after_s: float | None) -> float:
    if (after is None) == (after_s is None):
        raise InvalidInput(f"{who}(after=…, after_s=…): give one of the two")
    seconds: object = after_s if after is None else after
    if isinstance(after, timedelta):
        seconds = after.total_seconds()
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SNOOZE_S:
        raise InvalidInput(
            f"{who}(after={seconds!r}): give a timedelta or a number of seconds, from 0 to "
            f"{MAX_SNOOZE_S:,.0f} (MAX_SNOOZE_S)"
        )
    return float(seconds)


class Snooze(Exception):
    """Raised, or returned, by a job that is to be run again later, `after` so long.

    `after` is a timedelta or a number of seconds, at most `MAX_SNOOZE_S` (366 days); `after_s` is
    the same in seconds only. It is no failure, and uses up none of the job's attempts.
    """

    __module__ = "longshore"

    def __init__(
        self,
        after: timedelta | float | None = None,
        message: str = "",
        *,
        after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.after_s = _delay_s("Snooze", after, after_s)


class Skip(Exception):
    """Raised, or returned, by a job that finds that there is nothing for it to do.

    The job ends as skipped. Jobs of its group that need its success are skipped too; nothing fails.
    """

    __module__ = "longshore"


class Fail(Exception):
    """Raised by a job that is not to be tried again, however many attempts it has left."""

    __module__ = "longshore"


class Cancelled(BaseException):
    """Raised inside a plain `def` job, wherever it is, when the job is aborted.

    Let it through: after the abort grace the process is killed.
    """

    __module__ = "longshore"


class Context:
    """The attempt that is running, as its own code sees it."""

    __slots__ = (
        "_assignment",
        "_cancelled",
        "_group",
        "_groups",
        "_handles",
        "_is_over",
        "_limits",
        "_log",
        "_messages",
        "_outbox",
        "_outbox_bytes",
        "_scratch",
        "_voice",
        "_wake",
    )

    def __init__(
        self,
        assignment: Assignment,
        wake: Callable[[AttemptLog], None],
        limits: LogLimits | None = None,
    ) -> None:
        self._assignment = assignment
        self._wake = wake
        self._limits = limits
        self._log: JobLogger | None = None
        self._voice: AttemptLog | None = None
        self._group: OwnGroup | None = None
        self._groups: list[OutboxGroup] = []
        self._outbox: dict[UUID, Submission] = {}
        self._messages: list[OutboxMessage] = []
        self._handles = ""
        self._outbox_bytes = 0
        self._cancelled = False
        self._is_over = False
        self._scratch: Path | None = None

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self._assignment.job

    @property
    def number(self) -> int:
        """The job's number."""
        return self._assignment.number

    @property
    def kind(self) -> str:
        """The job's kind."""
        return self._assignment.kind

    @property
    def scheduled(self) -> Scheduled | None:
        """The schedule that submitted the job; None if none did.

        It has the `nominal_at` that the job stands for, and the `last_success_at` of the schedule.
        """
        return self._assignment.scheduled

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._assignment.attempt

    @property
    def token(self) -> int:
        """A number that grows with every attempt at this job.

        Hand it to what you write to, so that it can refuse an attempt that was given up.
        """
        return self._assignment.token

    @property
    def devices(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the devices of its worker that it has, by their name."""
        return {one.name: one.numbers for one in self._assignment.devices}

    @property
    def traceparent(self) -> str:
        """The span that submitted the job, as W3C trace context; empty if it is in no trace."""
        return self._assignment.traceparent

    @property
    def cancelled(self) -> bool:
        """Whether this attempt has been told to stop."""
        return self._cancelled

    @property
    def scratch(self) -> Path:
        """A folder of this attempt's own, made when first asked for and removed when it ends."""
        if self._scratch is None:
            self._scratch = scratch.make(self.id, self.token)
        return self._scratch

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Says how far the job is; cheap enough for an inner loop, of many calls the last shows."""
        try:
            amounts = float(done), None if total is None else float(total)
        except (TypeError, ValueError, OverflowError):
            amounts = nan, None
        if not all(amount is None or isfinite(amount) for amount in amounts):
            raise InvalidInput(f"progress({done!r:.50}, {total!r:.50}): give finite numbers")
        self._speak().progress(Progress(*amounts, bounded(text, MAX_TEXT_BYTES) if text else ""))

    def step(self, text: str) -> None:
        """Says what the job does now, in a few words."""
        self._speak().step(bounded(text, MAX_TEXT_BYTES))

    @property
    def log(self) -> Logger:
        """A logger whose records belong to this attempt, from whichever thread they come."""
        if self._log is None:
            self._log = JobLogger(f"longshore.job.{self.kind}", self._speak())
        return self._log

    def submit(self, job: Submission | Describes) -> UUID:
        """Submits a job with this one's success: both are recorded, or neither.

        Answers the new job's id, which the call has from then on too. It follows from this job's
        id, its round and the place in the order of submits: the next attempt submits the same jobs
        again, not new ones, and a retry by hand submits new ones. An id that was given
        (`options(id=…)`) is kept; the same call submitted twice is one job.
        """
        return self._submit(self._under_its_id(job))

    def _submit(self, own: Submission) -> UUID:
        refuse_outside_a_group(own)
        if own.id in self._outbox:
            return self._again(own)
        self._count(own)
        self._outbox[own.id] = with_trace(own, current_traceparent() or self.traceparent)
        return own.id

    def send(self, to: Addresses, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Sends a message to an actor with this job's success: both are recorded, or neither.

        `to` is what `Type.ref(key)` makes.
        """
        if not isinstance(to, Addresses):
            raise InvalidInput(f"{to!r} is no actor; give what Type.ref(key) makes")
        self._send_message(to.message(self._next_message_id(), name, args, kwargs))

    def _next_message_id(self) -> UUID:
        """The id of the next message. Another run of this job makes the same ids again."""
        first = FIRST_MESSAGE + (self._assignment.round << 20)
        return derive_id(self.id, first + len(self._messages))

    def _send_message(self, message: Message) -> None:
        self._count_bytes(MESSAGE_BYTES + len(message.args), "messages")
        self._messages.append(OutboxMessage(message))

    @property
    def group(self) -> OwnGroup:
        """The group that this job is in, to add jobs to it: they are recorded with its success."""
        if self._group is None:
            self._group = OwnGroup(self._count)
        return self._group

    def _count(self, job: Submission) -> None:
        """Raises if the jobs of this attempt take too much with this one, or if it has ended."""
        self._count_bytes(_size(job), "jobs")

    def _count_bytes(self, more: int, what: str) -> None:
        if self._is_over:
            raise WrongState(
                f"job {self.number} has ended, so it can submit or add no more jobs, nor send "
                "messages; wait for its threads and tasks before it returns"
            )
        size = self._outbox_bytes + more
        if size > MAX_OUTBOX_BYTES:
            raise TooLarge(
                f"the {what} that job {self.number} submits take more than {MAX_OUTBOX_BYTES:,} "
                "bytes; keep large data in a file or an object store and pass its name"
            )
        self._outbox_bytes = size

    def _under_its_id(self, job: Submission | Describes) -> Submission:
        if isinstance(job, Submission):
            return job
        if not isinstance(job, Describes):
            raise InvalidInput(f"{job!r} is not a call; give what job.call(…) makes")
        if job.submission.id in self._outbox:
            return job.submission
        return job.take_id(submitted_id(self.id, self._assignment.round, len(self._outbox)))

    def _again(self, job: Submission) -> UUID:
        known = self._outbox[job.id]
        if known != with_trace(job, known.options.traceparent):
            raise Conflict(
                f"job {self.number} submits two different jobs under the id {job.id}; "
                "give each an id of its own, or none"
            )
        return job.id

    def _speak(self) -> AttemptLog:
        if self._voice is None:
            self._voice = AttemptLog(
                self.id, self.token, self._wake, attempt=self.attempt, limits=self._limits
            )
        return self._voice


class RunningContext(Context):
    """The running attempt, as its host sees it."""

    __slots__ = ()

    @property
    def worker(self) -> UUID | None:
        """The worker that runs it, if it is a turn of an actor."""
        return self._assignment.worker

    @property
    def handles(self) -> str:
        """Which event of an actor it handles now, for errors."""
        return self._handles

    @handles.setter
    def handles(self, event: str) -> None:
        self._handles = event

    def ask_with(self, to: Addresses, name: str, given: Given, back: ReplyTo) -> None:
        """Sends a message as `send` does, whose reply goes where `back` says."""
        message = to.message(self._next_message_id(), name, *given)
        self._send_message(msgspec.structs.replace(message, reply_to=back))

    def submit_watched(self, job: Submission | Describes, watcher: Watcher) -> UUID:
        """Submits a job as `submit` does, of whose end the watcher is told."""
        own = self._under_its_id(job)
        if own.unique_key is not None:
            raise InvalidInput(
                f"a '{own.kind}' job with a unique key is submitted with then=…; another job may "
                "have the key already, and its outcome would go elsewhere: leave one of them out"
            )
        watchers = (*own.options.watchers, watcher)
        options = msgspec.structs.replace(own.options, watchers=watchers)
        return self._submit(msgspec.structs.replace(own, options=options))

    def submit_group(self, group: DescribesGroup, watchers: tuple[Watcher, ...]) -> UUID:
        """Submits a group with this turn; of its end these watchers are told. Answers its id.

        Another run of the turn makes the same id again.
        """
        if not isinstance(group, DescribesGroup):
            raise InvalidInput(f"{group!r} is no group; give what app.group(name) makes")
        first = FIRST_GROUP | self._assignment.round << 20
        part = group.take_group(derive_id(self.id, first + len(self._groups)), watchers)
        if len(part.nodes) > MAX_TURN_GROUP:
            raise TooLarge(
                f"group '{part.head.name}' has {len(part.nodes):,} jobs, and a turn may submit one "
                f"of {MAX_TURN_GROUP:,}; let a job of the group add the others, or use a map"
            )
        self._count_bytes(sum(_size(node.job) for node in part.nodes), "groups")
        self._groups.append(OutboxGroup(part))
        return part.head.id

    def mark_cancelled(self) -> None:
        """Lets the job's code see that it must stop."""
        self._cancelled = True

    def outbox(self) -> tuple[OutboxItem, ...]:
        """What to commit with the attempt's success: all that was submitted and added.

        Nothing can be from then on.
        """
        self._is_over = True
        if not (self._outbox or self._group or self._groups or self._messages):
            return ()
        added = self._group.nodes if self._group is not None else ()
        jobs = map(OutboxJob, self._outbox.values())
        return (*jobs, *added, *self._groups, *self._messages)

    def unsaid(self) -> list[LogEntry]:
        """What the attempt said and the agent was not told yet; for the attempt's end."""
        if self._voice is None:
            return []
        self._voice.end()
        return self._voice.take()

    def attempt_log(self) -> AttemptLog:
        """Keeps what the job's code prints and logs."""
        return self._speak()

    def leftover(self) -> Path | None:
        """The scratch folder, if the attempt has asked for it."""
        return self._scratch


_running: ContextVar[RunningContext | None] = ContextVar("longshore_running", default=None)


def current() -> Context:
    """The attempt that the calling code belongs to; raises `WrongState` outside any job."""
    context = _running.get()
    if context is None:
        raise WrongState(
            "there is no current job here: call current() from a job's own code (a thread started "
            "by hand does not know its job; pass the context on to it). To try a job without a "
            "worker, do not call it but submit it within longshore.testing.run_inline(app)"
        )
    return context


def running() -> RunningContext | None:
    """The attempt that the calling code belongs to, if any."""
    return _running.get()


def enter(context: RunningContext | None) -> None:
    """Makes `current` answer this attempt, or none, in the calling contextvars context."""
    _running.set(context)


def _size(submission: Submission) -> int:
    try:
        return len(_encoder.encode(submission))
    except (TypeError, ValueError, OverflowError) as error:
        raise NotSerialisable(f"a {submission.kind!r} job cannot be submitted: {error}") from None
