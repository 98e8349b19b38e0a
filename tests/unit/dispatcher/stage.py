"""A stage for stories: real dispatchers and real workers on virtual time, over a model store.

Only the jobs' bodies are scripted: `ScriptedExecutor` holds each attempt until the story ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from uuid import UUID

from msgspec import structs

from longshore.config import DispatcherSettings, WorkerSettings
from longshore.dispatcher.access import KnownKeys
from longshore.dispatcher.engine import Dispatcher
from longshore.dispatcher.meter import Meter
from longshore.model.job import Ended, JobError, JobState, Reason, Submission
from longshore.model.reports import CrashReport, FailureReport, ReleaseReport, SuccessReport
from longshore.model.worker import KindInfo, Parameter, Pool
from longshore.ports import OnLost, OnReport
from longshore.testing.builders import new_id
from longshore.testing.faults import FaultyStore
from longshore.testing.loopback import Connector, Network
from longshore.testing.memory import MemoryStore
from longshore.testing.virtual import VirtualClock
from longshore.wire import messages as m
from longshore.wire.codec import answer_to, encode, to_client
from longshore.worker.agent import Identity, Worker

LOOK_S = 0.05
SETTINGS = WorkerSettings(drain_s=10.0)
KINDS = {
    "work": KindInfo(Pool.COROUTINE, (Parameter("n", required=False),)),
    "grind": KindInfo(Pool.PROCESS, ()),
}


class ScriptedExecutor:
    """Starts attempts and leaves them running until the story says how they end."""

    def __init__(self, slots: int, on_report: OnReport, kinds: dict[str, KindInfo]) -> None:
        self.slots = slots
        self.kinds = kinds
        self.running: dict[m.AttemptKey, m.Assignment] = {}
        self.started: list[m.Assignment] = []
        self.stubborn = False
        self._on_report = on_report

    async def open(self) -> None:
        pass

    def start(self, assignment: m.Assignment) -> None:
        assert len(self.running) < self.slots
        self.running[assignment.key] = assignment
        self.started.append(assignment)

    def abort(self, report: m.Report) -> None:
        if not self.stubborn:
            self.end(report)

    def kill(self) -> None:
        for job, token in list(self.running):
            self.end(ReleaseReport(job, token))

    async def close(self) -> None:
        self.running.clear()

    def end(self, report: m.Report) -> None:
        if self.running.pop(report.key, None) is not None:
            self._on_report(report)

    def succeed(self) -> None:
        """All that run end well."""
        for job, token in list(self.running):
            self.end(SuccessReport(job, token, result=b"\x2a"))

    def fail(self, report: type[FailureReport | CrashReport] = FailureReport) -> None:
        """All that run end badly."""
        error = JobError(Reason.RAISED, "it did not work", "ValueError")
        for job, token in list(self.running):
            self.end(report(job, token, error))


class StagedWorker:
    """A worker, its scripted executors, and the task it runs in."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        slots: int,
        addresses: list[str],
        settings: WorkerSettings = SETTINGS,
        resources: dict[str, float] | None = None,
    ) -> None:
        self.executors: dict[str, ScriptedExecutor] = {}

        def make(on_report: OnReport, _on_log: object) -> dict[str, ScriptedExecutor]:
            pools = {info.pool for info in KINDS.values()}
            by_pool = {
                pool: {kind: info for kind, info in KINDS.items() if info.pool == pool}
                for pool in sorted(pools)
            }
            self.executors = {
                pool: ScriptedExecutor(slots, on_report, kinds) for pool, kinds in by_pool.items()
            }
            return self.executors

        self.joined = asyncio.Event()
        self.worker = Worker(
            Identity(name=name, host="stage", pid=1, process=name, resources=resources or {}),
            settings,
            addresses,
            connect=stage.network.connect,
            make_executors=make,
            clock=stage.clock,
            new_id=new_id,
            measure=m.Stats,
            on_joined=self.joined.set,
        )
        self.task = asyncio.create_task(self.worker.run())

    @property
    def jobs(self) -> ScriptedExecutor:
        """Where `work` runs."""
        return self.executors[Pool.COROUTINE]

    @property
    def processes(self) -> ScriptedExecutor:
        """Where `grind` runs."""
        return self.executors[Pool.PROCESS]

    async def die(self) -> None:
        """As by kill -9: nothing more is said."""
        self.worker._link.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Client:
    """Asks a dispatcher, one request at a time."""

    def __init__(self, stage: Stage, address: str) -> None:
        self._answers: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._link: Connector = stage.network.connect(address, self._receive)

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _, frames in arrived:
            self._answers.put_nowait(frames)

    async def ask(self, request: m.Request) -> object:
        self._link.send(b"", encode(request))
        answer = to_client.decode(await self._answers.get())
        assert answer.rid == request.rid
        return answer if isinstance(answer, m.Err) else answer_to(request, answer)

    async def submit(self, *jobs: Submission, strict: bool = False) -> list[m.SubmitAnswer]:
        answer = await self.ask(m.Submit(1, jobs, strict))
        assert isinstance(answer, tuple), answer
        return list(answer)

    async def wait(self, *jobs: Submission, wait_s: float = 1000.0) -> list[Ended]:
        answer = await self.ask(m.Wait(2, tuple(j.id for j in jobs), wait_s, all=True))
        assert isinstance(answer, tuple), answer
        return list(answer)

    async def why(self, job: Submission) -> str:
        answer = await self.ask(m.Why(3, job.id))
        assert isinstance(answer, m.WhyAnswer), answer
        return answer.why


