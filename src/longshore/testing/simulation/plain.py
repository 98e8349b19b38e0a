"""Plain workers: the two-frame dialogue, played by the book that `docs/protocol.md` is.

They know no tokens, so what they run is only fenced, and `RunningBodies` does not watch it. What is
checked is that no answer is ever taken for that of another job: each says which job it is of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from longshore.ports import Link, OnMessages
from longshore.testing.simulation.bodies import Script
from longshore.testing.simulation.cluster import Node, World, workers_at
from longshore.testing.simulation.loop import Process
from longshore.testing.simulation.running_bodies import RunningBodies
from longshore.wire.plain import PING, PONG, READY

PERIOD_S: Final = 1.0
PERIODS: Final = 3


class PlainNode(Node):
    """Runs one plain worker, at one dispatcher after the other."""

    def __init__(
        self,
        world: World,
        name: str,
        dispatchers: Sequence[str],
        script: Script,
        bodies: RunningBodies,
    ) -> None:
        super().__init__(world, name)
        self._dispatchers = dispatchers
        self._script = script
        self._bodies = bodies

    async def live(self, process: Process) -> None:
        """Connects, works until nobody answers, connects to the next."""
        self.up_since = self.world.loop.time()
        connect = self.world.network.connect_as(process)
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
        run, behaviour = self._script.next_run(job), self._script.behaviour(job)
        self.world.note(process.name, f"works on it, for the {run}. time", job)
        await asyncio.sleep(behaviour.takes_s)
        if run <= behaviour.kills:
            self._script.die(process, "killed by a job")
            await asyncio.sleep(0)
        answer = b"%s, run %d" % (str(job).encode(), run)
        self._bodies.answered(job, answer)
        self.world.note(process.name, f"is done with run {run} of it", job)
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
