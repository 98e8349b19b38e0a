"""The web workers that this gateway attends.

Theory. A gateway is a worker itself, with a lease of its own; by the id that it has as that worker
it attends services. Every second it tells a dispatcher which services it attends and what it found
out about them, and hears which it gains and which it lost. All services speak through one link, to
the dispatcher that the gateway's own worker uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final
from uuid import UUID

from longshore.client.web_requests import WebRequests
from longshore.config import GatewaySettings
from longshore.core.signatures import secret_of
from longshore.errors import InvalidInput, LongshoreError, ProtocolError
from longshore.gateway.asking import asked_by
from longshore.gateway.backend import Backend, SharedLink
from longshore.gateway.service_client import ServiceClient, Signing
from longshore.gateway.web_proxy import WebProxy
from longshore.links.outbound import Caller
from longshore.model.job import Verdict
from longshore.model.reports import Report
from longshore.model.web_worker import WebNote, WebState, WebWorker
from longshore.ports import Clock, OnMessages
from longshore.wire import messages as m
from longshore.wire.codec import encode, from_dispatcher
from longshore.wire.worker_side import Patience

log = logging.getLogger("longshore.gateway")

TICK_S: Final = 0.1
"""How often a gateway looks which health checks are due."""


class WebWorkers:
    """Attends services. `utc` is the time that signatures carry, in seconds."""

    def __init__(
        self,
        settings: GatewaySettings,
        requests: WebRequests,
        backend: Backend,
        outbound: Caller,
        clock: Clock,
        *,
        lease_s: float,
        patience: Patience,
        utc: Callable[[], float],
        new_id: Callable[[], UUID],
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._backend = backend
        self._outbound = outbound
        self._clock = clock
        self._lease_s = lease_s
        self._patience = patience
        self._utc = utc
        self._new_id = new_id
        self._gateway: UUID | None = None
        self._link: SharedLink | None = None
        self._key: bytes | None = None
        self._proxies: dict[UUID, WebProxy] = {}
        self._by_worker: dict[UUID, WebProxy] = {}
        self._principals: dict[UUID, str] = {}
        """Who registered each service."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._news = asyncio.Event()

    # the gateway's own worker

    def new_gateway_id(self) -> UUID:
        """An id for the gateway's own worker, by which it attends services from now on."""
        self._gateway = self._new_id()
        return self._gateway

    def connect(self, address: str, on_messages: OnMessages) -> SharedLink:
        """A link for the gateway's own worker. The services follow it to that dispatcher."""
        own = self._backend.connect(address, on_messages)
        if self._link is not None:
            self._link.close()
        self._link = self._backend.connect(address, self._receive)
        for proxy in self._proxies.values():
            proxy.connect()
        return own

    def joined(self) -> None:
        """The gateway's own worker is attended: now it may attend services."""
        self._news.set()

    # running

    async def run(self) -> None:
        """Attends services until it is cancelled."""
        try:
            await asyncio.gather(self._keep_attending(), self._keep_ticking())
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for proxy in self._proxies.values():
                proxy.hush()

    async def _keep_ticking(self) -> None:
        while True:
            now = self._clock.now()
            for proxy in list(self._proxies.values()):
                try:
                    proxy.tick(now)
                except Exception:  # one proxy's defect is not the others'
                    log.exception("web worker %s: its turn failed", proxy.id)
            await asyncio.sleep(TICK_S)

    async def _keep_attending(self) -> None:
        while True:
            self._news.clear()
            gateway = self._gateway
            if gateway is not None and self._link is not None:
                try:
                    await self._attend(gateway)
                except LongshoreError as error:
                    log.debug("no dispatcher says which web workers to attend: %s", error)
                except Exception:
                    log.exception("a round of attending web workers failed; the next one follows")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.web_attend_s):
                    await self._news.wait()

    def look(self) -> None:
        """Somebody registered or resigned: asks now rather than later."""
        self._news.set()

    async def _attend(self, gateway: UUID) -> None:
        notes = {note.id: note for note in map(_note, self._proxies.values()) if note is not None}
        try:
            answer = await self._requests.attend(gateway, list(self._proxies), list(notes.values()))
        except Exception:
            for id, note in notes.items():
                if id in self._proxies:
                    self._proxies[id].keep_note(note)
            raise
        if gateway != self._gateway:
            return
        self._told(notes.values())
        for id in answer.gone:
            self._drop(id)
        for id in answer.ended:
            self._drop(id, "its registration has ended")
        for web in answer.taken:
            try:
                await self._take(web)
            except LongshoreError:
                raise
            except Exception:
                log.exception("web worker %s cannot be attended", web.id)

    def _told(self, notes: Iterable[WebNote]) -> None:
        for note in notes:
            proxy = self._proxies.get(note.id)
            if proxy is None:
                continue
            if note.state is WebState.REMOVED:
                self._drop(note.id, "it was removed")
            elif note.worker is not None and note.worker == proxy.next_worker:
                self._by_worker.pop(proxy.worker, None)
                proxy.become(note.worker)
                self._by_worker[proxy.worker] = proxy

    async def _take(self, web: WebWorker) -> None:
        said = web.registration
        secret = await self.secret(web)
        client = ServiceClient(
            said,
            self._outbound,
            Signing(secret, self._settings.web_signatures, self._utc),
            web.adoptions,
            within_s=self._settings.web_request_s,
            most=self._settings.web_answer_bytes,
        )
        proxy = WebProxy(
            web,
            self._settings,
            self._lease_s,
            client,
            self._clock,
            patience=self._patience,
            say=self._say,
            spawn=self._spawn,
            new_id=self._new_id,
        )
        self._drop(web.id)
        self._proxies[web.id] = self._by_worker[proxy.worker] = proxy
        self._principals[web.id] = said.principal
        log.info("attending web worker %s at %s:%d", web.id, said.host, said.port)
        proxy.connect()

    def _drop(self, id: UUID, reason: str = "") -> None:
        """Attends a service no more. With a reason, nobody does: its worker leaves."""
        proxy = self._proxies.pop(id, None)
        if proxy is not None:
            self._by_worker.pop(proxy.worker, None)
            self._principals.pop(id, None)
            if reason:
                proxy.leave(reason)
            proxy.hush()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("a call of a web worker failed", exc_info=task.exception())

    # the link

    def close(self) -> None:
        """Closes the link."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _say(self, messages: Sequence[m.WorkerMessage]) -> None:
        if self._link is not None:
            for message in messages:
                self._link.send(b"", encode(message))

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _, frames in arrived:
            try:
                message = from_dispatcher.decode(frames)
            except ProtocolError as error:
                log.warning("the dispatcher sent what this gateway does not understand: %s", error)
                continue
            proxy = self._by_worker.get(message.worker)
            if proxy is not None:
                try:
                    proxy.receive(message)
                except Exception:
                    log.exception("web worker %s: a message to it failed", proxy.id)

    # what services and clients ask

    def check_address(self, host: str) -> None:
        """Raises if a service is at an address that may not be called."""
        try:
            address = str(ip_address(host))
        except ValueError:
            return
        refusal = self._outbound.allowed.refusal(address)
        if refusal is not None:
            raise InvalidInput(f"hostname {host}: {refusal}")

    async def secret(self, web: WebWorker) -> str:
        """The secret of a service."""
        if self._key is None:
            # For itself, not for the holder of the token that a request came with.
            with asked_by(None):
                self._key = await self._requests.fleet_key()
        return secret_of(self._key, web.id, web.number)

    async def report(self, report: Report, web_worker: UUID | None, principal: str) -> Verdict:
        """Has an end recorded that a service told this gateway, whoever attends it.

        An end from another principal than registered the service goes to a dispatcher, which
        judges it: a token of the role worker proves nobody the owner of a job.
        """
        for proxy in self._proxies.values():
            is_own = self._principals[proxy.id] == principal
            if is_own and proxy.owns(report.key) and web_worker in (None, proxy.id):
                verdict = await proxy.report(report, self._patience.resend_s)
                if verdict is not None:
                    return verdict
        return await self._requests.report(report, web_worker)


def _note(proxy: WebProxy) -> WebNote | None:
    return proxy.take_note()
