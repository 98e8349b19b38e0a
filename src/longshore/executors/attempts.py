"""The attempts an executor has been given and has not reported yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from longshore.executors.host_process import HostProcess
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import JobError, LogEntry, Reason
from longshore.model.reports import CrashReport, FailureReport, ReleaseReport, Report
from longshore.ports import OnLog, OnReport


class Running:
    """One attempt: the host it was sent to, and its report once an abort has stopped it."""

    __slots__ = ("_timers", "abort_report", "assignment", "host")

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.host: HostProcess | None = None
        self.abort_report: Report | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def keep(self, timer: asyncio.TimerHandle) -> None:
        """Keeps a timer, which is cancelled when the attempt ends."""
        self._timers.append(timer)

    def stop_timers(self) -> None:
        """Cancels the attempt's timers."""
        for timer in self._timers:
            timer.cancel()


class Attempts:
    """A table from which every attempt is reported once: it leaves the table with its report."""

    def __init__(self, on_report: OnReport, on_log: OnLog) -> None:
        self._on_report = on_report
        self._on_log = on_log
        self._running: dict[int, Running] = {}

    def add(self, assignment: Assignment) -> Running:
        """Adds an attempt."""
        running = self._running[assignment.token] = Running(assignment)
        return running

    def get(self, attempt: AttemptKey) -> Running | None:
        """The attempt, unless it was reported already."""
        return self._running.get(attempt[1])

    def on_host(self, host: HostProcess) -> list[Running]:
        """The attempts that were sent to this host and have not ended."""
        return [running for running in self._running.values() if running.host is host]

    def sent(self, running: Running, host: HostProcess, expire: Callable[[Report], None]) -> None:
        """Starts the attempt's timeout; after it, calls `expire` with the report."""
        running.host = host
        assignment = running.assignment
        if assignment.timeout_s is not None:
            loop = asyncio.get_running_loop()
            report = timed_out(assignment, assignment.timeout_s)
            running.keep(loop.call_later(assignment.timeout_s, expire, report))

    def end(self, report: Report) -> None:
        """Reports an attempt, unless it was reported already."""
        running = self._running.pop(report.token, None)
        if running is not None:
            running.stop_timers()
            self._on_report(report)

    def log(self, entry: LogEntry) -> None:
        """Passes on what an attempt says, until its end is reported."""
        if entry.token in self._running:
            self._on_log(entry)

    def clear(self) -> None:
        """Forgets every attempt without a report."""
        for running in self._running.values():
            running.stop_timers()
        self._running.clear()


def timed_out(assignment: Assignment, timeout_s: float) -> Report:
    """The report of an attempt that took too long."""
    message = f"took longer than its timeout of {timeout_s:g} s"
    return FailureReport(*assignment.key, JobError(Reason.TIMED_OUT, message))


def crashed(assignment: Assignment, message: str) -> Report:
    """The report of an attempt whose process died."""
    return CrashReport(*assignment.key, JobError(Reason.CRASHED, message))


def released(assignment: Assignment) -> Report:
    """The report of an attempt that is handed back through no fault of its own."""
    return ReleaseReport(*assignment.key)
