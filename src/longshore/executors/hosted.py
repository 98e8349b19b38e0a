"""What executors have in common that run attempts in host processes.

An attempt waits in `_unsent` until a host takes it. `shared` has the executors of one host that
runs all attempts at once, `process` that of several hosts which run one attempt at a time.

An attempt is told to stop by a frame. If it has not ended within the abort grace, its host is
killed, and the other attempts in that host are handed back: they are not to blame. If a host dies
of itself, the attempts that ran in it have crashed.

Attempts that arrive together are placed together: `start` only asks for a `_place` soon.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, assert_never

from msgspec import Struct

from longshore.executors.attempts import Attempts, Running, crashed, released
from longshore.executors.frames import (
    Abort,
    Began,
    Ended,
    FromHost,
    Held,
    Load,
    Loaded,
    LoadFailed,
    ProgramTerms,
    Said,
    Stopped,
)
from longshore.executors.host_process import HostProcess, start_host
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
    max_jobs: int = 0
    """A process that runs one attempt at a time is replaced after so many; 0 is never."""
    max_mb: int = 0
    """Such a process is replaced when its resident memory is larger; 0 is never."""
    programs: ProgramTerms = ProgramTerms()
    scratch_lock: int | None = None
    """The descriptor that keeps `scratch` from being removed: who outlives the agent has it too."""


class HostedExecutor(ABC):
    """Runs the attempts of one pool in hosts. A subclass says which pool, and what hosts it has."""

    pool: ClassVar[Pool]
    has_queues: ClassVar[bool] = False
    """Whether attempts can wait in its hosts."""
    keeps_time: ClassVar[bool] = True
    """Whether it stops attempts at their timeouts. Otherwise their host does."""
    closes_busy_hosts: ClassVar[bool] = False
    """Whether a host must end by itself, because it has programs to kill."""

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        self.slots = slots
        self.kinds: dict[str, KindInfo] = {}
        self._hosting = hosting
        self._attempts = Attempts(on_report, on_log, self.abort if self.keeps_time else None)
        self._unsent: dict[int, Running] = {}
        """The attempts that were sent to no host yet, by token."""
        self._hosts: set[HostProcess] = set()
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
        self._before_abort(running)
        if running.host is None:
            del self._unsent[report.token]
            self._loop.call_soon(self._attempts.end, report)
        else:
            running.host.send(Abort((report.key,)))
            running.keep(self._loop.call_later(self._patience_s, running.host.kill))
            self._aborting(running, running.host)

    @property
    def _patience_s(self) -> float:
        """How long after an abort a host is killed if the attempt has not ended."""
        return self._hosting.abort_grace_s

    def kill(self) -> None:
        """Kills everything at once, and hands back the attempts that were not aborted already."""
        for running in list(self._unsent.values()):
            self.abort(released(running.assignment))
        for host in self._hosts:
            if self._is_to_kill(host):
                host.kill()

    async def close(self) -> None:
        """Ends every host and waits until it is gone; what still runs is killed, not reported."""
        self._is_closed = True
        hosts = {host: bool(self._attempts.on_host(host)) for host in self._hosts}
        self._attempts.clear()
        self._unsent.clear()
        self._hosts.clear()
        self._forget_hosts()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        grace_s = self._hosting.abort_grace_s
        ends = (
            host.end() if busy and not self.closes_busy_hosts else host.finish(grace_s)
            for host, busy in hosts.items()
        )
        await asyncio.gather(*ends)

    # attempts and their hosts

    def _place_soon(self) -> None:
        if not self._is_place_due:
            self._is_place_due = True
            self._loop.call_soon(self._place)

    def _place(self) -> None:
        """Sends attempts to the hosts that can take them, then starts hosts for the others."""
        self._is_place_due = False
        if self._is_closed:
            return
        self._send_unsent()
        if self._pause is None:
            for _ in range(self._missing_hosts()):
                task = self._loop.create_task(self._add_host_or_hand_back())
                self._starting.add(task)
                task.add_done_callback(self._started)

    @abstractmethod
    def _send_unsent(self) -> None:
        """Sends as many attempts as the hosts can take."""

    @abstractmethod
    def _missing_hosts(self) -> int:
        """How many hosts to start now."""

    @abstractmethod
    def _open_host(self, host: HostProcess) -> None:
        """A host has loaded the app, and can take attempts."""

    @abstractmethod
    def _forget_hosts(self) -> None:
        """The executor closes: none of its hosts gets anything any more."""

    @abstractmethod
    def _ended(self, host: HostProcess, ended: Ended) -> None:
        """A host says that attempts ended by themselves."""

    @abstractmethod
    def _most_handed_back(self) -> int:
        """How many attempts to hand back because a host for them could not be started."""

    @abstractmethod
    def _host_gone(self, host: HostProcess) -> None:
        """A host has ended, and all that it said has been handled."""

    def _is_to_kill(self, host: HostProcess) -> bool:
        """Whether `kill` must end this host."""
        return True

    def _before_abort(self, running: Running) -> None:  # noqa: B027
        """Called before an attempt is told to stop."""

    def _aborting(self, running: Running, host: HostProcess) -> None:  # noqa: B027
        """Called when an attempt was told to stop."""

    def _receive(self, host: HostProcess, messages: list[FromHost]) -> None:
        for message in messages:
            match message:
                case Ended():
                    self._ended(host, message)
                case Began(token=token):
                    self._began_late(token)
                case Stopped(attempts=attempts):
                    self._stopped(host, attempts)
                case Said(entries=entries):
                    for entry in entries:
                        self._attempts.log(entry)
                case Loaded() | LoadFailed() | Held():
                    pass
                case _:
                    assert_never(message)

    def _began_late(self, token: int) -> None:  # noqa: B027
        """Called when a host says that an attempt, which it has had for a while, begins now."""

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
        load = Load(
            hosting.app,
            hosting.scratch,
            hosting.log_limits,
            self.slots,
            hosting.max_jobs,
            hosting.max_mb,
            hosting.programs,
        )
        host = start_host(
            self.pool,
            self._receive,
            self._host_gone,
            has_queue=self.has_queues,
            inherits=self._inherited(),
        )
        self.kinds = await host.load(load, hosting.start_timeout_s)
        self._hosts.add(host)
        self._open_host(host)

    def _inherited(self) -> Sequence[int]:
        """The descriptors that a host keeps open."""
        return ()

    async def _add_host_or_hand_back(self) -> None:
        try:
            await self._add_host()
        except Exception as error:
            # Any error: without a pause the executor would try again and again.
            _log.error("a host could not be started: %s", error)
            self._pause_starts()
            for token in list(islice(self._unsent, self._most_handed_back())):
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

    def _judge(self, host: HostProcess, left: Sequence[Running]) -> None:
        """Reports the attempts that ran in a host when it ended."""
        discard(self._hosting.scratch, [running.assignment.key for running in left])
        for running in left:
            self._attempts.end(running.abort_report or _verdict(running, host, len(left)))


def _verdict(running: Running, host: HostProcess, count: int) -> Report:
    if host.was_killed:
        return released(running.assignment)
    if count == 1:
        return crashed(running.assignment, f"the job's process {host.ending}")
    return crashed(
        running.assignment,
        f"the process {host.ending}; {count} jobs shared it, which of them did it is not known",
    )
