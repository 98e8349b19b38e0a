"""How attempts end: to the store first, then to the worker and to whoever waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from uuid import UUID

from msgspec import structs

from longshore.core.lifecycle import TERMINAL
from longshore.core.limits import MAX_NAME_CHARS, check_submission
from longshore.core.timing import (
    settle_crash,
    settle_failure,
    settle_refused_retry,
    settle_snooze,
)
from longshore.core.values import within
from longshore.dispatcher.pulse import Alarm
from longshore.dispatcher.pump import Pump
from longshore.dispatcher.settings import DispatcherSettings
from longshore.dispatcher.waiters import Waiters
from longshore.errors import LongshoreError
from longshore.model.job import (
    Claimed,
    Ended,
    Finish,
    Finished,
    JobError,
    JobState,
    Outcome,
    Reason,
    Submission,
    Verdict,
)
from longshore.wire.dispatcher_side import Attendance
from longshore.wire.messages import Ack, Attempt, Report, ReportKind

Acknowledge = Callable[[Attendance, Ack], None]

MAX_ERROR_CHARS = 64 * 1024
MAX_NOTES = 10
_UNEXPLAINED = JobError(Reason.RAISED, "the worker gave no reason")
_ASKED = "longshore.Retry"


class Decisions:
    """What a worker's reports mean for their jobs. Holds nothing, and changes nothing."""

    def __init__(self, settings: DispatcherSettings, random: Random) -> None:
        self._settings = settings
        self._random = random

    def decide(
        self, report: Report, claimed: Claimed | None, by: str = "", worker: UUID | None = None
    ) -> Finish:
        """What the store is to record; if a worker is given, only if the job is its own.

        An attempt that is not placed here can only be too late, or another's.
        """
        if report.kind is ReportKind.SUCCEEDED:
            return self._succeeded(report, by, worker)
        return structs.replace(self._unsuccessful(report, claimed), by=by, worker=worker)

    def _unsuccessful(self, report: Report, claimed: Claimed | None) -> Finish:
        match report.kind:
            case ReportKind.CANCELLED:
                return Finish(report.job, report.token, Outcome.CANCELLED)
            case ReportKind.RELEASED if claimed and report.retry_after_s is not None:
                note = report.note[:MAX_ERROR_CHARS]
                return settle_snooze(claimed, report.retry_after_s, note)
            case ReportKind.RELEASED:
                info = "handed back by its worker"
                return Finish(report.job, report.token, Outcome.RELEASED, info=info)
            case _:
                error = _bounded(report.error) if report.error else _UNEXPLAINED
                if claimed is None:
                    return Finish(report.job, report.token, Outcome.FAILED, error=error)
                if report.kind is ReportKind.CRASHED:
                    return settle_crash(claimed, error, self._settings.crash_limit)
                return self._failed(claimed, error, report)

    def _succeeded(self, report: Report, by: str, worker: UUID | None) -> Finish:
        limit = self._settings.max_value_bytes
        if report.result is not None and len(report.result) > limit:
            message = f"the result takes {len(report.result):,} bytes, more than max_value_bytes"
            error = JobError(Reason.INVALID_RESULT, f"{message} ({limit:,})")
            failed = Finish(report.job, report.token, Outcome.FAILED, error=error, info=message)
            return structs.replace(failed, by=by, worker=worker)
        outbox, info = self._sound(report.outbox) if report.outbox else ((), "")
        return Finish(
            report.job,
            report.token,
            Outcome.SUCCEEDED,
            result=report.result,
            outbox=outbox,
            by=by,
            info=info,
            worker=worker,
        )

    def _sound(self, outbox: tuple[Submission, ...]) -> tuple[tuple[Submission, ...], str]:
        """Those jobs of an outbox that a client might submit; and of the others, what is wrong."""
        sound, notes = [], []
        for index, job in enumerate(outbox):
            try:
                check_submission(job)
                what = f"the arguments of job '{job.kind}'"
                within(job.args, what, self._settings.max_value_bytes)
                sound.append(job)
            except LongshoreError as error:
                notes.append(f"outbox item {index} refused: {error}")
        if len(notes) > MAX_NOTES:
            notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES:,} more"]
        return tuple(sound), "; ".join(notes)

    def _failed(self, claimed: Claimed, error: JobError, report: Report) -> Finish:
        luck, after_s = self._random.random(), report.retry_after_s
        finish = settle_failure(claimed, error, luck, final=report.final, after_s=after_s)
        if finish.outcome is Outcome.FAILED and _asks_for_a_retry(error, report):
            return settle_refused_retry(claimed, error)
        return finish


