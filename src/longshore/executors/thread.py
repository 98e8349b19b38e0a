"""Runs plain `def` jobs in threads, all of them in one host process.

An abort raises an exception in a thread, and that may leave anything behind for the neighbours. So
the host *retires*: it gets no more attempts, and a new host takes its place at once, or with the
next attempt if the worker hands back its jobs. The host is killed when its last attempt has ended,
or at the end of the abort grace. Then an aborted attempt that would not stop is reported as such,
and neighbours that still ran are handed back.

A kind whose attempts would not stop `MOST_KILLS` times would have its neighbours handed back again
and again. So from then on its attempts have hosts of one thread each, apart from the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from longshore.executors.attempts import Running
from longshore.executors.frames import Ended, Run
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import HostedExecutor, Hosting
from longshore.executors.shared import SharedExecutor
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.reports import NotBegunReport, ReleaseReport, Report
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnLog, OnReport

MOST_KILLS: Final = 2
"""So many attempts of a kind may cost a shared host its life."""
LONE_HOSTS: Final = 8
"""So many hosts of one thread there are at most."""
NO_THREAD_PAUSE_S: Final = 1.0
"""So long an attempt keeps its slot after no thread could be started for it."""

_log = logging.getLogger(__name__)


class _ThreadHosts(HostedExecutor):
    """Hosts that run attempts in threads, and may have no room for another thread."""

    pool = Pool.THREAD

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._refused: set[int] = set()
        """The tokens of attempts for which no thread could be started."""

    def abort(self, report: Report) -> None:
        """Stops an attempt; one that no thread runs is reported at once."""
        if report.token in self._refused:
            self._loop.call_soon(self._hand_back, report)
        else:
            super().abort(report)

    def _ended(self, host: HostProcess, ended: Ended) -> None:
        for report in ended.reports:
            if isinstance(report, NotBegunReport):
                self._keep_a_while(report)
            if report.token not in self._refused:
                self._attempts.end(report)

    def _keep_a_while(self, report: Report) -> None:
        """Hands the attempt back after a pause: at once, the next one would come just as soon."""
        running = self._attempts.get(report.key)
        if running is not None and running.abort_report is None:
            text, about = "no thread can be started for job %s: it is handed back", report.job
            _log.warning(text, about, extra={"job": about})
            running.stop_timers()
            running.host = running.began_at = None
            self._refused.add(report.token)
            self._loop.call_later(NO_THREAD_PAUSE_S, self._hand_back, report)

    def _hand_back(self, report: Report) -> None:
        self._refused.discard(report.token)
        self._attempts.end(report)


class LoneThreads(_ThreadHosts):
    """Up to `slots` hosts of one thread each: a host that must be killed has nothing else in it."""

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._idle: list[HostProcess] = []

    async def open(self) -> None:
        """Starts no host before an attempt needs one."""
        self._prepare()

    def _send_unsent(self) -> None:
        for running in list(self._unsent.values()):
            while self._idle:
                host = self._idle.pop()
                if host.send(Run((running.assignment,))):
                    del self._unsent[running.assignment.token]
                    running.host = host
                    self._attempts.began(running, monotonic())
                    break

    def _missing_hosts(self) -> int:
        there = len(self._hosts) + len(self._starting)
        return min(len(self._unsent) - len(self._starting), self.slots - there)

    def _most_handed_back(self) -> int:
        return 1

    def _open_host(self, host: HostProcess) -> None:
        self._idle.append(host)

    def _forget_hosts(self) -> None:
        self._idle.clear()

    def _is_to_kill(self, host: HostProcess) -> bool:
        return bool(self._attempts.on_host(host))

    def _ended(self, host: HostProcess, ended: Ended) -> None:
        if host in self._hosts and not host.was_killed:
            self._idle.append(host)
        super()._ended(host, ended)
        self._place_soon()

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        host.kill()

    def _host_gone(self, host: HostProcess) -> None:
        if host not in self._hosts:
            return
        self._hosts.remove(host)
        if host in self._idle:
            self._idle.remove(host)
        self._judge(host, self._attempts.on_host(host))
        self._place_soon()


class ThreadExecutor(_ThreadHosts, SharedExecutor):
    """One open host with up to `slots` threads in it, and hosts that retire.

    `known_kinds` tells the app's kinds, which another executor has learned before this one opens:
    if none of them runs in threads, it starts no host.
    """

    def __init__(
        self,
        hosting: Hosting,
        slots: int,
        on_report: OnReport,
        on_log: OnLog,
        known_kinds: Callable[[], Mapping[str, KindInfo]] | None = None,
    ) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._known_kinds = known_kinds
        self._retiring: dict[HostProcess, asyncio.TimerHandle] = {}
        """The timers at whose end a retiring host is killed."""
        self._is_wanted = True
        """Whether there is to be an open host even before an attempt needs it."""
        self._kills: Counter[str] = Counter()
        """How many attempts of each kind did not stop until their host was killed."""
        self._lone = LoneThreads(hosting, min(slots, LONE_HOSTS), on_report, on_log)

    async def open(self) -> None:
        """Starts a host, unless no kind of the app needs it."""
        await self._lone.open()
        self._is_wanted = True
        if self._known_kinds is not None:
            self.kinds = dict(self._known_kinds())
            self._is_wanted = any(info.pool == self.pool for info in self.kinds.values())
        if self._is_wanted:
            await super().open()
        else:
            self._prepare()

    async def close(self) -> None:
        """Ends every host, retiring ones too, and waits until it is gone."""
        for timer in self._retiring.values():
            timer.cancel()
        self._retiring.clear()
        await super().close()
        await self._lone.close()

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt, as soon as there is a host for it."""
        if self._kills[assignment.kind] < MOST_KILLS:
            super().start(assignment)
        else:
            self._lone.start(assignment)

    def abort(self, report: Report) -> None:
        """Stops an attempt, wherever it is."""
        super().abort(report)
        self._lone.abort(report)

    def kill(self) -> None:
        """Kills everything at once, and hands back the attempts that were not aborted already."""
        super().kill()
        self._lone.kill()

    def _missing_hosts(self) -> int:
        if not (self._is_wanted or self._unsent):
            return 0
        return super()._missing_hosts() + len(self._retiring)

    def _aborting(self, running: Running, host: HostProcess) -> None:
        """Retires the host."""
        if isinstance(running.abort_report, ReleaseReport):
            # The worker hands its jobs back: it leaves, or it takes no jobs for a while.
            self._is_wanted = False
        if host in self._retiring:
            return
        if host in self._open_hosts:
            self._open_hosts.remove(host)
        grace_s = self._hosting.abort_grace_s
        self._retiring[host] = self._loop.call_later(grace_s, self._give_up, host, running)
        self._place_soon()

    def _give_up(self, host: HostProcess, aborted: Running) -> None:
        """Kills a host at the end of the abort grace. Was it because of the attempt itself?"""
        assignment = aborted.assignment
        if self._attempts.get(assignment.key) is aborted:
            self._kills[assignment.kind] += 1
            if self._kills[assignment.kind] == MOST_KILLS:
                _log.warning(
                    "jobs of kind '%s' did not stop when told to, and their process was killed, "
                    "%d times: from now on each runs in a process of its own, at most %d at once; "
                    'give its calls timeouts, or leave out isolation="thread"',
                    assignment.kind,
                    MOST_KILLS,
                    self._lone.slots,
                )
        host.kill()

    def _ended(self, host: HostProcess, ended: Ended) -> None:
        super()._ended(host, ended)
        self._kill_if_done(host)

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        super()._stopped(host, attempts)
        self._kill_if_done(host)

    def _kill_if_done(self, host: HostProcess) -> None:
        if host in self._retiring and not self._attempts.on_host(host):
            host.kill()

    def _host_gone(self, host: HostProcess) -> None:
        super()._host_gone(host)
        if (timer := self._retiring.pop(host, None)) is not None:
            timer.cancel()

    def _is_replaced(self, host: HostProcess) -> bool:
        return host in self._retiring
