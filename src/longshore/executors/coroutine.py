"""Runs `async def` jobs, all of them in one host process."""

from __future__ import annotations

import asyncio
import contextlib
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
    portions,
)
from longshore.executors.host_process import HostProcess
from longshore.executors.restarts import Restarts
from longshore.executors.scratch import discard
from longshore.model.attempt import Assignment, AttemptKey, Report
from longshore.model.log import LogLimits
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnLog, OnReport

_log = logging.getLogger(__name__)


class CoroutineExecutor:
    """One host with up to `slots` coroutines in it.

    An attempt that does not stop within the abort grace takes its host down: the others in it are
    handed back, and a new host is started.
    """

    def __init__(
        self,
        app: str,
        slots: int,
        on_report: OnReport,
        on_log: OnLog,
        *,
        abort_grace_s: float = 5.0,
        start_timeout_s: float = 60.0,
        scratch: str = "",
        log_limits: LogLimits | None = None,
    ) -> None:
        self.slots = slots
        self.kinds: dict[str, KindInfo] = {}
        self._app = app
        self._abort_grace_s = abort_grace_s
        self._start_timeout_s = start_timeout_s
        self._scratch = scratch
        self._log_limits = log_limits or LogLimits()
        self._attempts = Attempts(on_report, on_log)
        self._unsent: dict[int, Running] = {}
        self._is_flush_due = False
        self._host: HostProcess | None = None
        self._restarts = Restarts()
        self._restarting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts the host and learns the app's kinds; raises `AppError` if it cannot be loaded."""
        self._loop = asyncio.get_running_loop()
        self._host = await self._started_host()

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt, as soon as there is a host."""
        self._unsent[assignment.token] = self._attempts.add(assignment)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def abort(self, attempt: AttemptKey, report: Report) -> None:
        """Cancels an attempt; its host is killed if it does not end within the abort grace."""
        running = self._attempts.get(attempt)
        if running is None or running.abort_report is not None:
            return
        assert report.key == attempt
        running.abort_report = report
        if running.host is None:
            del self._unsent[attempt[1]]
            self._loop.call_soon(self._attempts.end, report)
        else:
            running.host.send(Abort((attempt,)))
            running.keep(self._loop.call_later(self._abort_grace_s, running.host.kill))

    def kill(self) -> None:
        """Kills everything at once; what was not aborted already is handed back."""
        for running in list(self._unsent.values()):
            self.abort(running.assignment.key, released(running.assignment))
        if self._host is not None:
            self._host.kill()

    async def close(self) -> None:
        """Ends the host and waits until it is gone; what still runs is killed, and not reported."""
        host, self._host = self._host, None
        is_busy = host is not None and bool(self._attempts.on_host(host))
        self._attempts.clear()
        self._unsent.clear()
        task, self._restarting = self._restarting, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if host is not None:
            await (host.end() if is_busy else host.finish(self._abort_grace_s))

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._host is None or not self._unsent:
            return
        for part in portions(list(self._unsent.values())):
            if not self._host.send(Run([running.assignment for running in part])):
                return  # the next host gets them
            for running in part:
                del self._unsent[running.assignment.token]
                self._attempts.sent(running, self._host, self.abort)

    def _receive(self, host: HostProcess, message: FromHost) -> None:
        match message:
            case Ended(reports=reports):
                for report in reports:
                    self._attempts.end(report)
            case Stopped(attempts=attempts):
                for attempt in attempts:
                    self._end_aborted(attempt)
            case Said(entries=entries):
                for entry in entries:
                    self._attempts.log(entry)
            case Loaded() | LoadFailed():
                pass
            case _:
                assert_never(message)

    def _end_aborted(self, attempt: AttemptKey) -> None:
        running = self._attempts.get(attempt)
        if running is not None and running.abort_report is not None:
            self._attempts.end(running.abort_report)

    def _host_gone(self, host: HostProcess) -> None:
        if host is not self._host:
            return
        self._host = None
        self._restarting = self._loop.create_task(self._restart())
        left = self._attempts.on_host(host)
        if left or not host.was_killed:
            jobs = "1 job" if len(left) == 1 else f"{len(left)} jobs"
            _log.warning("host %d %s, with %s in it", host.pid, host.ending, jobs)
        discard(self._scratch, [running.assignment.key for running in left])
        for running in left:
            self._attempts.end(running.abort_report or _verdict(running, host, len(left)))

    async def _restart(self) -> None:
        while self._host is None:
            await self._restarts.pause()
            try:
                self._host = await self._started_host()
            except LongshoreError as error:
                _log.error("no host could be started: %s", error)
                self._hand_back_unsent()
        self._flush()

    async def _started_host(self) -> HostProcess:
        self._restarts.note_start()
        host = HostProcess(self._app, Pool.COROUTINE, self._receive, self._host_gone, self._scratch)
        self.kinds = await host.load(self._start_timeout_s, self._log_limits)
        return host

    def _hand_back_unsent(self) -> None:
        batch, self._unsent = self._unsent, {}
        for running in batch.values():
            self._attempts.end(released(running.assignment))


def _verdict(running: Running, host: HostProcess, count: int) -> Report:
    if host.was_killed:
        return released(running.assignment)
    if count == 1:
        return crashed(running.assignment, f"the job's process {host.ending}")
    return crashed(
        running.assignment,
        f"the process {host.ending}; {count} jobs shared it, which of them did it is not known",
    )
