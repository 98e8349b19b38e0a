"""A stand that plays the agent: it starts attempts and waits for what is said of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from longshore.executors.coroutine import CoroutineExecutor
from longshore.executors.frames import ProgramTerms
from longshore.executors.hosted import Hosting
from longshore.executors.process import ProcessExecutor
from longshore.executors.program import CommandExecutor
from longshore.executors.thread import ThreadExecutor
from longshore.model.job import JobError, LogEntry, LogKind, Progress
from longshore.model.log import unpack_line
from longshore.model.reports import CancelReport, CrashReport, FailureReport, Report, SuccessReport
from longshore.payload.values import pack, unpack
from longshore.wire.messages import Assignment

APP = "jobs_app:app"


class Stand:
    """An executor, and everything it said."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.logs: list[LogEntry] = []
        self.executor: CoroutineExecutor | ProcessExecutor | ThreadExecutor | CommandExecutor
        self.begun: list[int] = []
        """The tokens of attempts that a child executor said began, in order."""
        self._said = asyncio.Event()
        self._token = 0

    async def open_coroutine(
        self, slots: int = 100, app: str = APP, **options: Any
    ) -> CoroutineExecutor:
        """A coroutine executor, open."""
        executor = CoroutineExecutor(Hosting(app, **options), slots, self._on_report, self._on_log)
        await executor.open()
        self.executor = executor
        return executor

    async def open_child(
        self, processes: int = 1, app: str = APP, **options: Any
    ) -> ProcessExecutor:
        """A child executor, open."""
        executor = ProcessExecutor(
            Hosting(app, **options), processes, self._on_report, self._on_log
        )
        executor.on_begun = self._on_begun
        await executor.open()
        self.executor = executor
        return executor

    async def open_thread(
        self, threads: int = 32, app: str = APP, **options: Any
    ) -> ThreadExecutor:
        """A thread executor, open."""
        executor = ThreadExecutor(Hosting(app, **options), threads, self._on_report, self._on_log)
        await executor.open()
        self.executor = executor
        return executor

    async def open_command(
        self, slots: int = 4, app: str = "", exec: bool = True, **options: Any
    ) -> CommandExecutor:
        """A command executor, open; without an app it runs what submitters choose."""
        grace_s = options.setdefault("abort_grace_s", 0.5)
        terms = ProgramTerms(exec=exec, grace_s=grace_s, secrets=options.pop("secrets", ""))
        hosting = Hosting(app, programs=terms, **options)
        executor = CommandExecutor(hosting, slots, self._on_report, self._on_log)
        await executor.open()
        self.executor = executor
        return executor

    def start(self, kind: str, *, timeout_s: float | None = None, **args: Any) -> Assignment:
        """An attempt, begun."""
        return self.start_packed(kind, pack(args, "args"), timeout_s=timeout_s)

    def start_packed(
        self,
        kind: str,
        args: bytes,
        *,
        timeout_s: float | None = None,
        raw: bool = False,
        failures: int = 0,
    ) -> Assignment:
        """An attempt with any bytes as arguments, begun."""
        self._token += 1
        number = self._token + 1000
        assignment = Assignment(
            uuid4(), self._token, number, kind, args, timeout_s, 1, raw, failures=failures
        )
        self.executor.start(assignment)
        return assignment

    def start_short(self, kind: str, *, timeout_s: float | None = None, **args: Any) -> Assignment:
        """An attempt that may wait in the queue of a process."""
        assert isinstance(self.executor, ProcessExecutor)
        self._token += 1
        assignment = Assignment(
            uuid4(), self._token, self._token + 1000, kind, pack(args, "args"), timeout_s
        )
        self.executor.start_short(assignment)
        return assignment

    async def run(
        self, kind: str, *, timeout_s: float | None = None, failures: int = 0, **args: Any
    ) -> Report:
        """The report of an attempt, before which so many have failed."""
        packed = pack(args, "args")
        started = self.start_packed(kind, packed, timeout_s=timeout_s, failures=failures)
        return await self.report_of(started)

    async def result(self, kind: str, **args: Any) -> Any:
        """What an attempt returns, if all is well."""
        return result_of(await self.run(kind, **args))

    async def report_of(self, assignment: Assignment) -> Report:
        """The one report of an attempt, when it is there."""
        while not (found := [r for r in self.reports if r.key == assignment.key]):
            await self._news()
        assert len(found) == 1
        return found[0]

    async def words_of(self, assignment: Assignment) -> list[LogEntry]:
        """What an attempt says first, of any kind, when it does."""
        while not (said := self.said_by(assignment)):
            await self._news()
        return said

    async def step_of(self, assignment: Assignment) -> str:
        """The first step an attempt says it takes, when it does."""
        while not (steps := self.said_by(assignment, LogKind.STEP)):
            await self._news()
        return unpack_line(steps[0].data).text

    async def progress_of(self, assignment: Assignment, done: float) -> Progress:
        """The progress with this amount done, when it is told."""
        while True:
            for entry in self.said_by(assignment, LogKind.PROGRESS):
                progress = msgspec.msgpack.decode(entry.data, type=Progress)
                if progress.done == done:
                    return progress
            await self._news()

    def said_by(self, assignment: Assignment, kind: LogKind | None = None) -> list[LogEntry]:
        """What an attempt said so far."""
        return [
            entry
            for entry in self.logs
            if (entry.job, entry.token) == assignment.key and kind in (None, entry.kind)
        ]

    def abort(self, assignment: Assignment) -> Report:
        """Aborts an attempt, with the report that is answered here."""
        report = CancelReport(*assignment.key)
        self.executor.abort(report)
        return report

    async def _news(self) -> None:
        self._said.clear()
        await self._said.wait()

    def _on_report(self, report: Report, took_s: float | None = None, /) -> None:
        self.reports.append(report)
        self._said.set()

    def _on_begun(self, token: int, ago_s: float) -> None:
        assert ago_s >= 0
        self.begun.append(token)
        self._said.set()

    def _on_log(self, entry: LogEntry) -> None:
        self.logs.append(entry)
        self._said.set()


def result_of(report: Report) -> Any:
    """The value in a report of success."""
    assert isinstance(report, SuccessReport), report
    assert report.result is not None
    return unpack(report.result)


def error_of(report: Report) -> JobError:
    """The error in a report of a failure or a crash."""
    assert isinstance(report, FailureReport | CrashReport), report
    return report.error


def failure_in(report: Report) -> FailureReport:
    """A report that is one of a failure."""
    assert isinstance(report, FailureReport), report
    return report


not_ours: set[int] = set()
"""Servers that tests of other folders started: they last as long as the whole run."""


def children() -> list[int]:
    """This process's own children, remains of dead ones included."""
    mine = [pid for pid in _all_pids() if _status(pid)[1:2] == [str(os.getpid())]]
    return [pid for pid in mine if pid not in not_ours]


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and not only its remains."""
    return _status(pid)[:1] not in ([], ["Z"], ["X"])


def wait_gone(pid: int) -> None:
    """Returns when the process is not alive any more."""
    while is_alive(pid):
        os.sched_yield()


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _status(pid: int) -> list[str]:
    """State, parent and more of a process; nothing if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
