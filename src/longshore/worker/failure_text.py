"""What a worker's log says of an attempt that failed."""

from __future__ import annotations

from longshore.model.attempt import Report, ReportKind
from longshore.model.job import JobError

_FAILURES = frozenset({ReportKind.FAILED, ReportKind.CRASHED})
_SHOWN = 500


def called(number: int, kind: str, attempt: int) -> str:
    """An attempt as a log names it."""
    return f"job {number} ({kind}), attempt {attempt}"


def failure(report: Report) -> str:
    """Why an attempt failed, in one line; empty if it did not."""
    if report.kind not in _FAILURES:
        return ""
    return _one_line(report.error) if report.error is not None else report.kind.value


def _one_line(error: JobError) -> str:
    kind = f"{error.type}: " if error.type else ""
    text = " ".join(f"{error.reason.value}: {kind}{error.message}".split())
    # It is text of somebody else's: nothing in it is to steer a terminal.
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
