"""What the executors have in common whose host runs all attempts at once.

A shared host is open to attempts for as long as it lives (or until it retires, see `thread`). There
is one, and the executor replaces it whenever it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from time import monotonic
from typing import Final

from longshore.executors.attempts import Running
from longshore.executors.frames import Ended, Run, portions
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import HostedExecutor, Hosting
from longshore.ports import OnLog, OnReport

_log = logging.getLogger(__name__)
AT_ONCE: Final = 512
"""How many attempts go to the host with one write."""


class SharedExecutor(HostedExecutor):
    """One open host, with up to `slots` attempts in it."""

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._open_hosts: list[HostProcess] = []
        """The hosts that can take attempts now."""
        self._begin_late: frozenset[str] = frozenset()
        """The kinds of whose attempts the host says when they begin."""

    def _send_unsent(self) -> None:
        while self._unsent and self._open_hosts:
            host = self._open_hosts[-1]
            if not self._send(host, list(islice(self._unsent.values(), AT_ONCE))):
                self._open_hosts.pop()

    def _send(self, host: HostProcess, batch: Sequence[Running]) -> bool:
        # If the host has just died, nothing arrived: the attempts are for the next host.
        if not host.send(*map(Run, portions([running.assignment for running in batch]))):
            return False
        now = monotonic()
        for running in batch:
            del self._unsent[running.assignment.token]
            running.host = host
            if running.assignment.kind not in self._begin_late:
                self._attempts.began(running, now)
        return True

    def _missing_hosts(self) -> int:
        return 1 - len(self._hosts) - len(self._starting)

    def _most_handed_back(self) -> int:
        return self.slots

    def _open_host(self, host: HostProcess) -> None:
        self._open_hosts.append(host)

    def _forget_hosts(self) -> None:
        self._open_hosts.clear()

    def _ended(self, host: HostProcess, ended: Ended) -> None:
        for report in ended.reports:
            self._attempts.end(report)

    def _is_replaced(self, host: HostProcess) -> bool:
        """Whether another host took the place of this one before it ended."""
        return False

    def _host_gone(self, host: HostProcess) -> None:
        if host not in self._hosts:
            return
        self._hosts.remove(host)
        if host in self._open_hosts:
            self._open_hosts.remove(host)
        left = self._attempts.on_host(host)
        if not self._is_replaced(host):
            self._pause_starts()
        if left or not host.was_killed:
            jobs = "1 job" if len(left) == 1 else f"{len(left)} jobs"
            _log.warning("host %d %s, with %s in it", host.pid, host.ending, jobs)
        self._judge(host, left)
        self._place_soon()
