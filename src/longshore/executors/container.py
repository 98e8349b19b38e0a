"""Runs containers, and takes over those that go on in the host of an agent that died.

A host that another agent started gets nothing new: its app may be an older one. It ends when all
that it held is recorded. `host.programs.container_host` is its inside.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from longshore.executors.frames import Ended, FromHost, Held, LeaseUntil, Recorded
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import Hosting
from longshore.executors.program import PUT_DOWN_S, KnownKinds, ProgramExecutor
from longshore.executors.scratch import sweep
from longshore.executors.successors import left_hosts
from longshore.model.attempt import HeldAttempt
from longshore.model.worker import Pool
from longshore.ports import OnLog, OnReport

_log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""How long a host may take to say what it holds."""


class FoundProcess:
    """A process that another one started, known by a descriptor: its number may be reused."""

    returncode: int | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def await_exit(self) -> None:
        """Blocks until it has ended."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.poll()

    def kill(self) -> None:
        """Kills it. It has started nothing but containers."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def reap(self) -> None:
        """Lets go of it: whoever adopted it reaps it."""
        os.close(self._descriptor)


class _Adopted:
    """A host of an earlier agent: what it holds, and what it said before that was resumed."""

    def __init__(self, answered: asyncio.Future[None]) -> None:
        self.answered = answered
        self.held: tuple[HeldAttempt, ...] = ()
        self.unheard: list[FromHost] | None = []

    def hear(self, messages: list[FromHost]) -> None:
        for message in messages:
            if isinstance(message, Held):
                self.held = tuple(message.attempts)
                if not self.answered.done():
                    self.answered.set_result(None)
            elif self.unheard is not None:
                self.unheard.append(message)


class ContainerExecutor(ProgramExecutor):
    """Runs containers."""

    pool = Pool.CONTAINER

    def __init__(
        self,
        hosting: Hosting,
        slots: int,
        on_report: OnReport,
        on_log: OnLog,
        known_kinds: KnownKinds | None = None,
    ) -> None:
        super().__init__(hosting, slots, on_report, on_log, known_kinds)
        self._adopted: dict[HostProcess, _Adopted] = {}
        self._unrecorded: dict[int, HostProcess] = {}
        """Who told of the ends that the store may not have, by token."""
        self._lease: LeaseUntil | None = None

    @property
    def outlives_agent(self) -> bool:
        """Whether containers go on if the agent dies."""
        return bool(self._hosting.programs.state) and (self._is_wanted or bool(self._adopted))

    async def open(self) -> None:
        """Finds the hosts of earlier agents, and starts its own, unless no job can need it."""
        self._prepare()
        if self._hosting.programs.state:
            for link, peer in left_hosts(self._hosting.programs.state):
                await self._adopt(link, peer.pid)
        await super().open()

    async def _adopt(self, link: socket.socket, pid: int) -> None:
        try:
            process = FoundProcess(pid)
        except ProcessLookupError:
            link.close()
            return
        host = HostProcess(process, link, self._receive, self._host_gone)
        adopted = self._adopted[host] = _Adopted(self._loop.create_future())
        self._hosts.add(host)
        answers = (adopted.answered, host.exited)
        await asyncio.wait(answers, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
        if not (adopted.answered.done() or host.exited.done()):
            _log.warning("host %d of an earlier agent does not answer: it is killed", pid)
            host.kill()

    async def close(self) -> None:
        """Ends its hosts and all that they run; but not what it has not resumed."""
        for host, adopted in self._adopted.items():
            if adopted.unheard is not None and host in self._hosts:
                self._hosts.remove(host)
                host.let_go()
        await super().close()

    # what earlier agents left

    def held(self) -> Sequence[HeldAttempt]:
        """What goes on in hosts of earlier agents, and what has ended there unrecorded."""
        return [one for adopted in self._adopted.values() for one in adopted.held]

    def resume(self) -> None:
        """Takes it over."""
        now = monotonic()
        for host, adopted in self._adopted.items():
            for one in adopted.held:
                running = self._attempts.add(one.assignment)
                running.host = host
                self._attempts.began(running, now - one.age_s)
        self._loop.call_soon(self._hear_unheard)

    def _hear_unheard(self) -> None:
        for host, adopted in list(self._adopted.items()):
            unheard, adopted.unheard = adopted.unheard, None
            super()._receive(host, unheard or [])
            self._see_off(host)

    def _receive(self, host: HostProcess, messages: list[FromHost]) -> None:
        adopted = self._adopted.get(host)
        if adopted is not None and adopted.unheard is not None:
            adopted.hear(messages)
        else:
            super()._receive(host, messages)

    # what later agents may need

    def extend(self, stop_at: float, kill_at: float) -> None:
        """Tells all hosts how long the lease lasts."""
        self._lease = LeaseUntil(stop_at, kill_at)
        for host in self._hosts:
            host.send(self._lease)

    def recorded(self, tokens: Collection[int]) -> None:
        """Has hosts forget what the store has."""
        forgotten: dict[HostProcess, list[int]] = {}
        for token in tokens:
            if (host := self._unrecorded.pop(token, None)) is not None:
                forgotten.setdefault(host, []).append(token)
        for host, known in forgotten.items():
            host.send(Recorded(known))
            self._see_off(host)

    def _see_off(self, host: HostProcess) -> None:
        """Ends a host of an earlier agent, if nothing of it is left to be done."""
        if host not in self._adopted or self._adopted[host].unheard is not None:
            return
        if not self._attempts.on_host(host) and host not in self._unrecorded.values():
            host.put_down(PUT_DOWN_S)

    def _inherited(self) -> Sequence[int]:
        lock = self._hosting.scratch_lock
        return () if lock is None or not self._hosting.programs.state else (lock,)

    def _open_host(self, host: HostProcess) -> None:
        if self._lease is not None:
            host.send(self._lease)
        super()._open_host(host)

    def _ended(self, host: HostProcess, ended: Ended) -> None:
        if self._hosting.programs.state:
            self._unrecorded |= {report.token: host for report in ended.reports}
        super()._ended(host, ended)

    def _missing_hosts(self) -> int:
        if not (self._is_wanted or self._unsent):
            return 0
        return super()._missing_hosts() + len(self._adopted.keys() & self._hosts)

    def _is_replaced(self, host: HostProcess) -> bool:
        return host in self._adopted

    def _clear_after(self, host: HostProcess) -> None:
        super()._clear_after(host)
        if host in self._adopted:
            # The folders of its attempts were in that of its own agent: nobody has them now.
            sweep(Path(self._hosting.scratch).parent)

    def _cleared(self, host: HostProcess) -> None:
        unrecorded = self._unrecorded.items()
        self._unrecorded = {token: one for token, one in unrecorded if one is not host}
        super()._cleared(host)
        self._adopted.pop(host, None)
