"""The cluster: places where real dispatchers and workers are started, stopped and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from uuid import UUID

from longshore.config import DispatcherSettings, WorkerSettings
from longshore.dispatcher.engine import Dispatcher
from longshore.errors import StoreUnavailable
from longshore.model.ids import make_id
from longshore.model.worker import Pool, Stats
from longshore.ports import OnLog, OnReport
from longshore.testing.simulation.bodies import Script, SimulatedExecutor, Witness
from longshore.testing.simulation.database import Database, RemoteStore
from longshore.testing.simulation.http_link import HttpLink
from longshore.testing.simulation.loop import Process, SimulatedLoop
from longshore.testing.simulation.network import Network
from longshore.testing.simulation.scenario import KINDS, UNIX_MS, WorkerPlan
from longshore.testing.simulation.trace import Trace
from longshore.testing.virtual import VirtualClock
from longshore.worker.agent import Identity, Worker

START_AGAIN_S = 0.5
STOP_WITHIN_S = 50.0


class World:
    """What everybody in a simulation stands on."""

    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int,
        trace: Trace,
        network: Network,
        database: Database,
        http: HttpLink,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.trace = trace
        self.network = network
        self.database = database
        self.http = http
        self.clock = VirtualClock(loop)
        self.processes: list[Process] = []
        self.is_calm = False
        """Once the storm is over whoever stops is started again."""
        self.on_broken: Callable[[Exception], None] = _ignore
        """Told of whatever a process raised that nobody in it caught."""
        self._ids = Random(f"{seed}/ids")

    def new_id(self) -> UUID:
        """An id that nobody had before."""
        return make_id(UNIX_MS + int(self.loop.time() * 1000), self._ids.randbytes(10))

    def note(self, who: str, text: str, *jobs: UUID) -> None:
        """Something happened."""
        self.trace.note(self.loop.time(), who, text, *jobs)


class Node:
    """A place where one process after the other runs."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.up_since: float | None = None
        """Since when it does what it is for; none while it is down or still starting."""
        self.died_at = float("-inf")
        self._lives = 0

    def start(self) -> None:
        """Starts a process, unless one is there."""
        if self.process is not None:
            return
        self._lives += 1
        life = f"{self.name}.{self._lives}" if self._lives > 1 else self.name
        self.process = Process(self.world.loop, life, self.name)
        self.world.processes.append(self.process)
        self.world.note(life, "starts")
        self.process.start(self._live(self.process))

    async def _live(self, process: Process) -> None:
        try:
            await self.live(process)
        except Exception as error:
            self.world.on_broken(error)

    async def live(self, process: Process) -> None:
        """What its process does."""
        raise AssertionError("a node says what it does")

    async def leave(self) -> None:
        """How its process stops in good order."""
        raise AssertionError("a node says how it stops")

    def kill(self, why: str) -> None:
        """kill -9."""
        process, self.process = self.process, None
        if process is not None:
            self.up_since, self.died_at = None, self.world.loop.time()
            self.world.note(process.name, why)
            process.kill()
            self.world.network.died(process)
            if self.world.is_calm:
                self.world.loop.outside_at(self.world.loop.time() + START_AGAIN_S, self.start)

    def stop(self) -> None:
        """Asks its process to stop in good order; kills it if that takes too long."""
        process = self.process
        if process is None or not process.runs:
            return
        self.world.note(process.name, "is asked to stop")
        process.start(self._stop(process))
        loop = self.world.loop
        loop.outside_at(loop.time() + STOP_WITHIN_S, self._gone, process, "took too long to stop")

    async def _stop(self, process: Process) -> None:
        await self.leave()
        self._gone(process, "stopped")

    def _gone(self, process: Process, why: str) -> None:
        if self.process is process:
            self.kill(why)


class DispatcherNode(Node):
    """Runs a dispatcher."""

    def __init__(self, world: World, name: str, settings: DispatcherSettings) -> None:
        super().__init__(world, name)
        self._settings = settings
        self.dispatcher: Dispatcher | None = None

    async def live(self, process: Process) -> None:
        """Starts a dispatcher, again and again until the store answers."""
        world = self.world
        while True:
            dispatcher = Dispatcher(
                RemoteStore(world.database),
                self._settings,
                id=world.new_id(),
                name=process.name,
                clock=world.clock,
                random=Random(f"{world.seed}/{process.name}"),
            )
            with suppress(StoreUnavailable):
                await dispatcher.start(
                    world.network.listen_as(process), workers_at(self.name), clients_at(self.name)
                )
                break
            await asyncio.sleep(START_AGAIN_S)
        self.dispatcher, self.up_since = dispatcher, world.loop.time()
        await dispatcher.broken.wait()
        raise RuntimeError(f"a part of {process.name} broke")

    async def leave(self) -> None:
        """Stops the dispatcher, if it came so far."""
        if self.up_since is not None and self.dispatcher is not None:
            await self.dispatcher.stop()


class WorkerNode(Node):
    """Runs a worker's agent with scripted executors."""

    def __init__(
        self,
        world: World,
        plan: WorkerPlan,
        settings: WorkerSettings,
        script: Script,
        witness: Witness,
    ) -> None:
        super().__init__(world, plan.node)
        self._plan = plan
        self._settings = settings
        self._script = script
        self._witness = witness
        self.worker: Worker | None = None
        self.id: UUID | None = None
        """The id under which it attends now."""

    async def live(self, process: Process) -> None:
        """Works until it is drained."""
        world = self.world
        self.worker = Worker(
            Identity(name=process.name, host=self.name, pid=1),
            self._settings,
            [workers_at(name) for name in self._plan.dispatchers],
            connect=world.network.connect_as(process),
            make_executors=self._executors,
            clock=world.clock,
            new_id=lambda: self._new_id(process),
            measure=Stats,
        )
        self.up_since = world.loop.time()
        await self.worker.run()
        self._gone(process, "drained")

    def _new_id(self, process: Process) -> UUID:
        self.id = self.world.new_id()
        names = self.world.trace.names
        again = sum(name.startswith(f"{process.name}(") for name in names.values())
        names[self.id] = f"{process.name}({again + 1})"
        return self.id

    def _executors(self, on_report: OnReport, on_log: OnLog) -> dict[str, SimulatedExecutor]:
        slots = {Pool.COROUTINE: self._plan.slots, Pool.PROCESS: self._plan.processes}
        return {
            pool: SimulatedExecutor(
                count,
                {kind: KINDS[kind] for kind in self._plan.kinds if KINDS[kind].pool == pool},
                on_report,
                on_log,
                script=self._script,
                witness=self._witness,
                abort_grace_s=self._settings.abort_grace_s,
            )
            for pool, count in slots.items()
        }

    async def leave(self) -> None:
        """Drains the worker; its process ends with that."""
        if self.worker is not None:
            self.worker.drain()
        await asyncio.Event().wait()


def _ignore(error: Exception) -> None:
    pass


def workers_at(dispatcher: str) -> str:
    """Where workers reach a dispatcher."""
    return f"sim://{dispatcher}/workers"


def clients_at(dispatcher: str) -> str:
    """Where clients reach a dispatcher."""
    return f"sim://{dispatcher}/clients"
