"""Reports of attempts in the words of HTTP: what a web worker sends to a gateway."""

from __future__ import annotations

from typing import Any, Final

from longshore.client.jsonable import payload
from longshore.model.job import JobError, Reason
from longshore.model.reports import (
    CancelReport,
    FailureReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
)

NO_OUTBOX: Final = (
    "the job submitted jobs or sent messages through its context, which a web worker cannot do; "
    "submit them with the app, or run the job on a worker of `longshore worker`"
)


def body_of(report: Report, *, raw: bool = False) -> dict[str, Any]:
    """The body of `PUT /dispatcher/jobs/ID/result` for a report; bytes of a raw job are base64."""
    body: dict[str, Any] = {"token": report.token}
    match report:
        case SuccessReport(outbox=()):
            result = payload(report.result, raw=raw)
            return {**body, "status": "succeeded", "result": result, "raw": raw}
        case SuccessReport():
            refused = JobError(Reason.RAISED, NO_OUTBOX)
            return {**body, "status": "failed", "error": _error(refused, final=True)}
        case FailureReport():
            error = _error(report.error, final=report.final)
            return {**body, "status": "failed", "error": error, "after_s": report.retry_after_s}
        case SnoozeReport():
            snooze = {"status": "snoozed", "after_s": report.after_s, "note": report.note}
            return {**body, **snooze}
        case SkipReport():
            return {**body, "status": "skipped", "note": report.note}
        case CancelReport():
            return {**body, "status": "cancelled"}
    return {**body, "status": "released"}


def _error(error: JobError, *, final: bool) -> dict[str, Any]:
    return {
        "reason": error.reason.value,
        "type": error.type,
        "message": error.message,
        "traceback": error.traceback,
        "final": final,
    }