class Stage:
    """One store, one network, and the processes that the story starts."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.network = Network()
        self.model = MemoryStore(utc=self.clock.utc)
        self.store = FaultyStore(self.model)
        self.settings = DispatcherSettings(max_wait_s=1000.0)
        self.on_lost: OnLost = lambda lost: None
        self.make_meter: Callable[[], Meter | None] = lambda: None
        self.keys: KnownKeys | None = None
        self.ended: set[str] = set()
        """The names of workers whose processes are known to have ended."""
        self._dispatchers: list[Dispatcher] = []
        self._workers: list[StagedWorker] = []

    async def dispatcher(self, name: str = "d1", **changes: float) -> Dispatcher:
        settings = structs.replace(self.settings, **changes)
        dispatcher = Dispatcher(
            self.store,
            settings,
            id=new_id(),
            name=name,
            clock=self.clock,
            random=Random(1),
            on_lost=self.on_lost,
            has_ended=self.ended.__contains__,
            meter=self.make_meter(),
            keys=self.keys,
        )
        await dispatcher.start(self.network.listen, f"{name}/workers", f"{name}/clients")
        self._dispatchers.append(dispatcher)
        return dispatcher

    async def kill(self, dispatcher: Dispatcher) -> None:
        """As by kill -9: it says nothing more."""
        self._dispatchers.remove(dispatcher)
        for link in (dispatcher._link.socket, dispatcher._frontend):
            link.close()
        for task in dispatcher._tasks:
            task.cancel()
        await asyncio.gather(*dispatcher._tasks, return_exceptions=True)

    async def worker(
        self,
        name: str = "w1",
        *,
        slots: int = 10,
        to: str = "d1",
        settings: WorkerSettings = SETTINGS,
        resources: dict[str, float] | None = None,
    ) -> StagedWorker:
        addresses = [f"{one}/workers" for one in to.split(",")]
        worker = StagedWorker(self, name, slots, addresses, settings, resources)
        self._workers.append(worker)
        await worker.joined.wait()
        return worker

    def client(self, to: str = "d1") -> Client:
        return Client(self, f"{to}/clients")

    async def until(self, happened: Callable[[], object], at_most_s: float = 300.0) -> float:
        """Lets time pass until something is so; answers how long that took."""
        began = self.clock.now()
        while not happened():
            assert self.clock.now() - began < at_most_s, "it never happened"
            await asyncio.sleep(LOOK_S)
        return self.clock.now() - began

    async def state(self, job: Submission) -> JobState:
        view = await self.model.job(job.id)
        assert view is not None
        return view.state

    async def close(self) -> None:
        """Ends all processes of the story."""
        for worker in self._workers:
            await worker.die()
        for dispatcher in self._dispatchers:
            self.store.plan = lambda _verb: None
            await dispatcher.stop()

    async def __aenter__(self) -> Stage:
        await self.model.migrate()
        await self.model.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def worker_id(worker: StagedWorker) -> UUID:
    """The id under which a worker attends now."""
    return worker.worker._session.worker
