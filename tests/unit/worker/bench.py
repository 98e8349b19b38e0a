"""A bench for the agent: a real one, between executors and a dispatcher that are played by hand.

Time is virtual. The played executors keep to their port: what they report comes from the loop, not
from within a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar
from uuid import UUID

from longshore.config import WorkerSettings
from longshore.model.reports import ReleaseReport, SuccessReport
from longshore.model.worker import KindInfo, Pool
from longshore.ports import OnBegun, OnLog, OnMessages, OnReport, WorkerState
from longshore.testing.builders import new_id
from longshore.testing.virtual import VirtualClock, run_virtually
from longshore.wire import messages as m
from longshore.wire.codec import encode, from_worker
from longshore.worker.agent import Identity, Worker

Message = TypeVar("Message")

LEASE_S, PING_S = 15.0, 1.0
KINDS = {
    Pool.COROUTINE: {"work": KindInfo(Pool.COROUTINE)},
    Pool.PROCESS: {"grind": KindInfo(Pool.PROCESS)},
}


class PlayedLink:
    """A connection of the agent's: what it said there, and a way to tell it something."""

    def __init__(self, address: str, on_messages: OnMessages) -> None:
        self.address = address
        self.said: list[m.WorkerMessage] = []
        self.is_open = True
        self._on_messages = on_messages

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        assert self.is_open, "the agent speaks through a connection that it closed"
        self.said.append(from_worker.decode(frames))
        return True

    def key_of(self, peer: bytes) -> str:
        return ""

    def close(self) -> None:
        self.is_open = False

    def tell(self, *messages: m.DispatcherMessage) -> None:
        """These messages come in at once."""
        self.frames(*(encode(message) for message in messages))

    def frames(self, *arrived: list[bytes]) -> None:
        """The same, whatever the frames are."""
        self._on_messages([(b"", frames) for frames in arrived])


class PlayedExecutor:
    """Runs attempts until the test ends them. Past its slots it starts nothing: that is a bug."""

    def __init__(
        self, slots: int, kinds: dict[str, KindInfo], on_report: OnReport, on_log: OnLog
    ) -> None:
        self.slots = slots
        self.kinds = kinds
        self.running: dict[int, m.Assignment] = {}
        self.started: list[int] = []
        """The tokens of all that was ever started, in order."""
        self.aborted: list[m.Report] = []
        self.stubborn = False
        """Whether attempts go on after an abort, until they are killed."""
        self.opened = asyncio.Event()
        self.opened.set()
        self.is_closed = False
        self._on_report = on_report
        self.say = on_log

    async def open(self) -> None:
        await self.opened.wait()

    def start(self, assignment: m.Assignment) -> None:
        assert len(self.running) < self.slots, "more was started than there are slots"
        self.running[assignment.token] = assignment
        self.started.append(assignment.token)

    def abort(self, report: m.Report) -> None:
        self.aborted.append(report)
        if not self.stubborn:
            self.end(report)

    def kill(self) -> None:
        for one in list(self.running.values()):
            self.end(ReleaseReport(one.job, one.token))

    async def close(self) -> None:
        self.is_closed = True

    def end(self, report: m.Report) -> None:
        """An attempt is over; the agent hears of it from the loop."""
        asyncio.get_running_loop().call_soon(self._end, report)

    def _end(self, report: m.Report) -> None:
        if self.running.pop(report.token, None) is not None:
            self._on_report(report)

    def succeed(self, token: int) -> None:
        """An attempt ends well."""
        self.end(SuccessReport(self.running[token].job, token, result=b"\xc0"))


class PlayedQueueingExecutor(PlayedExecutor):
    """Short attempts wait in it past its slots, until the test lets them begin."""

    def __init__(
        self, slots: int, kinds: dict[str, KindInfo], on_report: OnReport, on_log: OnLog
    ) -> None:
        super().__init__(slots, kinds, on_report, on_log)
        self.waiting: dict[int, m.Assignment] = {}
        self.on_begun: OnBegun = lambda token, ago_s: None

    def start_short(self, assignment: m.Assignment) -> None:
        self.started.append(assignment.token)
        if len(self.running) < self.slots:
            self.running[assignment.token] = assignment
        else:
            self.waiting[assignment.token] = assignment

    def take_back(self, tokens: Collection[int]) -> list[int]:
        return [token for token in tokens if self.waiting.pop(token, None) is not None]

    def begin(self, token: int, ago_s: float = 0.0, *, tell: bool = True) -> None:
        """An attempt begins that waited here."""
        self.running[token] = self.waiting.pop(token)
        if tell:
            self.on_begun(token, ago_s)