def _bounded(error: JobError) -> JobError:
    """An error of a size to be kept and shown, whatever its worker sent."""
    if len(error.message) + len(error.type) + len(error.traceback) <= MAX_ERROR_CHARS:
        return error
    return JobError(
        error.reason,
        error.message[:MAX_ERROR_CHARS],
        error.type[:MAX_NAME_CHARS],
        error.traceback[-MAX_ERROR_CHARS:],
    )


def _asks_for_a_retry(error: JobError, report: Report) -> bool:
    """Whether the job's code itself said that it is to be tried again."""
    if report.final or error.reason is not Reason.RAISED:
        return False
    return report.retry_after_s is not None or error.type == _ASKED


class Ends:
    """Decides what a report means, records it, acknowledges it."""

    def __init__(
        self,
        settings: DispatcherSettings,
        random: Random,
        pump: Pump,
        waiters: Waiters,
        due: Alarm,
        acknowledge: Acknowledge,
    ) -> None:
        self._decisions = Decisions(settings, random)
        self._pump = pump
        self._waiters = waiters
        self._due = due
        self._acknowledge = acknowledge
        self._acks: dict[Attendance, tuple[list[Attempt], list[Attempt]]] = {}

    def report(self, attendance: Attendance, report: Report) -> None:
        """A worker says that an attempt ended. A repeat waits for the commit of the first."""
        sent = attendance.sent(report.job, report.token)
        if sent is None:
            if not attendance.admits_stray(report.token):
                return
            # It is the store that knows whose attempt this is.
            finish = self._decisions.decide(report, None, attendance.by, attendance.info.id)
        else:
            if sent.reported:
                return
            attendance.ended(sent)
            finish = self._decisions.decide(report, sent.claimed, attendance.by)
        self._pump.finish(finish, lambda f, done: self._recorded(f, done, attendance))

    def end(self, finish: Finish, attendance: Attendance | None) -> None:
        """An attempt is over, though its worker did not say so."""
        self._pump.finish(finish, lambda f, done: self._recorded(f, done, attendance, ack=False))

    def _recorded(
        self, finish: Finish, done: Finished, attendance: Attendance | None, *, ack: bool = True
    ) -> None:
        attempt = finish.job, finish.token
        if attendance is not None:
            attendance.settled(attempt)
            if ack:
                self._ack_later(attendance, attempt, done.verdict)
        if done.verdict is not Verdict.RECORDED or done.state is None:
            return
        if done.state in TERMINAL:
            self._tell(finish, done.state)
            self._due.set_for(finish.outbox)
        elif done.state is JobState.DELAYED:
            self._due.set_in(finish.delay_s)

    def _tell(self, finish: Finish, state: JobState) -> None:
        if self._waiters.is_awaited(finish.job):
            error = finish.error if state is JobState.FAILED else None
            result = finish.result if state is JobState.SUCCEEDED else None
            self._waiters.tell(Ended(finish.job, state, result, error))

    def _ack_later(self, attendance: Attendance, attempt: Attempt, verdict: Verdict) -> None:
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        recorded, stale = self._acks.setdefault(attendance, ([], []))
        (stale if verdict is Verdict.STALE else recorded).append(attempt)

    def _send_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for attendance, (recorded, stale) in acks.items():
            self._acknowledge(attendance, Ack(tuple(recorded), tuple(stale)))
