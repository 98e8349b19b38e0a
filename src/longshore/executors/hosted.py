"""What executors have in common that run attempts in host processes.

An attempt waits in `_unsent` until a host is open to it. A *shared* host is open to attempts for as
long as it lives (or until it retires, see `thread`): there is one, and the executor replaces it
whenever it ends. A host that is not shared runs one attempt at a time: there are up to `slots` of
them, started on demand and kept.

An attempt is told to stop by a frame. If it has not ended within the abort grace, its host is
killed, and the other attempts in that host are handed back: they are not to blame. If a host dies
of itself, every attempt in it has crashed.

Attempts that arrive together go to a shared host together: `start` only asks for a `_place` soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, assert_never

from msgspec import Struct

from longshore.executors.attempts import Attempts, Running, crashed, released
from longshore.executors.frames import (
    ITEMS_PER_FRAME,
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
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.log import LogLimits
from longshore.model.reports import Report
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnLog, OnReport

_log = logging.getLogger(__name__)


class Hosting(Struct, frozen=True):
    """Which app hosts load, and how they are started and stopped."""

    app: str
    abort_grace_s: float = 5.0
    start_timeout_s: float = 60.0
    scratch: str = ""
    log_limits: LogLimits = LogLimits()


class HostedExecutor:
    """Runs the attempts of one pool in hosts. A subclass says which pool, and what hosts it has."""

    pool: ClassVar[Pool]
    is_shared: ClassVar[bool]
    """Whether one host runs all attempts at once; otherwise each runs one at a time."""

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        self.slots = slots
        self.kinds: dict[str, KindInfo] = {}
        self._hosting = hosting
        self._attempts = Attempts(on_report, on_log)
        self._unsent: dict[int, Running] = {}
        """The attempts that were sent to no host yet, by token."""
        self._hosts: set[HostProcess] = set()
        self._open_hosts: list[HostProcess] = []
        """The hosts that can take an attempt now."""
        self._starting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        """Until it is over, no host is started."""
        self._restarts = Restarts()
        self._is_place_due = False
        self._is_closed = False

    async def open(self) -> None:
        """Starts a host and learns the app's kinds; raises `AppError` if it cannot be loaded."""
        self._prepare()
        await self._add_host()

    def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt, as soon as there is a host for it."""
        self._unsent[assignment.token] = self._attempts.add(assignment)
        self._place_soon()

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
        """Kills everything at once, and hands back the attempts that were not aborted already."""
        for running in list(self._unsent.values()):
            self.abort(released(running.assignment))
        for host in self._hosts:
            # A shared host may still run what attempts left behind that have ended.
            if self.is_shared or self._attempts.on_host(host):
                host.kill()

    async def close(self) -> None:
        """Ends every host and waits until it is gone; what still runs is killed, not reported."""
        self._is_closed = True
        hosts = {host: bool(self._attempts.on_host(host)) for host in self._hosts}
        self._attempts.clear()
        self._unsent.clear()
        self._hosts.clear()
        self._open_hosts.clear()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        grace_s = self._hosting.abort_grace_s
        ends = (host.end() if busy else host.finish(grace_s) for host, busy in hosts.items())
        await asyncio.gather(*ends)

    # attempts and their hosts

    def _place_soon(self) -> None:
        if not self.is_shared:
            self._place()
        elif not self._is_place_due:
            self._is_place_due = True
            self._loop.call_soon(self._place)

    def _place(self) -> None:
        """Sends attempts to the hosts that are open to them, then starts hosts for the others."""
        self._is_place_due = False
        while self._unsent and self._open_hosts:
            host = self._open_hosts[-1]
            most = ITEMS_PER_FRAME if self.is_shared else 1
            is_sent = self._send(host, list(islice(self._unsent.values(), most)))
            if not (is_sent and self.is_shared):
                self._open_hosts.pop()
        if self._pause is None and not self._is_closed:
            for _ in range(self._missing_hosts()):
                task = self._loop.create_task(self._add_host_or_hand_back())
                self._starting.add(task)
                task.add_done_callback(self._started)

    def _send(self, host: HostProcess, batch: Sequence[Running]) -> bool:
        # If the host has just died, nothing arrived: the attempts are for the next host.
        if not host.send(Run([running.assignment for running in batch])):
            return False
        for running in batch:
            del self._unsent[running.assignment.token]
            self._attempts.sent(running, host, self.abort)
        return True

    def _missing_hosts(self) -> int:
        there = len(self._hosts) + len(self._starting)
        if self.is_shared:
            return 1 - there
        return min(len(self._unsent) - len(self._starting), self.slots - there)

    def _is_replaced(self, host: HostProcess) -> bool:
        """Whether another host took the place of this shared one before it ended."""
        return False

    def _aborting(self, running: Running, host: HostProcess) -> None:
        """Called when an attempt was told to stop."""

    def _receive(self, host: HostProcess, message: FromHost) -> None:
        match message:
            case Ended(reports=reports):
                self._ended(host, reports)
            case Stopped(attempts=attempts):
                self._stopped(host, attempts)
            case Said(entries=entries):
                for entry in entries:
                    self._attempts.log(entry)
            case Loaded() | LoadFailed():
                pass
            case _:
                assert_never(message)

    def _ended(self, host: HostProcess, reports: Sequence[Report]) -> None:
        # First the host is open again: a report may bring the next attempt at once.
        if not self.is_shared and host in self._hosts and not host.was_killed:
            self._open_hosts.append(host)
        for report in reports:
            self._attempts.end(report)
        self._place_soon()

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        """Called when a host says that aborted attempts stopped."""
        for attempt in attempts:
            running = self._attempts.get(attempt)
            if running is not None and running.abort_report is not None:
                self._attempts.end(running.abort_report)

    # the life of hosts

    async def _add_host(self) -> None:
        self._restarts.note_start()
        hosting = self._hosting
        host = HostProcess(hosting.app, self.pool, self._receive, self._host_gone, hosting.scratch)
        self.kinds = await host.load(hosting.start_timeout_s, hosting.log_limits, self.slots)
        self._hosts.add(host)
        self._open_hosts.append(host)

    async def _add_host_or_hand_back(self) -> None:
        try:
            await self._add_host()
        except Exception as error:
            # Any error: without a pause the executor would try again and again.
            _log.error("a host could not be started: %s", error)
            self._pause_starts()
            for token in list(islice(self._unsent, self.slots if self.is_shared else 1)):
                self._attempts.end(released(self._unsent.pop(token).assignment))

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        self._place_soon()

    def _pause_starts(self) -> None:
        if self._pause is None:
            self._pause = self._loop.call_later(self._restarts.pause_s(), self._resume_starts)

    def _resume_starts(self) -> None:
        self._pause = None
        self._place()

    def _host_gone(self, host: HostProcess) -> None:
        if host not in self._hosts:
            return
        self._hosts.remove(host)
        if host in self._open_hosts:
            self._open_hosts.remove(host)
        left = self._attempts.on_host(host)
        if self.is_shared:
            if not self._is_replaced(host):
                self._pause_starts()
            if left or not host.was_killed:
                jobs = "1 job" if len(left) == 1 else f"{len(left)} jobs"
                _log.warning("host %d %s, with %s in it", host.pid, host.ending, jobs)
        discard(self._hosting.scratch, [running.assignment.key for running in left])
        for running in left:
            self._attempts.end(running.abort_report or _verdict(running, host, len(left)))
        self._place_soon()


def _verdict(running: Running, host: HostProcess, count: int) -> Report:
    if host.was_killed:
        return released(running.assignment)
    if count == 1:
        return crashed(running.assignment, f"the job's process {host.ending}")
    return crashed(
        running.assignment,
        f"the process {host.ending}; {count} jobs shared it, which of them did it is not known",
    )
