"""Runs commands, or containers: all of them in one host process, which starts and kills programs.

The host asks a program to end, and kills it after the abort grace: its neighbours need not notice.
A host that dies leaves its programs running. Its executor kills those before it reports their
attempts, so that none runs on when another worker begins it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import Hosting
from longshore.executors.left_behind import kill_left_behind
from longshore.executors.scratch import discard_spare
from longshore.executors.shared import SharedExecutor
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnBegun, OnLog, OnReport

MARGIN_S: Final = 10.0
"""How long after the abort grace a host is killed in which a program has not ended."""
PUT_DOWN_S: Final = 1.0
"""How long a host has to kill everything that it runs."""

KnownKinds = Callable[[], Mapping[str, KindInfo]]


class ProgramExecutor(SharedExecutor):
    """One host with up to `slots` programs in it.

    `known_kinds` tells the app's kinds, which another executor has learned before this one opens.
    If none of them is of this pool, and submitters may not choose programs, it starts no host.
    """

    keeps_time: ClassVar[bool] = False
    closes_busy_hosts: ClassVar[bool] = True

    def __init__(
        self,
        hosting: Hosting,
        slots: int,
        on_report: OnReport,
        on_log: OnLog,
        known_kinds: KnownKinds | None = None,
    ) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self._known_kinds = known_kinds
        self._is_wanted = True
        self.on_begun: OnBegun = lambda token, ago_s: None
        """Called when an attempt really begins, some time after it was started."""

    async def open(self) -> None:
        """Starts a host, unless no job can need it."""
        if self._known_kinds is not None:
            self.kinds = dict(self._known_kinds())
        declared = any(info.pool == self.pool for info in self.kinds.values())
        self._is_wanted = self.slots > 0 and (declared or self._hosting.programs.exec)
        if self._is_wanted:
            await super().open()
        else:
            self._prepare()

    def kill(self) -> None:
        """Kills everything at once, and hands back the attempts that were not aborted already."""
        hosts, self._hosts = self._hosts, set()
        super().kill()
        self._hosts = hosts
        self._forget_hosts()
        for host in hosts:
            host.put_down(PUT_DOWN_S)

    async def close(self) -> None:
        """Ends the host and all that it runs."""
        hosts = list(self._hosts)
        await super().close()
        for host in hosts:
            await asyncio.to_thread(kill_left_behind, host.mark)

    @property
    def _patience_s(self) -> float:
        return self._hosting.abort_grace_s + MARGIN_S

    def _began_late(self, token: int) -> None:
        self.on_begun(token, 0.0)

    def _missing_hosts(self) -> int:
        return super()._missing_hosts() if self._is_wanted or self._unsent else 0

    def _host_gone(self, host: HostProcess) -> None:
        """Kills what the host left running, and only then reports its attempts."""
        if host in self._hosts:
            clearing = self._loop.create_task(asyncio.to_thread(self._clear_after, host))
            clearing.add_done_callback(lambda done: self._cleared(host))

    def _clear_after(self, host: HostProcess) -> None:
        kill_left_behind(host.mark)
        discard_spare(self._hosting.scratch, host.pid)

    def _cleared(self, host: HostProcess) -> None:
        super()._host_gone(host)


class CommandExecutor(ProgramExecutor):
    """Runs commands."""

    pool = Pool.COMMAND
