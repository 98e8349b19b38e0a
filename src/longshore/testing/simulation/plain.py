"""Plain workers: the two-frame dialogue, played by the book that `docs/protocol.md` is.

They know no tokens, so what they run is only fenced, and the floor does not watch it. What is
checked is that no answer is ever taken for that of another job: each says which job it is of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from longshore.ports import Link, OnMessages
from longshore.testing.simulation.bodies import Play
from longshore.testing.simulation.cluster import Grounds, Node, workers_at
from longshore.testing.simulation.floor import Floor
from longshore.testing.simulation.loop import Process
from longshore.wire.plain import PING, PONG, READY

PERIOD_S: Final = 1.0
PERIODS: Final = 3


class PlainNode(Node):
    """Runs one plain worker, at one dispatcher after the other."""

    def __init__(
        self, grounds: Grounds, name: str, dispatchers: Sequence[str], play: Play, floor: Floor
    ) -> None:
        super().__init__(grounds, name)
        self._dispatchers = dispatchers
        self._play = play
        self._floor = floor

    async def live(self, process: Process) -> None:
        """Connects, works until nobody answers, connects to the next."""
        self.up_since = self.grounds.loop.time()
        connect = self.grounds.network.connect_as(process)
        turn = 0
        while True:
            line = _Line(connect, workers_at(self._dispatchers[turn % len(self._dispatchers)]))
            line.say(READY)
            await self._attend(process, line)
            line.close()
            turn += 1

    async def leave(self) -> None:
        """It just goes."""

    async def _attend(self, process: Process, line: _Line) -> None:
        silent = 0
        while silent < PERIODS:
            frame = await line.hear(PERIOD_S)
            if frame is None:
                silent += 1
                line.say(PING)
                continue
            silent = 0
            if frame != PONG:
                line.say(await self._work(process, frame))

    async def _work(self, process: Process, frame: bytes) -> bytes:
        job = UUID(bytes=frame)
        run, behaviour = self._play.next_run(job), self._play.behaviour(job)
        self.grounds.note(process.name, f"works on it, for the {run}. time", job)
        await asyncio.sleep(behaviour.takes_s)
        if run <= behaviour.kills:
            self._play.die(process, "killed by a job")
            await asyncio.sleep(0)
        answer = b"%s, run %d" % (str(job).encode(), run)
        self._floor.answered(job, answer)
        self.grounds.note(process.name, f"is done with run {run} of it", job)
        return answer


class _Line:
    """One socket, and what came through it."""

    def __init__(self, connect: Callable[[str, OnMessages], Link], address: str) -> None:
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._link = connect(address, self._receive)

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _, frames in arrived:
            self._arrived.put_nowait(frames[1])

    def say(self, frame: bytes) -> None:
        """Sends one frame, after the empty one."""
        self._link.send(b"", [b"", frame])

    async def hear(self, within_s: float) -> bytes | None:
        """The next frame; None if there is none for so long."""
        try:
            async with asyncio.timeout(within_s):
                return await self._arrived.get()
        except TimeoutError:
            return None

    def close(self) -> None:
        """Lets go of the socket."""
        self._link.close()
