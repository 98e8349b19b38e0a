"""Runs plain `def` jobs, one at a time in each of several processes that are kept for the next one.

Short attempts do not wait here until a process has told of an end: they may wait in the queue of a
busy process, which begins the next one by itself (see `attempt_queue`). What an agent sees of that:
the first attempt of `_given` runs, and the next one begins when the end of the first is told. An
attempt that was taken back never began, whatever the agent thought.

A process gets nothing to wait behind a run that is already long. When a process is idle, it gets a
share of what waits behind others.

A process may be limited in jobs or memory. It says how worn it is. Once it is, it begins no more:
it is closed, and another takes its place, which was started before, when the limit came near.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from heapq import heapify, heapreplace
from math import inf
from time import monotonic

from longshore.core.lookahead import LONG_RUN_S
from longshore.executors.attempts import Running, released
from longshore.executors.frames import Ended, FromHost, Run
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import HostedExecutor, Hosting
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.worker import Pool
from longshore.ports import OnBegun, OnLog, OnReport

REPEAT_INTERRUPT_S = 0.2

NEARLY_WORN = 0.9
"""From then on a process has a successor, if it may run ten jobs or more; else with its last."""


class ProcessExecutor(HostedExecutor):
    """Up to `slots` hosts, each with one attempt at a time, and others that wait for it there.

    A host in which an attempt was aborted is killed with everything the attempt started: an
    exception at an arbitrary place may have left anything behind.
    """

    pool = Pool.PROCESS
    has_queues = True

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self.on_begun: OnBegun = lambda token, ago_s: None
        self._given: dict[HostProcess, deque[Running]] = {}
        """What each host was given and has not ended: the first runs, the others wait for it."""
        self._free_at: dict[HostProcess, float] = {}
        """Since when each host could begin the first of these, on the monotonic clock."""
        self._idle: list[HostProcess] = []
        self._spares: list[HostProcess] = []
        """Hosts that take the place of others which are nearly worn."""
        self._worn: dict[HostProcess, float] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start_short(self, assignment: Assignment) -> None:
        """Begins an attempt as soon as there is a host for it, or puts it behind another one."""
        self._unsent[assignment.token] = self._attempts.add(assignment, may_wait=True)
        self._place_soon()

    def take_back(self, tokens: Collection[int]) -> list[int]:
        """Gives up those of these attempts that have not begun; answers which."""
        self._recall_all()
        self._place_soon()
        taken = [token for token in tokens if self._unsent.pop(token, None) is not None]
        for token in taken:
            self._attempts.forget(token)
        return taken

    def kill(self) -> None:
        """Kills everything at once, and hands back the attempts that were not aborted already."""
        self._recall_all()
        super().kill()

    async def close(self) -> None:
        """Ends every host and waits until it is gone; what still runs is killed, not reported."""
        await super().close()
        await asyncio.gather(*self._ending)

    # attempts and their hosts

    def _send_unsent(self) -> None:
        self._share()
        busy: list[tuple[int, int, HostProcess]] | None = None
        for running in list(self._unsent.values()):
            if self._idle:
                self._give(self._idle.pop(), running)
                continue
            if busy is None:
                busy = self._open_queues()
            if not running.may_wait or not busy or not self._give(busy[0][2], running):
                return
            length, number, host = busy[0]
            heapreplace(busy, (length + 1, number, host))

    def _open_queues(self) -> list[tuple[int, int, HostProcess]]:
        """The hosts in whose queues attempts may wait, as a heap: the shortest queue is first."""
        long_since = monotonic() - LONG_RUN_S
        found = [
            (len(given), number, host)
            for number, (host, given) in enumerate(self._given.items())
            if given and _may_follow(given[0], long_since) and not host.was_killed
        ]
        heapify(found)
        return found

    def _give(self, host: HostProcess, running: Running) -> bool:
        assert host.queue is not None, "every host of this pool has a queue"
        given = self._given[host]
        if not host.queue.put(running.assignment):
            # Not behind others: in the stream nobody could take it back, nor see who reads first.
            if given or not host.send(Run((running.assignment,))):
                return False
            running.may_wait = False
        del self._unsent[running.assignment.token]
        running.host = host
        given.append(running)
        if len(given) == 1:
            self._free_at[host] = monotonic()
            self._begin(running, self._free_at[host])
        return True

    def _begin(self, running: Running, at: float) -> None:
        self._attempts.began(running, at)
        self.on_begun(running.assignment.token, max(0.0, monotonic() - at))

    def _share(self) -> None:
        """If a host is idle and nothing waits here, takes back what waits behind another run."""
        if self._idle and not self._unsent and self._given:
            longest = max(self._given, key=lambda host: len(self._given[host]))
            if len(self._given[longest]) > 1:
                self._recall(longest)

    def _recall(self, host: HostProcess) -> None:
        """Takes back what the host has not begun: it waits here again, before all others."""
        assert host.queue is not None, "every host of this pool has a queue"
        taken = {assignment.token for assignment in host.queue.take_back()}
        if not taken:
            return
        back, left = {}, deque[Running]()
        for running in self._given[host]:
            if running.assignment.token in taken:
                running.host = running.began_at = None
                back[running.assignment.token] = running
            else:
                left.append(running)
        self._given[host] = left
        self._unsent = back | self._unsent
        if not left and not host.was_killed:
            self._idle.append(host)

    def _recall_all(self) -> None:
        for host, given in list(self._given.items()):
            if given:
                self._recall(host)

    def _before_abort(self, running: Running) -> None:
        # Its host is killed if it has begun: what waits for it goes elsewhere.
        if running.host is not None:
            self._recall(running.host)
            self._place_soon()

    def _aborting(self, running: Running, host: HostProcess) -> None:
        """Signals until the attempt has ended: a signal that overtook its frame does nothing."""
        host.interrupt()
        timer = self._loop.call_later(REPEAT_INTERRUPT_S, self._aborting, running, host)
        running.keep(timer)

    def _receive(self, host: HostProcess, messages: list[FromHost]) -> None:
        super()._receive(host, messages)
        ends = [message for message in messages if isinstance(message, Ended)]
        if ends and host in self._given:
            self._next(host, ends[-1])

    def _ended(self, host: HostProcess, ended: Ended) -> None:
        given = self._given.get(host)
        # Not only its own code: that would be less than the pace at which the process goes on.
        took_s = max(0.0, ended.ended_at - self._free_at.get(host, inf))
        self._free_at[host] = ended.ended_at
        for report in ended.reports:
            if given and given[0].assignment.token == report.token:
                given.popleft()
            self._attempts.end(report, took_s)

    def _next(self, host: HostProcess, ended: Ended) -> None:
        """A host has told of an end: the next attempt in its queue begins now, if there is one."""
        given = self._given[host]
        self._worn[host] = ended.worn
        if ended.worn >= 1:
            self._retire(host)
        elif given:
            if given[0].began_at is None:
                self._begin(given[0], ended.ended_at)
        elif not host.was_killed and host not in self._idle:
            self._idle.append(host)
        self._place_soon()

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        host.kill()

    # the life of hosts

    def _missing_hosts(self) -> int:
        waiting = len(self._unsent) + sum(len(given) - 1 for given in self._given.values() if given)
        wanted = max(0, min(waiting, self.slots - len(self._given)))
        wanted += sum(map(self._is_nearly_worn, self._given))
        return wanted - len(self._spares) - len(self._starting)

    def _is_nearly_worn(self, host: HostProcess) -> bool:
        worn = self._worn.get(host, 0.0)
        if worn >= NEARLY_WORN:
            return True
        most = self._hosting.max_jobs
        return bool(most and self._given[host]) and round(worn * most) >= most - 1

    def _most_handed_back(self) -> int:
        return 1

    def _open_host(self, host: HostProcess) -> None:
        if len(self._given) < self.slots:
            self._given[host] = deque()
            self._idle.append(host)
        else:
            self._spares.append(host)

    def _forget_hosts(self) -> None:
        for hosts in self._given, self._idle, self._spares, self._worn, self._free_at:
            hosts.clear()

    def _is_to_kill(self, host: HostProcess) -> bool:
        return bool(self._given.get(host))

    def _retire(self, host: HostProcess) -> None:
        """Closes a host that has used up its limits; its successor takes its place."""
        self._recall(host)
        self._let_go(host)
        task = self._loop.create_task(host.finish(self._hosting.abort_grace_s))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _host_gone(self, host: HostProcess) -> None:
        if host not in self._hosts:
            return
        if host in self._given:
            self._recall(host)
        left = self._let_go(host)
        self._judge(host, left[:1])
        for running in left[1:]:
            # The first ruined the connection, and the process went on until that was noticed.
            self._attempts.end(running.abort_report or released(running.assignment))
        self._place_soon()

    def _let_go(self, host: HostProcess) -> list[Running]:
        """The host gets nothing any more; answers what runs in it."""
        self._hosts.discard(host)
        self._worn.pop(host, None)
        self._free_at.pop(host, None)
        for hosts in self._idle, self._spares:
            if host in hosts:
                hosts.remove(host)
        left = list(self._given.pop(host, ()))
        if self._spares and len(self._given) < self.slots:
            self._open_host(self._spares.pop())
        return left


def _may_follow(running: Running, long_since: float) -> bool:
    """Whether others may wait behind this run."""
    if running.abort_report is not None or not running.may_wait:
        return False
    return running.began_at is None or running.began_at > long_since
