"""What a worker's log says of an attempt that failed."""

from __future__ import annotations

from uuid import UUID

from longshore.core.tracing import trace_of
from longshore.model.attempt import Assignment
from longshore.model.job import JobError
from longshore.model.reports import CrashReport, FailureReport, Report

_SHOWN = 500


def called(assignment: Assignment) -> str:
    """An attempt as a log names it."""
    return f"job {assignment.number} ({assignment.kind}), attempt {assignment.attempt}"


def ids(assignment: Assignment) -> dict[str, object]:
    """What an entry of a log about an attempt is about."""
    trace = trace_of(assignment.traceparent)
    return {"job": assignment.job, "attempt": assignment.token, "trace": trace}


def failure(report: Report) -> str:
    """Why an attempt failed, in one line; empty if it did not."""
    # As a tuple: to make the union of two types takes longer than to look for them.
    return _one_line(report.error) if isinstance(report, (FailureReport, CrashReport)) else ""


def _one_line(error: JobError) -> str:
    kind = f"{error.type}: " if error.type else ""
    text = " ".join(f"{error.reason.value}: {kind}{error.message}".split())
    # A job's text must not steer the terminal that shows it.
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"


def refused(job: UUID, token: int) -> tuple[str, UUID, int]:
    """That the store has given the job to others: a text for the log, and what goes into it."""
    return "the result of job %s (token %d) was refused: stale", job, token
