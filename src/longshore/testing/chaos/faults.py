"""Who does to a fleet what a plan says, and undoes it."""

from __future__ import annotations

import asyncio
import heapq
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from longshore.testing.chaos.cluster import MemberPart, Role
from longshore.testing.chaos.fleet import Fleet
from longshore.testing.chaos.history import Ended, Healed, Struck, Writer
from longshore.testing.chaos.parts import Database, Part, forbid_growth, signal_all
from longshore.testing.chaos.plan import Deed, Fault
from longshore.testing.chaos.proxy import Cut
from longshore.testing.servers import ServerFailed

CUTS = {
    Deed.CUT_BOTH: Cut.BOTH,
    Deed.CUT_FORTH: Cut.FORTH,
    Deed.CUT_BACK: Cut.BACK,
    Deed.BREAK: Cut.BROKEN,
}
STUTTER_S = 0.1
LOOK_S = 0.5
STOPPED_SHARE = 0.8
_OF_MEMBERS = frozenset({Deed.KILL_SERVER, Deed.SWITCHOVER, Deed.STRAND, Deed.CUT_OFF})
Undo = Callable[[], None]
Target = Part | Database | MemberPart


class Nemesis:
    """Strikes as planned. It runs in the main thread: children die with the thread that made them.

    `run` carries out coroutines in the loop of the proxies.
    """

    def __init__(
        self,
        fleet: Fleet,
        writer: Writer,
        seed: int,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._fleet = fleet
        self._writer = writer
        self._run = run
        self._chance = random.Random(f"nemesis {seed}")
        self._undo: list[tuple[float, int, Undo]] = []
        self._stutters: dict[int, threading.Event] = {}
        self._busy: dict[str, int] = {}
        self.struck = 0

    def rage(self, faults: Sequence[Fault], until: float, told: Callable[[str], None]) -> None:
        """Strikes, each fault at its time, until all is undone."""
        began = time.monotonic()
        for fault in faults:
            self._wait(began + fault.at_s)
            if fault.whom in self._busy:
                continue  # one fault at a time for one part; others go on meanwhile
            told(f"{fault.deed} {fault.whom} for {fault.lasts_s:.1f} s")
            self._strike(fault)
        self._wait(until)
        self.calm()

    def calm(self) -> None:
        """All faults are over, and every part runs."""
        while self._undo:
            heapq.heappop(self._undo)[2]()
        for part in self._fleet.start_order():
            part.start()
        if self._fleet.cluster is not None:
            self._fleet.cluster.start_all()

    def _wait(self, until: float) -> None:
        """Until then; what is to be undone meanwhile is."""
        while True:
            now = time.monotonic()
            if self._undo and self._undo[0][0] <= now:
                heapq.heappop(self._undo)[2]()
            elif now >= until:
                return
            else:
                self.look_after()
                due = self._undo[0][0] if self._undo else until
                time.sleep(max(0.0, min(due - now, until - now, LOOK_S)))

    def look_after(self) -> None:
        """Starts again what ended by itself, as the supervisor of a machine does."""
        for name, part in self._fleet.parts.items():
            code = part.ended_by_itself
            if code is not None and name not in self._busy:
                self._writer.add(Ended(whom=part.label, code=code))
                part.start()

    def _strike(self, fault: Fault) -> None:
        part = self._target(fault.whom)
        label = "" if part is None else part.label
        self._busy[fault.whom] = fault.number
        self.struck += 1
        self._writer.add(Struck(fault=fault.number, deed=fault.deed, whom=fault.whom, worker=label))
        undo = self._cut(fault) if part is None else self._hurt(part, fault)

        def heal() -> None:
            undo()
            self._busy.pop(fault.whom, None)
            self._writer.add(Healed(fault=fault.number))

        heapq.heappush(self._undo, (time.monotonic() + fault.lasts_s, fault.number, heal))

    def _target(self, whom: str) -> Target | None:
        """Whom it strikes; None for a link."""
        part = self._fleet.roles.get(whom) or self._fleet.parts.get(whom)
        return part.holder() if isinstance(part, Role) else part

    def _cut(self, fault: Fault) -> Undo:
        link = self._fleet.links[fault.whom]
        if fault.deed is Deed.RESET:
            self._run(link.reset())
            return _nothing
        self._run(link.cut(CUTS[fault.deed]))
        return lambda: self._run(link.cut(Cut.NONE))

    def _hurt(self, part: Target, fault: Fault) -> Undo:
        """Does it; answers how it is undone."""
        if isinstance(part, MemberPart) and fault.deed in _OF_MEMBERS:
            return self._hurt_member(part, fault.deed)
        match fault.deed:
            case Deed.KILL:
                part.kill()
                return part.start
            case Deed.RESTART:
                part.leave()
                return part.start
            case Deed.FREEZE | Deed.FREEZE_ALONE:
                return _freeze(part, children=fault.deed is Deed.FREEZE)
            case Deed.STUTTER:
                return self._stutter(part)
            case Deed.FULL_DISK:
                return _fill(part)
            case Deed.KILL_CHILD:
                self._kill_child(part)
            case Deed.KILL_CONNECTIONS:
                self._kill_connections()
            case _:
                raise AssertionError(f"{fault.deed} is for links")
        return _nothing

    def _hurt_member(self, part: MemberPart, deed: Deed) -> Undo:
        match deed:
            case Deed.KILL_SERVER:
                part.kill_server()
            case Deed.SWITCHOVER:
                part.switch_over()
            case Deed.STRAND:
                return part.strand()
            case _:
                link = self._fleet.links[f"{part.name}>etcd"]
                self._run(link.cut(Cut.BOTH))
                return lambda: self._run(link.cut(Cut.NONE))
        return _nothing

    def _stutter(self, part: Target) -> Undo:
        """Stops and continues it, until undone."""
        pids = part.pids(children=True)
        over = threading.Event()

        def run() -> None:
            while not over.wait(STUTTER_S * (1 - STOPPED_SHARE)):
                signal_all(pids, signal.SIGSTOP)
                over.wait(STUTTER_S * STOPPED_SHARE)
                signal_all(pids, signal.SIGCONT)

        thread = threading.Thread(target=run)
        thread.start()

        def undo() -> None:
            over.set()
            thread.join()
            _start(part)

        return undo

    def _kill_child(self, part: Target) -> None:
        children = part.pids(children=True)[1:]
        if children:
            signal_all([self._chance.choice(children)], signal.SIGKILL)

    def _kill_connections(self) -> None:
        with suppress(OSError, TimeoutError, subprocess.SubprocessError):
            subprocess.run(
                [sys.executable, "-c", _TERMINATE, self._fleet.store],
                timeout=5,
                check=False,
                capture_output=True,
            )


_TERMINATE = """
import asyncio, sys, asyncpg
async def main():
    connection = await asyncpg.connect(sys.argv[1], timeout=3)
    await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                             "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
asyncio.run(main())
"""


def _freeze(part: Target, *, children: bool) -> Undo:
    pids = part.pids(children=children)
    signal_all(pids, signal.SIGSTOP)

    def thaw() -> None:
        signal_all(reversed(pids), signal.SIGCONT)

    return thaw


def _fill(part: Target) -> Undo:
    """No file can grow. Of a server only those that serve clients: new ones can write again."""
    pids = part.pids(children=True)
    if isinstance(part, Database):
        pids = pids[1:]
    forbid_growth(pids, forbidden=True)

    def undo() -> None:
        forbid_growth(pids, forbidden=False)
        _start(part)

    return undo


def _start(part: Target) -> None:
    """It runs, even if the fault ended it."""
    with suppress(ServerFailed):
        part.start()


def _nothing() -> None:
    """Nothing is to be undone."""


async def start_all(fleet: Fleet) -> None:
    """All proxies listen."""
    await asyncio.gather(*(proxy.start() for proxy in fleet.links.values()))


async def close_all(fleet: Fleet) -> None:
    """No proxy listens any more."""
    await asyncio.gather(*(proxy.close() for proxy in fleet.links.values()))
