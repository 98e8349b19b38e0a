"""Runs plain `def` jobs in threads, all of them in one host process.

An abort raises an exception in a thread, and that may leave anything behind for the neighbours. So
the host *retires*: it gets no more attempts, and a new host takes its place at once, or with the
next attempt if the worker hands back its jobs. The host is killed when its last attempt has ended,
or at the end of the abort grace. Then an aborted attempt that would not stop is reported as such,
and neighbours that still ran are handed back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from longshore.executors.attempts import Running
from longshore.executors.frames import Ended
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import Hosting
from longshore.executors.shared import SharedExecutor
from longshore.model.attempt import AttemptKey
from longshore.model.reports import ReleaseReport
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnLog, OnReport


class ThreadExecutor(SharedExecutor):
    """One open host with up to `slots` threads in it, and hosts that retire.

    `known_kinds` tells the app's kinds, which another executor has learned before this one opens:
    if none of them runs in threads, it starts no host.
    """

    pool = Pool.THREAD

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

    async def open(self) -> None:
        """Starts a host, unless no kind of the app needs it."""
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
        self._retiring[host] = self._loop.call_later(self._hosting.abort_grace_s, host.kill)
        self._place_soon()

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
