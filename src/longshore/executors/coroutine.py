"""Runs `async def` jobs, all of them in one host process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from longshore.errors import LongshoreError
from longshore.executors.attempts import Running, crashed, released
from longshore.executors.frames import (
    Run,
    portions,
)
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import HostedExecutor, Hosting
from longshore.executors.scratch import discard
from longshore.model.attempt import AttemptKey
from longshore.model.reports import Report
from longshore.model.worker import Pool
from longshore.ports import OnLog, OnReport

_log = logging.getLogger(__name__)


class CoroutineExecutor(HostedExecutor):
    """One host with up to `slots` coroutines in it.

    An attempt that does not stop within the abort grace takes its host down: the others in it are
    handed back, and a new host is started.
    """

    pool = Pool.COROUTINE

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._is_flush_due = False
        self._host: HostProcess | None = None
        self._restarting: asyncio.Task[None] | None = None

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
            await (host.end() if is_busy else host.finish(self._hosting.abort_grace_s))

    def _place(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

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

    def _ended(self, host: HostProcess, report: Report) -> None:
        self._attempts.end(report)

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        for attempt in attempts:
            running = self._attempts.get(attempt)
            if running is not None and running.abort_report is not None:
                self._attempts.end(running.abort_report)

    def _aborting(self, running: Running, host: HostProcess) -> None:
        """A coroutine is cancelled by its host, which needs no signal."""

    def _kill_hosts(self) -> None:
        if self._host is not None:
            self._host.kill()

    def _host_gone(self, host: HostProcess) -> None:
        if host is not self._host:
            return
        self._host = None
        self._restarting = self._loop.create_task(self._restart())
        left = self._attempts.on_host(host)
        if left or not host.was_killed:
            jobs = "1 job" if len(left) == 1 else f"{len(left)} jobs"
            _log.warning("host %d %s, with %s in it", host.pid, host.ending, jobs)
        discard(self._hosting.scratch, [running.assignment.key for running in left])
        for running in left:
            self._attempts.end(running.abort_report or _verdict(running, host, len(left)))

    async def _restart(self) -> None:
        while self._host is None:
            await self._restarts.pause()
            try:
                await self._add_host()
            except LongshoreError as error:
                _log.error("no host could be started: %s", error)
                self._hand_back_unsent()
        self._flush()

    async def _add_host(self) -> None:
        self._host = await self._new_host()

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
