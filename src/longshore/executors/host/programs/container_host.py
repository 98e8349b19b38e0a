"""The inside of a host of containers. It may outlive its agent, if the worker has a state folder.

Theory. The agent tells the worker's lease to its host. If the agent dies, the containers go on, and
the host keeps what they say and how they end. A new agent finds it by its socket in the state
folder, hears what is there, and goes on where the last one stopped. If none comes before the lease
ends, the host stops its containers and ends: so they are gone before the dispatchers give their
jobs to others. It keeps to the lease while its agent lives, too: an agent may be frozen.

Without a state folder, or before it has heard of a lease, it ends with its agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import Final

from longshore.executors.channel import Channel
from longshore.executors.frames import (
    Ended,
    Held,
    LeaseUntil,
    Load,
    Recorded,
    ToHost,
    portions,
    said,
    to_host,
)
from longshore.executors.host.context import RunningContext
from longshore.executors.host.programs.host import ProgramHost
from longshore.executors.host.programs.kept import KeptAttempts
from longshore.executors.successors import listen, peer_of, stop_listening
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import LogEntry
from longshore.model.reports import ReleaseReport, Report

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""How often the lease is looked at: timers stand still while the machine sleeps, leases do not."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ContainerHost(ProgramHost):
    """Runs the containers of a worker, also for an agent that comes after this one."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._state = ""
        self._kept = KeptAttempts()
        self._lease: LeaseUntil | None = None
        self._watching: asyncio.Task[None] | None = None
        self._overdue: set[int] = set()
        """The tokens of attempts that were stopped because the lease ended."""
        self._is_alone = False
        self._is_cleared = False
        """Whether it ends, and all its containers are gone."""
        self._listening: socket.socket

    def _expect(self, load: Load) -> None:
        super()._expect(load)
        self._state = load.programs.state

    def _attach(self) -> None:
        super()._attach()
        if self._state:
            self._listening = listen(self._state)
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _handle(self, message: ToHost) -> None:
        match message:
            case LeaseUntil():
                self._lease = message
                if self._watching is None:
                    self._watching = self._loop.create_task(self._watch_lease())
            case Recorded(tokens=tokens):
                self._kept.forget(tokens)
            case _:
                super()._handle(message)

    # one agent after the other

    def _lose_agent(self) -> None:
        """Goes on alone, if there is something to go on with and a lease to do it under."""
        self._is_alone = True
        if self._lease is None or not self._kept:
            super()._lose_agent()
            return
        _log.warning(
            "the worker's agent died; containers that go on: %d, for %.1f s or until it is back",
            len(self._running),
            max(0.0, self._lease.stop_at - _now()),
        )

    def _accept(self) -> None:
        """A new agent is there: it hears of everything that is not recorded."""
        try:
            link, _ = self._listening.accept()
        except OSError:
            return
        if peer_of(link).uid != os.geteuid() or self._closing is not None:
            link.close()
            return
        self._channel.close()
        self._channel = Channel(link, to_host(), self._receive, self._lose_agent)
        self._is_alone = False
        self._channel.send(
            Held(self._kept.hand_over(_now())),
            *said(list(self._kept.entries())),
            *map(Ended, portions(self._kept.reports())),
        )

    async def _close(self) -> None:
        if self._state:
            with contextlib.suppress(OSError):
                stop_listening(self._state)
        await super()._close()

    def _say_last(self) -> None:
        """What was killed because the lease ended did not crash."""
        overdue = self._kept.keys(self._overdue & self._running.keys())
        self._reports += [ReleaseReport(*attempt) for attempt in overdue]
        self._is_cleared = True
        self._flush()

    def _flush(self) -> None:
        # A host that ends tells nothing before its containers are gone: others may begin the jobs.
        if self._closing is None or self._is_cleared:
            super()._flush()

    # what is kept

    def _begin(self, assignment: Assignment) -> None:
        if self._closing is not None:
            self._reports.append(ReleaseReport(*assignment.key))
            return
        if self._state:
            self._kept.began(assignment, _now())
        super()._begin(assignment)

    def _begins_late(self, token: int) -> None:
        self._kept.began_late(token, _now())
        super()._begins_late(token)

    def _end(self, assignment: Assignment, context: RunningContext, report: Report) -> None:
        if assignment.token in self._overdue:
            report = ReleaseReport(*assignment.key)
        super()._end(assignment, context, report)

    def _deliver(
        self,
        entries: Sequence[LogEntry],
        reports: Sequence[Report],
        stopped: Sequence[AttemptKey],
    ) -> None:
        self._kept.said(entries)
        self._kept.ended(reports)
        self._kept.forget(token for _, token in stopped)
        super()._deliver(entries, reports, stopped)
        if self._is_alone and not self._kept and self._closing is None:
            self._closing = self._loop.create_task(self._close())

    # the lease

    async def _watch_lease(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S if self._lease is None else self._look_in_s(self._lease))
            # A process that was frozen must first read what its agent said meanwhile.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if self._lease is not None and self._closing is None:
                self._keep_to(self._lease, _now())

    def _look_in_s(self, lease: LeaseUntil) -> float:
        now = _now()
        ahead = [at - now for at in (lease.stop_at, lease.kill_at) if at > now]
        return min(LOOK_S, *ahead, LOOK_S)

    def _keep_to(self, lease: LeaseUntil, now: float) -> None:
        """Stops what runs when the lease is about to end; kills it, and ends, when it has."""
        if now >= lease.kill_at and (self._running or self._is_alone):
            self._overdue |= self._running.keys()
            self._closing = self._loop.create_task(self._close())
        elif now >= lease.stop_at:
            for token in self._running.keys() - self._overdue:
                self._overdue.add(token)
                self._running[token].task.cancel()


def _now() -> float:
    return time.clock_gettime(_CLOCK)
