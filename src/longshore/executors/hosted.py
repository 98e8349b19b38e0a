"""What executors have in common that run jobs in host processes: what waits, aborts, new hosts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, assert_never

from msgspec import Struct

from longshore.executors.attempts import Attempts, Running, released
from longshore.executors.frames import Abort, Ended, FromHost, Loaded, LoadFailed, Said, Stopped
from longshore.executors.host_process import HostProcess
from longshore.executors.restarts import Restarts
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.log import LogLimits
from longshore.model.reports import Report
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnLog, OnReport


class Hosting(Struct, frozen=True):
    """How hosts are started and stopped, and of which app."""

    app: str
    abort_grace_s: float = 5.0
    start_timeout_s: float = 60.0
    scratch: str = ""
    log_limits: LogLimits = LogLimits()


class HostedExecutor(ABC):
    """Runs attempts in hosts. An attempt that does not stop within the abort grace costs a host."""

    pool: ClassVar[Pool]

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        self.slots = slots
        self.kinds: dict[str, KindInfo] = {}
        self._hosting = hosting
        self._attempts = Attempts(on_report, on_log)
        self._unsent: dict[int, Running] = {}
        """The attempts that were sent to no host yet, by token."""
        self._restarts = Restarts()

    async def open(self) -> None:
        """Starts a host and learns the app's kinds; raises `AppError` if it cannot be loaded."""
        self._loop = asyncio.get_running_loop()
        await self._add_host()

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt, as soon as there is a host for it."""
        self._unsent[assignment.token] = self._attempts.add(assignment)
        self._place()

    def abort(self, report: Report) -> None:
        """Stops an attempt; kills its host if it does not end within the abort grace."""
        running = self._attempts.get(report.key)
        if running is None or running.abort_report is not None:
            return
        running.abort_report = report
        if running.host is None:
            del self._unsent[report.token]
            self._loop.call_soon(self._attempts.end, report)
        else:
            running.host.send(Abort((report.key,)))
            running.keep(self._loop.call_later(self._hosting.abort_grace_s, running.host.kill))
            self._aborting(running, running.host)

    def kill(self) -> None:
        """Kills everything at once; what was not aborted already is handed back."""
        for running in list(self._unsent.values()):
            self.abort(released(running.assignment))
        self._kill_hosts()

    def _receive(self, host: HostProcess, message: FromHost) -> None:
        match message:
            case Ended(reports=reports):
                for report in reports:
                    self._ended(host, report)
            case Stopped(attempts=attempts):
                self._stopped(host, attempts)
            case Said(entries=entries):
                for entry in entries:
                    self._attempts.log(entry)
            case Loaded() | LoadFailed():
                pass
            case _:
                assert_never(message)

    async def _new_host(self) -> HostProcess:
        self._restarts.note_start()
        hosting = self._hosting
        host = HostProcess(hosting.app, self.pool, self._receive, self._host_gone, hosting.scratch)
        self.kinds = await host.load(hosting.start_timeout_s, hosting.log_limits)
        return host

    @abstractmethod
    async def _add_host(self) -> None:
        """Starts a host, and has it take part."""

    @abstractmethod
    def _place(self) -> None:
        """Sends attempts to hosts that can take them."""

    @abstractmethod
    def _aborting(self, running: Running, host: HostProcess) -> None:
        """An attempt was told to stop."""

    @abstractmethod
    def _kill_hosts(self) -> None:
        """Kills every host that runs something."""

    @abstractmethod
    def _ended(self, host: HostProcess, report: Report) -> None:
        """A host says that an attempt ended."""

    @abstractmethod
    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        """A host says that aborted attempts stopped."""

    @abstractmethod
    def _host_gone(self, host: HostProcess) -> None:
        """A host's process is gone, with whatever was in it."""
