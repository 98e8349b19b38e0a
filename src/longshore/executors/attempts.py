"""The attempts an executor has been given and has not reported yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final

import msgspec

from longshore.core.turns import turn_called
from longshore.executors.host_process import HostProcess
from longshore.model.actor import TurnInput
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import JobError, LogEntry, Reason
from longshore.model.reports import CrashReport, FailureReport, ReleaseReport, Report
from longshore.ports import OnLog, OnReport

_turn_input: Final = msgspec.msgpack.Decoder(TurnInput)


class Running:
    """One attempt: the host it was sent to, and its report once an abort has stopped it."""

    __slots__ = ("_timers", "abort_report", "assignment", "began_at", "host", "may_wait")

    def __init__(self, assignment: Assignment, may_wait: bool = False) -> None:
        self.assignment = assignment
        self.may_wait = may_wait
        """Whether it may be sent to a host that is busy, to begin there when its turn comes."""
        self.host: HostProcess | None = None
        self.began_at: float | None = None
        self.abort_report: Report | None = None
        self._timers: tuple[asyncio.TimerHandle, ...] = ()

    @property
    def expires_at(self) -> float | None:
        """When its time is over, once it has begun."""
        if self.assignment.timeout_s is None or self.began_at is None:
            return None
        return self.began_at + self.assignment.timeout_s

    def keep(self, timer: asyncio.TimerHandle) -> None:
        """Keeps a timer, which is cancelled when the attempt ends."""
        self._timers += (timer,)

    def stop_timers(self) -> None:
        """Cancels the attempt's timers."""
        for timer in self._timers:
            timer.cancel()


class Attempts:
    """A table from which every attempt is reported once: it leaves the table with its report.

    `expire` is called with the report of an attempt whose time is over. One timer serves all.
    Without it, hosts look after the time of their attempts.
    """

    def __init__(
        self, on_report: OnReport, on_log: OnLog, expire: Callable[[Report], None] | None
    ) -> None:
        self._on_report = on_report
        self._on_log = on_log
        self._expire = expire
        self._running: dict[int, Running] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def add(self, assignment: Assignment, may_wait: bool = False) -> Running:
        """Adds an attempt."""
        running = self._running[assignment.token] = Running(assignment, may_wait)
        return running

    def get(self, attempt: AttemptKey) -> Running | None:
        """The attempt, unless it was reported already."""
        return self._running.get(attempt[1])

    def of(self, token: int) -> Running | None:
        """The attempt with this token, unless it was reported already."""
        return self._running.get(token)

    def on_host(self, host: HostProcess) -> list[Running]:
        """The attempts that were sent to this host and have not ended."""
        return [running for running in self._running.values() if running.host is host]

    def began(self, running: Running, at: float) -> None:
        """An attempt began at that moment of the monotonic clock: its time runs from then on."""
        running.began_at = at
        if running.assignment.timeout_s is None or self._expire is None:
            return
        if (expires_at := running.expires_at) is not None and expires_at < self._timer_at:
            self._watch(expires_at)

    def end(self, report: Report, took_s: float | None = None) -> None:
        """Reports an attempt, unless it was reported already."""
        running = self._running.pop(report.token, None)
        if running is not None:
            running.stop_timers()
            self._on_report(report, took_s)

    def forget(self, token: int) -> None:
        """Removes an attempt without a report: it was taken back."""
        del self._running[token]

    def log(self, entry: LogEntry) -> None:
        """Passes on what an attempt says, until its end is reported."""
        if entry.token in self._running:
            self._on_log(entry)

    def clear(self) -> None:
        """Forgets every attempt without a report."""
        for running in self._running.values():
            running.stop_timers()
        self._running.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = inf

    def _watch(self, expires_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = expires_at
        delay = max(0.0, expires_at - monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._look_for_expired)

    def _look_for_expired(self) -> None:
        self._timer_at = inf
        now, next_at = monotonic(), inf
        for running in list(self._running.values()):
            expires_at = running.expires_at
            if expires_at is None or running.abort_report is not None:
                continue
            if expires_at <= now and self._expire is not None:
                self._expire(timed_out(running.assignment))
            else:
                next_at = min(next_at, expires_at)
        if next_at < self._timer_at:
            self._watch(next_at)


def timed_out(assignment: Assignment) -> Report:
    """The report of an attempt that took too long."""
    message = f"{_where(assignment)}took longer than its timeout of {assignment.timeout_s:g} s"
    return FailureReport(*assignment.key, JobError(Reason.TIMED_OUT, message))


def crashed(assignment: Assignment, message: str) -> Report:
    """The report of an attempt whose process died."""
    error = JobError(Reason.CRASHED, _where(assignment) + message)
    return CrashReport(*assignment.key, error)


def released(assignment: Assignment) -> Report:
    """The report of an attempt that is handed back through no fault of its own."""
    return ReleaseReport(*assignment.key)


def _where(assignment: Assignment) -> str:
    """Which events a turn had, so that its error names the one to blame; empty for other jobs.

    Only its host knew how far it came. After a failure a turn has one event.
    """
    if assignment.worker is None:
        return ""
    try:
        return f"{turn_called(_turn_input.decode(assignment.args).events)}: "
    except msgspec.DecodeError:
        return ""