class Bench:
    """One agent, the executors it made, and every connection that it opened."""

    def __init__(
        self,
        slots: int,
        addresses: Sequence[str],
        settings: WorkerSettings,
        executor: type[PlayedExecutor] = PlayedExecutor,
        state: WorkerState | None = None,
        resources: dict[str, float] | None = None,
    ) -> None:
        self._executor = executor
        self.clock = VirtualClock()
        self.links: list[PlayedLink] = []
        self.executors: dict[str, PlayedExecutor] = {}
        self.ids: list[UUID] = []
        """The ids under which it asked to be attended."""
        self._slots = slots
        self.agent = Worker(
            Identity(name="w1", host="bench", pid=1, resources=resources or {}),
            settings,
            addresses,
            connect=self._connect,
            make_executors=self._make,
            clock=self.clock,
            new_id=self._new_id,
            measure=lambda: m.Stats(cpu_percent=12.5),
            state=state,
        )
        self.task = asyncio.create_task(self.agent.run())

    def _connect(self, address: str, on_messages: OnMessages) -> PlayedLink:
        self.links.append(PlayedLink(address, on_messages))
        return self.links[-1]

    def _make(self, on_report: OnReport, on_log: OnLog) -> dict[str, PlayedExecutor]:
        self.executors = {
            pool: self._executor(self._slots, kinds, on_report, on_log)
            for pool, kinds in KINDS.items()
        }
        return self.executors

    def _new_id(self) -> UUID:
        self.ids.append(new_id())
        return self.ids[-1]

    @property
    def worker(self) -> UUID:
        """The id under which it asked last."""
        asked = self.said(m.Ready) if self.links else []
        return asked[-1].worker if asked else self.ids[-1]

    @property
    def link(self) -> PlayedLink:
        """The connection it opened last."""
        return self.links[-1]

    @property
    def jobs(self) -> PlayedExecutor:
        """Where `work` runs."""
        return self.executors[Pool.COROUTINE]

    async def settle(self) -> None:
        """Lets everything happen that takes no time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def attend(self) -> PlayedLink:
        """Welcomes it in the session that it asked for."""
        await self.settle()
        ready = self.said(m.Ready)[-1]
        self.link.tell(m.Welcome(self.worker, ready.session, PING_S, LEASE_S))
        await self.settle()
        return self.link

    async def pass_time(self, seconds: float, *, answering: bool = True) -> None:
        """Lets time pass; every PING on the way is answered with a lease, unless told otherwise."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            await asyncio.sleep(min(0.1, until - self.clock.now()))
            if answering:
                self._answer()
            await self.settle()

    def _answer(self) -> None:
        pings = self.said(m.Ping)
        if pings and not self._is_answered(pings[-1]):
            self.link.tell(m.Pong(self.worker, pings[-1].no, PING_S, LEASE_S))
            self._answered = self.link, pings[-1].no

    def next_seq(self) -> int:
        """The number of the next JOBS."""
        self._seq += 1
        return self._seq

    _seq = 0
    _answered: tuple[PlayedLink | None, int] = (None, 0)

    def _is_answered(self, ping: m.Ping) -> bool:
        return self._answered == (self.link, ping.no)

    def said(self, kind: type[Message]) -> list[Message]:
        """What it said of this kind on its last connection."""
        return [message for message in self.link.said if isinstance(message, kind)]

    def reports(self) -> list[tuple[int, type[m.Report]]]:
        """Which attempts it said have ended, on its last connection, and how; repeats are one."""
        ends = [(one.token, type(one)) for done in self.said(m.Done) for one in done.reports]
        return list(dict.fromkeys(ends))

    def acknowledge(self) -> None:
        """Takes note of everything that it reported."""
        reports = [one for done in self.said(m.Done) for one in done.reports]
        self.link.tell(m.Ack(self.worker, tuple(report.key for report in reports)))


def job(token: int, kind: str = "work") -> m.Assignment:
    """An attempt to start."""
    return m.Assignment(UUID(int=token), token, token, kind, b"\x80")


def at_bench(
    story: Callable[[Bench], Awaitable[None]],
    *,
    slots: int = 2,
    addresses: Sequence[str] = ("d1",),
    settings: WorkerSettings | None = None,
    executor: type[PlayedExecutor] = PlayedExecutor,
    state: WorkerState | None = None,
    resources: dict[str, float] | None = None,
) -> None:
    """Tells a story of one agent, on virtual time."""

    async def main() -> None:
        given = settings or WorkerSettings(drain_s=10.0, lookahead_s=0.05)
        bench = Bench(slots, addresses, given, executor, state, resources)
        try:
            await story(bench)
        finally:
            bench.task.cancel()
            await asyncio.gather(bench.task, return_exceptions=True)

    run_virtually(main())
