"""An app as a web worker: an ASGI application with the four routes that gateways call.

It is for those who can host web services only. Jobs run in the process of the server: `async def`
ones in its event loop, plain ones in threads, which nothing can stop but the job itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, cast
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from longshore.client.gateway_calls import LONGEST_PAUSE_S, GatewayCalls
from longshore.client.web_reports import body_of
from longshore.core.leases import Lease
from longshore.core.signatures import FROM_SERVICE, TO_SERVICE, is_signed, signature
from longshore.core.turns import is_turn_kind
from longshore.errors import InvalidInput
from longshore.executors.attempts import timed_out
from longshore.executors.host.call import Call, prepare, succeeded
from longshore.executors.host.context import Cancelled, RunningContext, enter
from longshore.executors.host.failures import raised
from longshore.model.attempt import Assignment
from longshore.model.reports import CancelReport, ReleaseReport, Report
from longshore.payload.values import pack
from longshore.ports import App, Handlers

log = logging.getLogger("longshore.web_worker")

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
ABORT_BEFORE_S: Final = 5.0
"""So long before its lease ends it stops its jobs; a third of the lease, if that is less."""
LOOK_S: Final = 0.5
UNASKED_S: Final = 150.0
"""After so long without a health check it registers again: more than twice the interval at which
the dead are asked. If it is still registered, that changes nothing."""
NOT_REGISTERED: Final = "this worker is not registered yet"
MAX_ANSWERS: Final = 100
"""So many of its last health answers it remembers the times of."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_ENDS: Final = (Exception, SystemExit, asyncio.CancelledError, Cancelled)


class _Posted(Struct, frozen=True):
    """A job as a gateway posts it."""

    id: UUID
    token: int
    kind: str
    args: Any = None
    timeout_s: float | None = None
    attempt: int = 1
    raw: bool = False

    def assignment(self) -> Assignment:
        """The attempt that it is; raises `InvalidInput` if its arguments cannot be read."""
        try:
            args = b64decode(self.args, validate=True) if self.raw else pack(self.args, "args")
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the arguments cannot be read: {error}") from None
        return Assignment(
            self.id, self.token, 0, self.kind, args, self.timeout_s, self.attempt, self.raw
        )


class _Running(Struct):
    """A job that runs here, until its gateway has taken its end."""

    assignment: Assignment
    context: RunningContext
    task: asyncio.Task[None] | None = None
    body: asyncio.Future[Report] | None = None
    is_cancelled: bool = False
    """Whether a gateway asked to stop it. Otherwise what is stopped goes back."""


