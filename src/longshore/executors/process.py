"""Runs plain `def` jobs, each alone in a child process that is kept for the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from longshore.errors import LongshoreError
from longshore.executors.attempts import Running, crashed, released
from longshore.executors.frames import (
    Run,
)
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import HostedExecutor, Hosting
from longshore.executors.scratch import discard
from longshore.model.attempt import AttemptKey
from longshore.model.reports import Report
from longshore.model.worker import Pool
from longshore.ports import OnLog, OnReport

REPEAT_INTERRUPT_S = 0.2

_log = logging.getLogger(__name__)


class ProcessExecutor(HostedExecutor):
    """Up to `slots` hosts, started on demand and kept; each runs one attempt at a time.

    A host in which an attempt was aborted is killed with everything the attempt started: an
    exception at an arbitrary place may have left anything behind.
    """

    pool = Pool.PROCESS

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._hosts: dict[HostProcess, Running | None] = {}
        self._idle: list[HostProcess] = []
        self._growing: set[asyncio.Task[None]] = set()
        self._grow_again: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Ends every host and waits until it is gone; what still runs is killed, not reported."""
        self._attempts.clear()
        self._unsent.clear()
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
            *(host.end() for host in busy),
            *(host.finish(self._hosting.abort_grace_s) for host in idle),
        )

    def _place(self) -> None:
        while self._unsent and self._idle:
            self._give(self._idle.pop(), next(iter(self._unsent.values())))
        wanted = len(self._unsent) - len(self._growing)
        room = self.slots - len(self._hosts) - len(self._growing)
        if self._grow_again is None:
            for _ in range(min(wanted, room)):
                self._grow()

    def _give(self, host: HostProcess, running: Running) -> None:
        # A host that died while it was idle must not be blamed on the attempt.
        if host.send(Run((running.assignment,))):
            del self._unsent[running.assignment.token]
            self._hosts[host] = running
            self._attempts.sent(running, host, self.abort)

    def _aborting(self, running: Running, host: HostProcess) -> None:
        """Until the attempt has ended: a signal that overtook its frame was not understood."""
        host.interrupt()
        timer = self._loop.call_later(REPEAT_INTERRUPT_S, self._aborting, running, host)
        running.keep(timer)

    def _kill_hosts(self) -> None:
        for host, given in self._hosts.items():
            if given is not None:
                given.abort_report = given.abort_report or released(given.assignment)
                host.kill()

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        host.kill()

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
            discard(self._hosting.scratch, [running.assignment.key])
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
        host = await self._new_host()
        self._hosts[host] = None
        self._idle.append(host)

    async def _add_host_or_hand_back(self) -> None:
        try:
            await self._add_host()
        except LongshoreError as error:
            _log.error("no host could be started: %s", error)
            self._hold_growth()
            if self._unsent:
                running = self._unsent.pop(next(iter(self._unsent)))
                self._attempts.end(released(running.assignment))

    def _hold_growth(self) -> None:
        if self._grow_again is None:
            self._grow_again = self._loop.call_later(self._restarts.pause_s(), self._resume_growth)

    def _resume_growth(self) -> None:
        self._grow_again = None
        self._place()
