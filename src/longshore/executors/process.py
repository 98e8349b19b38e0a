"""Runs plain `def` jobs, each alone in a child process that is kept for the next one."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from longshore.errors import LongshoreError
from longshore.executors.attempts import Attempts, Running, crashed, released
from longshore.executors.frames import (
    Abort,
    Ended,
    FromHost,
    Loaded,
    LoadFailed,
    Run,
    Said,
    Stopped,
)
from longshore.executors.host_process import HostProcess
from longshore.executors.restarts import Restarts
from longshore.executors.scratch import discard
from longshore.model.attempt import Assignment, AttemptKey, Report
from longshore.model.log import LogLimits
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnLog, OnReport

REPEAT_INTERRUPT_S = 0.2

_log = logging.getLogger(__name__)


class ProcessExecutor:
    """Up to `processes` hosts, started on demand and kept; each runs one attempt at a time.

    A host in which an attempt was aborted is killed with everything the attempt started: an
    exception at an arbitrary place may have left anything behind.
    """

    def __init__(
        self,
        app: str,
        processes: int,
        on_report: OnReport,
        on_log: OnLog,
        *,
        abort_grace_s: float = 5.0,
        start_timeout_s: float = 60.0,
        scratch: str = "",
        log_limits: LogLimits | None = None,
    ) -> None:
        self.slots = processes
        self.kinds: dict[str, KindInfo] = {}
        self._app = app
        self._abort_grace_s = abort_grace_s
        self._start_timeout_s = start_timeout_s
        self._scratch = scratch
        self._log_limits = log_limits or LogLimits()
        self._attempts = Attempts(on_report, on_log)
        self._waiting: dict[int, Running] = {}
        self._hosts: dict[HostProcess, Running | None] = {}
        self._idle: list[HostProcess] = []
        self._growing: set[asyncio.Task[None]] = set()
        self._restarts = Restarts()
        self._grow_again: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Starts one host and learns the app's kinds; raises `AppError` if it cannot be loaded."""
        self._loop = asyncio.get_running_loop()
        await self._add_host()

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt, as soon as there is a host for it."""
        self._waiting[assignment.token] = self._attempts.add(assignment)
        self._place()

    def abort(self, attempt: AttemptKey, report: Report) -> None:
        """Raises `Cancelled` in an attempt; its host is killed after that, or the abort grace."""
        running = self._attempts.get(attempt)
        if running is None or running.abort_report is not None:
            return
        assert report.key == attempt
        running.abort_report = report
        if running.host is None:
            del self._waiting[attempt[1]]
            self._loop.call_soon(self._attempts.end, report)
        else:
            running.host.send(Abort((attempt,)))
            running.keep(self._loop.call_later(self._abort_grace_s, running.host.kill))
            self._interrupt(running, running.host)

    def kill(self) -> None:
        """Kills every process with a job; what was not aborted already is handed back."""
        for running in list(self._waiting.values()):
            self.abort(running.assignment.key, released(running.assignment))
        for host, given in self._hosts.items():
            if given is not None:
                given.abort_report = given.abort_report or released(given.assignment)
                host.kill()

    async def close(self) -> None:
        """Ends every host and waits until it is gone; what still runs is killed, not reported."""
        self._attempts.clear()
        self._waiting.clear()
        self._idle.clear()
        if self._grow_again is not None:
            self._grow_again.cancel()
            self._grow_again = None
        busy = [host for host, given in self._hosts.items() if given is not None]
        idle = [host for host, given in self._hosts.items() if given is None]
        self._hosts.clear()
        for task in self._growing:
            task.cancel()
        await asyncio.gather(*self._growing, return_exceptions=True)
        await asyncio.gather(
            *(host.end() for host in busy), *(host.finish(self._abort_grace_s) for host in idle)
        )

    def _place(self) -> None:
        while self._waiting and self._idle:
            self._give(self._idle.pop(), next(iter(self._waiting.values())))
        wanted = len(self._waiting) - len(self._growing)
        room = self.slots - len(self._hosts) - len(self._growing)
        if self._grow_again is None:
            for _ in range(min(wanted, room)):
                self._grow()

    def _give(self, host: HostProcess, running: Running) -> None:
        # A host that died while it was idle must not be blamed on the attempt.
        if host.send(Run((running.assignment,))):
            del self._waiting[running.assignment.token]
            self._hosts[host] = running
            self._attempts.sent(running, host, self.abort)

    def _interrupt(self, running: Running, host: HostProcess) -> None:
        """Until the attempt has ended: a signal that overtook its frame was not understood."""
        host.interrupt()
        timer = self._loop.call_later(REPEAT_INTERRUPT_S, self._interrupt, running, host)
        running.keep(timer)

    def _receive(self, host: HostProcess, message: FromHost) -> None:
        match message:
            case Ended(reports=reports):
                for report in reports:
                    self._ended(host, report)
            case Stopped():
                host.kill()
            case Said(entries=entries):
                for entry in entries:
                    self._attempts.log(entry)
            case Loaded() | LoadFailed():
                pass
            case _:
                assert_never(message)

    def _ended(self, host: HostProcess, report: Report) -> None:
        if host not in self._hosts:
            return
        self._hosts[host] = None
        if not host.was_killed:
            self._idle.append(host)
        self._attempts.end(report)
        self._place()

    def _host_gone(self, host: HostProcess) -> None:
        if host not in self._hosts:
            return
        running = self._hosts.pop(host)
        if host in self._idle:
            self._idle.remove(host)
        if running is not None:
            discard(self._scratch, [running.assignment.key])
            message = f"the job's process {host.ending}"
            self._attempts.end(running.abort_report or crashed(running.assignment, message))
        self._place()

    def _grow(self) -> None:
        task = self._loop.create_task(self._add_host_or_hand_back())
        self._growing.add(task)
        task.add_done_callback(self._grown)

    def _grown(self, task: asyncio.Task[None]) -> None:
        self._growing.discard(task)
        self._place()

    async def _add_host(self) -> None:
        self._restarts.note_start()
        host = HostProcess(self._app, Pool.PROCESS, self._receive, self._host_gone, self._scratch)
        self.kinds = await host.load(self._start_timeout_s, self._log_limits)
        self._hosts[host] = None
        self._idle.append(host)

    async def _add_host_or_hand_back(self) -> None:
        try:
            await self._add_host()
        except LongshoreError as error:
            _log.error("no host could be started: %s", error)
            self._hold_growth()
            if self._waiting:
                running = self._waiting.pop(next(iter(self._waiting)))
                self._attempts.end(released(running.assignment))

    def _hold_growth(self) -> None:
        if self._grow_again is None:
            self._grow_again = self._loop.call_later(self._restarts.pause_s(), self._resume_growth)

    def _resume_growth(self) -> None:
        self._grow_again = None
        self._place()
