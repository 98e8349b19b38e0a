"""Gateways: the real application over HTTP, the real web workers, and the gateway's own worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit
from uuid import UUID

from starlette.types import Message, Scope

from longshore.client.connection import Connection
from longshore.config import GatewaySettings, WorkerSettings
from longshore.gateway.app import make_app
from longshore.gateway.asking import asking
from longshore.gateway.backend import Backend
from longshore.gateway.operation import Gateway
from longshore.gateway.own_worker import OwnWorker
from longshore.gateway.web_workers import WebWorkers
from longshore.links.outbound import Answer, Request
from longshore.model.callback import CALLBACK_QUEUE
from longshore.model.worker import Pool, Stats
from longshore.ports import OnLog, OnReport
from longshore.testing.simulation.bodies import Script, SimulatedExecutor, Witness
from longshore.testing.simulation.cluster import Node, World, clients_at, workers_at
from longshore.testing.simulation.loop import Process
from longshore.wire.worker_side import Patience
from longshore.worker.agent import Identity, Worker


class GatewayNode(Node):
    """Runs a gateway that listens at the host of its name."""

    def __init__(
        self,
        world: World,
        name: str,
        dispatchers: Sequence[str],
        settings: GatewaySettings,
        lease_s: float,
        script: Script,
        witness: Witness,
    ) -> None:
        super().__init__(world, name)
        self._dispatchers = dispatchers
        self._settings = settings
        self._lease_s = lease_s
        self._script = script
        self._witness = witness
        self._own: OwnWorker | None = None
        self.lives: list[WebWorkers] = []
        """What each of its processes attends or attended; the last one is of the present one."""
        self.ids: set[UUID] = set()
        """The ids that it had as a worker."""

    @property
    def web(self) -> WebWorkers | None:
        """What its present process attends."""
        return self.lives[-1] if self.process is not None and self.lives else None

    async def live(self, process: Process) -> None:
        """Serves HTTP and attends services until it is told to stop."""
        world, connect = self.world, self.world.network.connect_as(process)
        connection = Connection(
            [clients_at(name) for name in self._dispatchers],
            connect=connect,
            new_id=world.new_id,
            token=asking,
        )
        backend = Backend([workers_at(name) for name in self._dispatchers], connect)
        web = self._attending(connection, backend)
        self.lives.append(web)
        own = self._own = OwnWorker(lambda: self._worker(process, backend, web))
        async with connection:
            gateway = Gateway(connection, self._settings, web=web, utc=self._utc)
            world.http.listen(process, Server(gateway).answer)
            self.up_since = world.loop.time()
            attending = asyncio.create_task(web.run())
            await own.run()
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
            web.close()
        self._gone(process, "stopped")

    def _utc(self) -> float:
        return self.world.clock.utc().timestamp()

    def _attending(self, connection: Connection, backend: Backend) -> WebWorkers:
        return WebWorkers(
            self._settings,
            connection.web,
            backend,
            self.world.http,
            self.world.clock,
            lease_s=self._lease_s,
            patience=Patience(),
            utc=self._utc,
            new_id=self.world.new_id,
        )

    def _worker(self, process: Process, backend: Backend, web: WebWorkers) -> Worker:
        return Worker(
            Identity(
                name=process.name, host=self.name, pid=1, queues=(CALLBACK_QUEUE,), gateway=True
            ),
            WorkerSettings(drain_s=1.0),
            backend.addresses,
            connect=web.connect,
            make_executors=self._executors,
            clock=self.world.clock,
            new_id=lambda: self._new_id(process, web),
            measure=Stats,
            on_joined=web.joined,
        )

    def _new_id(self, process: Process, web: WebWorkers) -> UUID:
        id = web.new_gateway_id()
        self.ids.add(id)
        self.world.trace.names[id] = process.name
        return id

    def _executors(self, on_report: OnReport, on_log: OnLog) -> dict[str, SimulatedExecutor]:
        """One that no job is for: callbacks are not simulated."""
        idle = SimulatedExecutor(
            1,
            {},
            on_report,
            on_log,
            script=self._script,
            witness=self._witness,
            abort_grace_s=1.0,
        )
        return {Pool.COROUTINE: idle}

    async def leave(self) -> None:
        """Has the gateway's own worker leave; its process ends with that."""
        if self._own is not None:
            self._own.stop()
        await asyncio.Event().wait()


class Server:
    """Passes requests to the application of a gateway, as a server for HTTP does."""

    def __init__(self, gateway: Gateway) -> None:
        self._app = make_app(gateway)

    async def answer(self, request: Request) -> Answer:
        """The application's answer."""
        sent: list[Message] = []
        unread = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> Message:
            if not unread:
                await asyncio.Event().wait()
            return unread.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(_scope(request), receive, send)
        body = b"".join(one.get("body", b"") for one in sent[1:])
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, body)


def _scope(request: Request) -> Scope:
    url = urlsplit(request.url)
    # By the name of this machine: which hosts it goes by is not what is simulated.
    headers = {"host": "localhost", "content-length": str(len(request.body)), **request.headers}
    return {
        "type": "http",
        "method": request.method,
        "scheme": "http",
        "path": url.path,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": (url.hostname, 80),
    }
