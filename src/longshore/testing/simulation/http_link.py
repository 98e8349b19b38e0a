"""HTTP between simulated processes: requests and answers come late, twice or never.

A request goes to the process at the host that its address names. One that is frozen reads it when
it thaws, as the kernel keeps it. Where none lives, the connection is refused. A way that is cut
holds what is under way until it heals, or until the caller gives up and closes the connection.
Only requests that may be repeated by anybody on the way (all but POST) arrive twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Struct

from longshore.core.addresses import Allowed
from longshore.links.outbound import MAX_ANSWER_BYTES, Answer, Request, Unanswered, Unreached
from longshore.testing.simulation.loop import Process, SimulatedLoop, current_process
from longshore.testing.simulation.network import Network, Way
from longshore.testing.simulation.trace import Trace

HELD_S: Final = 0.5
"""How long after a way has healed what it held comes through, at most."""
TWICE_WITHIN_S: Final = 2.0
CHATTER: Final = UUID(int=0)
"""What no job is concerned by is about this one: so it is part of no job's story."""

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Serve = Callable[[Request], Awaitable[Answer]]


class HttpWeather(Struct):
    """How HTTP is at present: shares of requests, and a delay each way."""

    lost: float = 0.0
    """They never arrive."""
    unanswered: float = 0.0
    """They arrive, but their answers do not."""
    doubled: float = 0.0
    """They arrive twice."""
    late_s: float = 0.0


class HttpLink:
    """Who listens where. It is the `Caller` of every simulated process."""

    allowed = Allowed()

    def __init__(self, network: Network, random: Random, trace: Trace) -> None:
        self.network = network
        self.random = random
        self.weather = HttpWeather()
        self.servers: dict[str, tuple[Process, Serve]] = {}
        self.spoilt = 0
        """How many requests it lost or doubled."""
        self._trace = trace

    def listen(self, process: Process, serve: Serve) -> None:
        """A process answers what comes to its host, which is its node."""
        self.servers[process.node] = process, serve

    async def send(
        self, request: Request, *, within_s: float, most: int = MAX_ANSWER_BYTES
    ) -> Answer:
        """The answer to a request of the process that takes its turn."""
        call = _Call(self, request)
        try:
            async with asyncio.timeout(within_s):
                return await call.answer
        except TimeoutError:
            raise Unanswered(f"no answer came within {within_s:g} s") from None
        finally:
            call.is_over = True

    def note(self, who: str, text: str, request: Request) -> None:
        """Something happened to a request."""
        found = [UUID(text) for text in _ID.findall(request.url)]
        found += [UUID(text) for text in _ID.findall(request.body.decode(errors="replace"))]
        about = found if "/jobs/" in request.url and found else [CHATTER]
        self._trace.note(self.network.loop.time(), who, text, *about)


class _Call:
    """One request, and its answer."""

    def __init__(self, link: HttpLink, request: Request) -> None:
        self._link = link
        self._loop: SimulatedLoop = link.network.loop
        self._request = request
        self._caller = current_process()
        self._way: Way = self._caller.node, urlsplit(request.url).hostname or ""
        path = request.url.split("/", 3)[-1]
        self._words = f"{request.method} /{path}"
        self.answer: asyncio.Future[Answer] = self._loop.create_future()
        self.is_over = False
        """Whether the caller waits no more: what has not arrived by then never does."""
        self._begin()

    def _begin(self) -> None:
        weather, random = self._link.weather, self._link.random
        self._note(self._caller, f"asks {self._way[1]}: {self._words}")
        if random.random() < weather.lost:
            self._link.spoilt += 1
            self._later(self._way, self._fail, Unanswered("the connection broke"))
            return
        self._later(self._way, self._arrive, True)
        if self._request.method != "POST" and random.random() < weather.doubled:
            self._link.spoilt += 1
            after_s = random.uniform(0.0, TWICE_WITHIN_S)
            self._later(self._way, self._arrive, False, after_s=after_s)

    def _note(self, process: Process, text: str) -> None:
        self._link.note(process.name, text, self._request)

    def _later(
        self, way: Way, then: Callable[..., None], *args: object, after_s: float = 0.0
    ) -> None:
        slow_s = self._link.random.uniform(0.0, self._link.weather.late_s)
        at = self._loop.time() + self._link.network.delay_s(way) + slow_s + after_s
        self._loop.outside_at(at, then, *args)

    def _hold(self, then: Callable[..., None], *args: object) -> None:
        at = self._loop.time() + self._link.random.uniform(0.0, HELD_S)
        self._loop.outside_at(at, then, *args)

    def _arrive(self, first: bool) -> None:
        if self.is_over or (self._caller.dead and self._link.random.random() < 0.5):
            return
        if self._link.network.is_cut(self._way):
            self._hold(self._arrive, first)
            return
        process, serve = self._link.servers.get(self._way[1], (None, None))
        if process is None or serve is None or process.dead:
            self._later(self._back, self._fail, Unreached("cannot connect: Connection refused"))
            return
        self._loop.call_soon(self._serve, process, serve, first, context=process.context)

    @property
    def _back(self) -> Way:
        return self._way[1], self._way[0]

    def _serve(self, process: Process, serve: Serve, first: bool) -> None:
        process.start(self._answer(process, serve, first))

    async def _answer(self, process: Process, serve: Serve, first: bool) -> None:
        answer = await serve(self._request)
        again = "" if first else " again"
        self._note(process, f"answers {self._way[0]}{again}: {answer.status} to {self._words}")
        if not first:
            return
        if self._link.random.random() >= self._link.weather.unanswered:
            self._later(self._back, self._return, answer)
        elif self._link.random.random() < 0.5:
            self._later(self._back, self._fail, Unanswered("the connection broke"))

    def _return(self, answer: Answer) -> None:
        if self._link.network.is_cut(self._back):
            self._hold(self._return, answer)
        else:
            self._loop.call_soon(self._settle, answer, None, context=self._caller.context)

    def _fail(self, error: Exception) -> None:
        self._loop.call_soon(self._settle, None, error, context=self._caller.context)

    def _settle(self, answer: Answer | None, error: Exception | None) -> None:
        if self.answer.done():
            return
        if answer is not None:
            self.answer.set_result(answer)
        elif error is not None:
            self.answer.set_exception(error)
