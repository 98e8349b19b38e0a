"""Runs callbacks: each attempt is one signed request to the address that a user named.

Any 2xx is delivery. 410 says that nobody wants to hear of it any more. All else, and silence, is a
failure, after which the job is tried again as its policy says, or when the receiver asks for it
(`Retry-After`). Requests follow Standard Webhooks 1.0; the id of the callback's job is the id of
the message, so a receiver recognises one that comes twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from longshore.core.addresses import Allowed, shown_url
from longshore.core.webhooks import signed_headers
from longshore.errors import LongshoreError
from longshore.links.outbound import Answer, NotAllowed, Outbound, Request, Unanswered
from longshore.model.attempt import Assignment
from longshore.model.callback import CALLBACK_KIND, USUAL_TERMS, Callback
from longshore.model.job import JobError, LogEntry, LogKind, Reason
from longshore.model.log import Line, pack_line
from longshore.model.reports import FailureReport, ReleaseReport, Report, SuccessReport
from longshore.model.worker import KindInfo, Pool
from longshore.payload.callback_jobs import read_callback
from longshore.payload.values import pack
from longshore.ports import OnLog, OnReport

log = logging.getLogger("longshore.gateway")

MAX_RETRY_AFTER_S: Final = 3600.0
"""The longest that a receiver may put a callback off."""
_SHOWN_CHARS: Final = 200
_GONE: Final = 410
_ERROR: Final = "longshore.CallbackFailed"
_REFUSED: Final = "longshore.CallbackRefused"


class CallbackExecutor:
    """Makes the requests of callbacks: a `ports.Executor` for a gateway's own worker."""

    def __init__(
        self,
        slots: int,
        allowed: Allowed,
        on_report: OnReport,
        on_log: OnLog,
        utc: Callable[[], datetime],
    ) -> None:
        self.slots = slots
        self.kinds = {CALLBACK_KIND: KindInfo(pool=Pool.COROUTINE)}
        self._outbound = Outbound(allowed)
        self._on_report = on_report
        self._on_log = on_log
        self._utc = utc
        self._tasks: dict[int, asyncio.Task[Report]] = {}
        self._stopped: dict[int, Report] = {}
        """How to report the attempts that are being stopped, by token."""
        self._is_closed = False

    async def open(self) -> None:
        """Gets ready to make requests."""
        await self._outbound.__aenter__()

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt."""
        began_at = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._attempt(assignment))
        self._tasks[assignment.token] = task
        # Not within the task: one that is cancelled before its first step runs nothing.
        task.add_done_callback(lambda task: self._ended(assignment, task, began_at))

    def abort(self, report: Report) -> None:
        """Breaks off a request; whether it had arrived is then not known."""
        task = self._tasks.get(report.token)
        if task is not None:
            self._stopped[report.token] = report
            task.cancel()
        else:
            # Nothing runs, so nothing else will report it.
            asyncio.get_running_loop().call_soon(self._on_report, report)

    def kill(self) -> None:
        """Breaks off all requests; each is handed back."""
        for task in self._tasks.values():
            task.cancel()

    async def close(self) -> None:
        """Breaks off all requests, without a report."""
        self._is_closed = True
        self.kill()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._outbound.__aexit__(None, None, None)

    def _ended(self, assignment: Assignment, task: asyncio.Task[Report], began_at: float) -> None:
        """Reports an attempt, however its task ended."""
        del self._tasks[assignment.token]
        stopped = self._stopped.pop(assignment.token, None)
        if task.cancelled():
            report = stopped or ReleaseReport(*assignment.key)
        elif (error := task.exception()) is not None:
            text, about = "the callback %s could not be made", assignment.job
            log.error(text, about, exc_info=error, extra={"job": about})
            words = f"the callback could not be made: {type(error).__name__}: {error}"
            report = _failure(assignment, words[:_SHOWN_CHARS])
        else:
            report = task.result()
        if not self._is_closed:
            self._on_report(report, task.get_loop().time() - began_at)

    async def _attempt(self, assignment: Assignment) -> Report:
        try:
            callback = read_callback(assignment.args)
        except (msgspec.MsgspecError, LongshoreError) as error:
            words = f"the arguments of the callback cannot be read: {error}"
            return _failure(assignment, words, final=True)
        report, said = await self._call(assignment, callback)
        line = Line(said, level="INFO", said_at=self._utc().timestamp(), attempt=assignment.attempt)
        entry = LogEntry(assignment.job, assignment.token, 1, LogKind.TEXT, pack_line(line))
        self._on_log(entry)
        return report

    async def _call(self, assignment: Assignment, callback: Callback) -> tuple[Report, str]:
        """How an attempt ended, and what its log says."""
        where = f"{callback.method} {shown_url(callback.url)}"
        within_s = assignment.timeout_s or USUAL_TERMS.timeout_s
        report: Report
        try:
            request = self._request(assignment, callback)
            answer = await self._outbound.send(request, within_s=within_s)
        except NotAllowed as error:
            words = f"{where} is not allowed: {error}"
            report = _failure(assignment, words, final=not error.of_name, type=_REFUSED)
        except Unanswered as error:
            words = f"{where}: {error}"
            report = _failure(assignment, words)
        else:
            words = f"{where} answered {answer.status}"
            report = self._judged(assignment, answer, words)
        return report, words

    def _request(self, assignment: Assignment, callback: Callback) -> Request:
        now = int(self._utc().timestamp())
        body = callback.body.encode()
        signed = signed_headers(callback.key, str(assignment.job), now, body)
        kind = {"Content-Type": "application/json"} if body else {}
        return Request(
            url=callback.url,
            method=callback.method,
            headers={**callback.headers, **kind, **signed},
            body=body,
        )

    def _judged(self, assignment: Assignment, answer: Answer, words: str) -> Report:
        """What an answer makes of the attempt."""
        if answer.is_success:
            result = pack({"status": answer.status}, "the answer")
            return SuccessReport(*assignment.key, result=result)
        if answer.status == _GONE:
            words = f"{words}: nobody there wants to hear of it any more"
            return _failure(assignment, words, final=True)
        if 300 <= answer.status < 400:
            to = answer.headers.get("location", "")[:_SHOWN_CHARS]
            words = f"{words} and leads to {to!r}, which is not followed: give the last address"
        elif said := answer.body.decode("utf-8", "replace")[:_SHOWN_CHARS].strip():
            words = f"{words}: {said}"
        return _failure(assignment, words, after_s=self._retry_after(answer))

    def _retry_after(self, answer: Answer) -> float | None:
        """How long the receiver asks to wait, within bounds; None if it does not say so."""
        given = answer.headers.get("retry-after", "").strip()
        try:
            seconds = float(given) if given.isdecimal() else self._until(given)
        except (ValueError, OverflowError):
            return None
        return min(seconds, MAX_RETRY_AFTER_S) if seconds >= 1 else None

    def _until(self, date: str) -> float:
        at = parsedate_to_datetime(date)
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (aware - self._utc()).total_seconds()


def _failure(
    assignment: Assignment,
    words: str,
    *,
    final: bool = False,
    after_s: float | None = None,
    type: str = _ERROR,
) -> FailureReport:
    error = JobError(Reason.RAISED, words, type)
    return FailureReport(*assignment.key, error=error, final=final, retry_after_s=after_s)