class WebWorker:
    """The jobs of one app, behind the four routes. It registers when its server starts."""

    def __init__(
        self, app: App, calls: GatewayCalls, host: str, port: int, max_jobs: int, target: str
    ) -> None:
        self._app = app
        self._handlers: Handlers = {}
        self._calls = calls
        self._me = {"hostname": host, "port": port, "maxJobs": max_jobs, "target": target}
        self._max_jobs = max_jobs
        self._jobs: dict[UUID, _Running] = {}
        self._answered: dict[int, float] = {}
        self._registration = ""
        self._adoption = 0
        """How often gateways adopted its registration, as far as it heard."""
        self._asked = asyncio.Event()
        self._stop_at = float("inf")
        self._resources = contextvars.copy_context()

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or serves from the server's start to its end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._respond(scope, receive, send)
        else:
            raise RuntimeError(f"a web worker speaks HTTP, not {scope['type']}")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            self._handlers = {
                kind: one for kind, one in self._app.handlers().items() if not is_turn_kind(kind)
            }
            for pool in {handler.info.pool for handler in self._handlers.values()}:
                if (span := self._app.lifespan(cast(Any, pool))) is not None:
                    await stack.enter_async_context(span)
            self._resources = contextvars.copy_context()
            tasks = [
                asyncio.create_task(self._keep_registered()),
                asyncio.create_task(self._heed()),
            ]
            await send({"type": "lifespan.startup.complete"})
            await receive()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave()
        await send({"type": "lifespan.shutdown.complete"})

    async def _keep_registered(self) -> None:
        """Registers, and again if nobody asks for its health: it may have been removed."""
        handlers: dict[str, object] = {kind: {} for kind in self._handlers}
        me = {**self._me, "handlers": handlers, "instance": str(uuid4())}
        while True:
            try:
                await self._calls.register(me)
            except Exception:
                log.exception("the registration failed; it is tried again")
                await asyncio.sleep(LONGEST_PAUSE_S)
                continue
            await self._unasked()

    async def _unasked(self) -> None:
        """Waits until nobody has asked for its health for long."""
        with suppress(TimeoutError):
            while True:
                self._asked.clear()
                async with asyncio.timeout(UNASKED_S):
                    await self._asked.wait()

    async def _leave(self) -> None:
        """Gives its jobs back, and stops them."""
        await self._calls.resign()
        for running in list(self._jobs.values()):
            self._stop(running)
        ending = [one.task for one in self._jobs.values() if one.task is not None]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, query = scope["method"], scope.get("query_string", b"").decode("latin-1")
        path = scope["path"] + (f"?{query}" if query else "")
        headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
        told = {name: value.decode("latin-1") for name, value in headers.items()}
        body = await _read(receive)
        document: object
        if body is None:
            status, document = 413, {"detail": f"a body has at most {MAX_BODY_BYTES:,} bytes"}
        elif not self._is_from_gateway(method, path, told, body):
            status, document = 403, {"detail": "the request is not signed by a gateway"}
        elif self._is_late(told):
            status, document = 409, {"detail": "another gateway attends this worker by now"}
        else:
            status, document = self._route(method, scope["path"], query, told, body)
        data = msgspec.json.encode(document)
        signed = [(b"content-type", b"application/json"), *self._signed(method, path, data)]
        await send({"type": "http.response.start", "status": status, "headers": signed})
        await send({"type": "http.response.body", "body": data})

    def _is_from_gateway(self, method: str, path: str, told: dict[str, str], body: bytes) -> bool:
        """Gateways sign. Before its registration is answered, it knows no secret."""
        if not self._calls.secret:
            return path in ("/health_check/", "/jobs/")
        given, at = told.get("longshore-signature", ""), told.get("longshore-time", "")
        if not (at.isascii() and at.isdigit() and len(at) < 15):
            return False
        what = (TO_SERVICE, method, path, int(at), body, time.time())
        return is_signed(self._calls.secret, given, *what)

    def _is_late(self, told: dict[str, str]) -> bool:
        """Whether a gateway speaks that was frozen while another one adopted this worker."""
        try:
            adoption = int(told.get("longshore-adoption", "0"))
        except ValueError:
            return False
        if self._registration != self._calls.id:
            self._registration, self._adoption = self._calls.id, 0
        if adoption > self._adoption:
            # The next gateway numbers its health checks anew.
            self._adoption = adoption
            self._answered.clear()
        return 0 < adoption < self._adoption

    def _signed(self, method: str, path: str, body: bytes) -> list[tuple[bytes, bytes]]:
        if not self._calls.secret:
            return []
        now = int(time.time())
        made = signature(self._calls.secret, FROM_SERVICE, method, path, now, body)
        return [(b"longshore-time", str(now).encode()), (b"longshore-signature", made.encode())]

    # the four routes

    def _route(
        self, method: str, path: str, query: str, told: dict[str, str], body: bytes
    ) -> tuple[int, object]:
        if (method, path) == ("GET", "/health_check/"):
            return 200, self._health(told)
        if (method, path) == ("POST", "/jobs/"):
            self._renew(told)
            return self._take(body) if self._calls.secret else (409, {"detail": NOT_REGISTERED})
        with suppress(ValueError):
            running = self._jobs.get(UUID(path.removeprefix("/jobs/")))
            if running is not None and method == "GET":
                return 200, _held(running)
            is_meant = running is not None and query == f"token={running.assignment.token}"
            if running is not None and is_meant and method == "DELETE":
                running.is_cancelled = True
                self._stop(running)
                return 202, {}
        return 404, {"detail": "there is no such job here"}

    def _health(self, told: dict[str, str]) -> dict[str, object]:
        """What runs here."""
        self._asked.set()
        self._renew(told)
        with suppress(ValueError):
            check = int(told.get("longshore-check", "0"))
            self._answered.pop(check, None)
            self._answered[check] = time.monotonic()
            while len(self._answered) > MAX_ANSWERS:
                del self._answered[next(iter(self._answered))]
        return {"jobs": [_held(one) for one in self._jobs.values()]}

    def _renew(self, told: dict[str, str]) -> None:
        """An answer that counted makes the lease last from when that answer was sent."""
        with suppress(ValueError):
            counted = int(told.get("longshore-counted", "0"))
            lease_s = float(told.get("longshore-lease-s", "0"))
            if counted in self._answered:
                lease = Lease(self._answered[counted], lease_s)
                self._stop_at = lease.abort_at(ABORT_BEFORE_S)

    def _take(self, body: bytes) -> tuple[int, object]:
        try:
            assignment = msgspec.json.decode(body, type=_Posted).assignment()
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as error:
            return 400, {"detail": f"it is not a job: {error}"}
        known = self._jobs.get(assignment.job)
        if known is not None and known.assignment.token == assignment.token:
            return 202, {}
        if known is not None or len(self._jobs) >= self._max_jobs:
            return 409, {"detail": "all slots are taken"}
        if time.monotonic() >= self._stop_at:
            return 409, {"detail": "the lease is over, and no gateway has renewed it"}
        running = _Running(assignment, RunningContext(assignment, lambda _: None))
        self._jobs[assignment.job] = running
        work = self._run(running)
        loop = asyncio.get_running_loop()
        running.task = loop.create_task(work, context=self._resources.copy())
        return 202, {}

    # jobs

    async def _run(self, running: _Running) -> None:
        """Runs a job, and reports its end until a gateway has taken it or refused it."""
        one = running.assignment
        running.body = asyncio.ensure_future(self._perform(running))
        if running.context.cancelled:
            # It was stopped before it began.
            running.body.cancel()
        await asyncio.wait({running.body}, timeout=one.timeout_s)
        if not running.body.done() and not running.context.cancelled:
            report = timed_out(one)
            self._stop(running)
        else:
            await asyncio.wait({running.body})
            report = self._judged(running)
        await self._calls.report(one.job, body_of(report, raw=one.raw))
        # A plain function that goes on after its timeout keeps its slot until it returns.
        await asyncio.wait({running.body})
        del self._jobs[one.job]

    def _judged(self, running: _Running) -> Report:
        body = running.body
        if running.context.cancelled or body is None or body.cancelled():
            stopped = CancelReport if running.is_cancelled else ReleaseReport
            return stopped(*running.assignment.key)
        return body.result()

    async def _perform(self, running: _Running) -> Report:
        handler = self._handlers.get(running.assignment.kind)
        if handler is None or handler.is_async:
            return await self._perform_async(running)
        return await asyncio.to_thread(self._perform_plain, running)

    async def _perform_async(self, running: _Running) -> Report:
        enter(running.context)
        call = prepare(running.assignment, self._handlers)
        if not isinstance(call, Call):
            return call
        try:
            value = await cast(Awaitable[object], call.begin())
        except _ENDS as error:
            return raised(running.assignment, error, call.handler)
        return succeeded(running.assignment, call.handler, running.context, value)

    def _perform_plain(self, running: _Running) -> Report:
        enter(running.context)
        call = prepare(running.assignment, self._handlers)
        if not isinstance(call, Call):
            return call
        try:
            value = call.begin()
        except _ENDS as error:
            return raised(running.assignment, error, call.handler)
        return succeeded(running.assignment, call.handler, running.context, value)

    def _stop(self, running: _Running) -> None:
        """Stops a coroutine at its next await; a plain function sees it in its context."""
        running.context.mark_cancelled()
        handler = self._handlers.get(running.assignment.kind)
        if running.body is not None and handler is not None and handler.is_async:
            running.body.cancel()

    async def _heed(self) -> None:
        """Stops all jobs before others may get them: no gateway renewed the lease."""
        while True:
            await asyncio.sleep(LOOK_S)
            going = [one for one in self._jobs.values() if not one.context.cancelled]
            if going and time.monotonic() >= self._stop_at:
                log.warning("no gateway renewed the lease; handing %d jobs back", len(going))
                for running in going:
                    self._stop(running)


def _held(running: _Running) -> dict[str, object]:
    return {"id": str(running.assignment.job), "token": running.assignment.token}


async def _read(receive: Receive) -> bytes | None:
    """The body of a request; None if it is too large."""
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(parts)
