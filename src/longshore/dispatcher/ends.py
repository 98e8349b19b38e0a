"""How attempts end: decides what a report means, has it stored, then acknowledges it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import assert_never
from uuid import UUID

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.effects import refused_item
from longshore.core.group_limits import check_growth
from longshore.core.growth import added, refused
from longshore.core.limits import MAX_DURATION_S, MAX_NAME_CHARS, check_submission
from longshore.core.timing import (
    settle_crash,
    settle_failure,
    settle_refused_retry,
    settle_skip,
    settle_snooze,
)
from longshore.dispatcher.alarms import Alarm
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.errors import LongshoreError
from longshore.model.attempt import Attempt
from longshore.model.ends import (
    Cancelled,
    End,
    Failed,
    NotBegun,
    Released,
    Retried,
    Snoozed,
    Succeeded,
)
from longshore.model.group import GATE, MAP
from longshore.model.job import Finished, JobError, JobState, Reason, Submission, Verdict
from longshore.model.reports import (
    CancelReport,
    CrashReport,
    FailureReport,
    NotBegunReport,
    OutboxItem,
    OutboxJob,
    OutboxNode,
    ReleaseReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
)
from longshore.payload.group_references import check_added
from longshore.payload.maps import check_map, read_map
from longshore.payload.values import within
from longshore.wire.dispatcher_side import Session
from longshore.wire.messages import Ack, AttemptKey

Unsuccessful = (
    FailureReport
    | CrashReport
    | CancelReport
    | ReleaseReport
    | SnoozeReport
    | SkipReport
    | NotBegunReport
)
Acknowledge = Callable[[Session, Ack], None]

MAX_ERROR_CHARS = 64 * 1024
MAX_NOTES = 10
_ASKED = "longshore.Retry"
_MAY_BE_ADDED = frozenset({MAP, GATE})


class Decisions:
    """Decides what a worker's reports mean for their jobs."""

    def __init__(self, settings: DispatcherSettings, random: Random) -> None:
        self._settings = settings
        self._random = random

    def decide(
        self, report: Report, claimed: Attempt | None, by: str = "", worker: UUID | None = None
    ) -> End:
        """The end for the store to record; if `worker` is given, only if it owns the job.

        An attempt that is not placed here has no `claimed`: it is late, or another worker's.
        """
        if isinstance(report, SuccessReport):
            return self._succeeded(report, by, worker)
        end = self._unsuccessful(report, claimed)
        return structs.replace(end, by=by, worker=worker, ran_s=_ran_s(report))

    def _unsuccessful(self, report: Unsuccessful, claimed: Attempt | None) -> End:
        match report:
            case CancelReport():
                return Cancelled(report.job, report.token)
            case NotBegunReport():
                return NotBegun(report.job, report.token)
            case ReleaseReport():
                return Released(report.job, report.token, info="handed back by its worker")
            case SkipReport(note=note):
                return settle_skip(report.key, note[:MAX_ERROR_CHARS])
            case SnoozeReport() if claimed:
                return settle_snooze(claimed, report.after_s, report.note[:MAX_ERROR_CHARS])
            case SnoozeReport():
                return Snoozed(report.job, report.token)
            case FailureReport() | CrashReport() if claimed is None:
                return Failed(report.job, report.token, _bounded(report.error))
            case CrashReport(error=error):
                return settle_crash(claimed, _bounded(error), self._settings.crash_limit)
            case FailureReport(error=error):
                return self._failed(claimed, _bounded(error), report)
            case _:
                assert_never(report)

    def _succeeded(self, report: SuccessReport, by: str, worker: UUID | None) -> Succeeded | Failed:
        which, limit = (report.job, report.token), self._settings.max_value_bytes
        if report.result is not None and len(report.result) > limit:
            message = f"the result takes {len(report.result):,} bytes, more than max_value_bytes"
            error = JobError(Reason.INVALID_RESULT, f"{message} ({limit:,})")
            return Failed(*which, error, by=by, info=message, worker=worker, ran_s=_ran_s(report))
        outbox, info = self._sound(report.outbox) if report.outbox else ((), "")
        end = Succeeded(
            *which, report.result, outbox, by=by, info=info, worker=worker, ran_s=_ran_s(report)
        )
        why = self._wrong_growth(added(end))
        return refused(end, why) if why else end

    def _wrong_growth(self, nodes: Sequence[OutboxNode]) -> str:
        """What is wrong with the jobs that an attempt adds to its group; empty if nothing is."""
        try:
            if nodes:
                check_growth(nodes)
                check_added(nodes)
            for node in nodes:
                self._check_sent(node.job, _MAY_BE_ADDED)
                if node.job.kind == MAP:
                    check_map(node.job)
                    check_submission(read_map(node.job.args)[1].job)
        except LongshoreError as error:
            return f"it adds jobs that cannot be: {error}"
        return ""

    def _check_sent(self, job: Submission, built_in: Collection[str] = ()) -> None:
        check_submission(job, built_in)
        within(job.args, f"the arguments of job '{job.kind}'", self._settings.max_value_bytes)

    def _sound(self, outbox: tuple[OutboxItem, ...]) -> tuple[tuple[OutboxItem, ...], str]:
        """The jobs of an outbox that are valid, and what is wrong with the others.

        Those that it adds to its group are checked together.
        """
        sound, notes = [], []
        for index, item in enumerate(outbox):
            try:
                if isinstance(item, OutboxJob):
                    self._check_sent(item.job)
                sound.append(item)
            except LongshoreError as error:
                notes.append(refused_item(index, str(error)))
        if len(notes) > MAX_NOTES:
            notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES:,} more"]
        return tuple(sound), "; ".join(notes)

    def _failed(self, claimed: Attempt, error: JobError, report: FailureReport) -> Failed | Retried:
        luck, after_s = self._random.random(), report.retry_after_s
        end = settle_failure(claimed, error, luck, final=report.final, after_s=after_s)
        if isinstance(end, Failed) and _asks_for_a_retry(error, report):
            return settle_refused_retry(claimed, error)
        return end


def _ran_s(report: Report) -> float | None:
    """How long the attempt ran, if it ran and its worker says so. A worker may send anything."""
    ran_s = None if isinstance(report, NotBegunReport) else report.ran_s
    return ran_s if ran_s is not None and 0 <= ran_s <= MAX_DURATION_S else None


def _bounded(error: JobError) -> JobError:
    """The error, cut to a size that can be kept and shown."""
    if len(error.message) + len(error.type) + len(error.traceback) <= MAX_ERROR_CHARS:
        return error
    return JobError(
        error.reason,
        error.message[:MAX_ERROR_CHARS],
        error.type[:MAX_NAME_CHARS],
        error.traceback[-MAX_ERROR_CHARS:],
    )


def _asks_for_a_retry(error: JobError, report: FailureReport) -> bool:
    """Whether the job's own code asked for a retry."""
    if report.final or error.reason is not Reason.RAISED:
        return False
    return report.retry_after_s is not None or error.type == _ASKED


class Ends:
    """Takes reports, has the ends recorded, and acknowledges them."""

    def __init__(
        self,
        environment: Environment,
        commits: Commits,
        due: Alarm,
        acknowledge: Acknowledge,
    ) -> None:
        self._decisions = Decisions(environment.settings, environment.random)
        self._commits = commits
        self._due = due
        self._acknowledge = acknowledge
        self._acks: dict[Session, tuple[list[AttemptKey], list[AttemptKey]]] = {}

    def report(self, session: Session, report: Report) -> None:
        """A worker reports an end. A repeat is dropped: the ACK of the first answers it."""
        sent = session.sent(report.job, report.token)
        if sent is None:
            if not session.admits_stray(report.token):
                return
            # Only the store knows whose attempt this is.
            end = self._decisions.decide(report, None, session.by, session.info.id)
        else:
            if sent.reported:
                return
            session.ended(sent)
            end = self._decisions.decide(report, sent.claimed, session.by)
        self._commits.finish(end, lambda end, done: self._recorded(end, done, session))

    def end(self, end: End, session: Session | None) -> None:
        """An attempt is over, though its worker did not report it."""
        self._commits.finish(end, lambda end, done: self._recorded(end, done, session, ack=False))

    def _recorded(
        self, end: End, done: Finished, session: Session | None, *, ack: bool = True
    ) -> None:
        attempt = end.job, end.token
        if session is not None:
            session.settled(attempt)
            if ack:
                self._ack_later(session, attempt, done.verdict)
        if done.verdict is Verdict.RECORDED:
            self._mind_times(end, done.state)

    def _mind_times(self, end: End, state: JobState | None) -> None:
        """Sets the alarm for jobs that this end delayed or submitted."""
        if isinstance(end, Succeeded):
            if end.outbox:
                self._due.set_for(item.job for item in end.outbox)
        elif isinstance(end, Retried | Snoozed) and state is JobState.DELAYED:
            self._due.set_in(end.delay_s)

    def _ack_later(self, session: Session, attempt: AttemptKey, verdict: Verdict) -> None:
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        recorded, stale = self._acks.setdefault(session, ([], []))
        (stale if verdict is Verdict.STALE else recorded).append(attempt)

    def _send_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for session, (recorded, stale) in acks.items():
            self._acknowledge(session, Ack(session.info.id, tuple(recorded), tuple(stale)))
