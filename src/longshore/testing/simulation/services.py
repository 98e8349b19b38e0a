"""Web services: the four routes, played by the book that `docs/web-workers.md` is.

A service lists what it runs until the end of that is answered, and heeds its lease. It remembers
nothing of what has ended. `Knowledge` and `is_careless` say in what it falls short.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final
from uuid import UUID

from longshore.client.web_reports import body_of
from longshore.core.signatures import TO_SERVICE, is_signed
from longshore.gateway.service_client import ADOPTION, CHECK, COUNTED, LEASE, SIGNATURE, TIME
from longshore.links.outbound import Answer, Request, Unanswered
from longshore.model.attempt import Assignment
from longshore.model.job import LogEntry
from longshore.model.reports import CancelReport, ReleaseReport, Report
from longshore.testing.simulation.bodies import Script, SimulatedExecutor, Witness
from longshore.testing.simulation.cluster import Node, World
from longshore.testing.simulation.loop import Process
from longshore.testing.simulation.web_plans import Knowledge, ServicePlan

ABORT_BEFORE_S: Final = 5.0
"""So long before its lease ends a service stops its jobs."""
ABORT_GRACE_S: Final = 2.0
LOOK_S: Final = 0.5
ANSWER_S: Final = 5.0
PAUSE_S: Final = 0.5
UNASKED_S: Final = 60.0
"""After so long without a health check it registers again: it may have been removed."""
FORGETS: Final = 0.3
"""The share of its jobs that a service loses, if it is one that does."""
_REFUSED: Final = frozenset({400, 404, 409, 413, 422})

OnChecked = Callable[[str, bool], None]
"""Told that a service answered a health check (False), or refused a job (True)."""


class ServiceNode(Node):
    """Runs one service, which begins each life with nothing but its address."""

    def __init__(
        self,
        world: World,
        plan: ServicePlan,
        gateways: Sequence[str],
        script: Script,
        witness: Witness,
        on_checked: OnChecked,
    ) -> None:
        super().__init__(world, plan.node)
        self._plan = plan
        self._gateways = gateways
        self._script = script
        self._witness = witness
        self._on_checked = on_checked
        self.service: Service | None = None

    @property
    def max_jobs(self) -> int:
        """How many jobs it takes at once."""
        return self._plan.max_jobs

    async def live(self, process: Process) -> None:
        """Answers, and registers until it is known."""
        calls = _Calls(self.world, self._gateways, process)
        executed = self._script, self._witness
        self.service = Service(self._plan, calls, *executed, self._on_checked)
        self.world.http.listen(process, self.service.answer)
        self.up_since = self.world.loop.time()
        await self.service.run()

    def kill(self, why: str) -> None:
        """Whoever is at its address next may be given under the same token what this one ran."""
        service = self.service
        if self.process is not None and service is not None:
            for attempt in service.jobs.items():
                self._witness.forgot(attempt)
        super().kill(why)

    async def leave(self) -> None:
        """Resigns, and stops its jobs."""
        if self.service is not None:
            await self.service.leave()


class _Calls:
    """What a service asks of gateways: whichever it finds."""

    def __init__(self, world: World, gateways: Sequence[str], process: Process) -> None:
        self.process = process
        self.random = Random(f"{world.seed}/{process.name}")
        self.world = world
        self._gateways = gateways

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the document of an answer; 0 if there is none."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        url = f"http://{self.random.choice(self._gateways)}:80{path}"
        request = Request(url=url, method=method, headers=headers, body=data)
        try:
            answer = await self.world.http.send(request, within_s=ANSWER_S)
        except Unanswered:
            return 0, {}
        return answer.status, json.loads(answer.body or b"{}")


class Service:
    """One life of a service."""

    def __init__(
        self,
        plan: ServicePlan,
        calls: _Calls,
        script: Script,
        witness: Witness,
        on_checked: OnChecked,
    ) -> None:
        self._plan = plan
        self._calls = calls
        self._on_checked = on_checked
        self._now = calls.world.loop.time
        self.id: UUID | None = None
        """The id of its registration."""
        self._secret = ""
        self.jobs: dict[UUID, int] = {}
        """The tokens of what it runs, or has run and not reported."""
        self._answered: dict[int, float] = {}
        """When it answered each health check of the gateway that attends it."""
        self._adoption = 0
        self._stop_at = float("inf")
        self._asked = asyncio.Event()
        self._is_leaving = False
        self._idle = asyncio.Event()
        """Set when it has nothing left that it runs or has to report."""
        self._executor = SimulatedExecutor(
            plan.max_jobs,
            {},
            self._ended,
            self._said,
            script=script,
            witness=witness,
            abort_grace_s=ABORT_GRACE_S,
        )

    # its registration

    async def run(self) -> None:
        """Registers, and again when nobody asks for its health."""
        heeding = asyncio.create_task(self._heed())
        me = {
            "hostname": self._plan.node,
            "port": 80,
            "handlers": list(self._plan.kinds),
            "maxJobs": self._plan.max_jobs,
            "instance": self._calls.process.name,
        }
        while not heeding.done():
            status, said = await self._calls.ask("PUT", "/dispatcher/workers/", me)
            if status not in (200, 201):
                await asyncio.sleep(PAUSE_S)
                continue
            self._secret = said["secret"]
            self._registered(UUID(said["id"]))
            await self._unasked()

    def _registered(self, id: UUID) -> None:
        if id != self.id:
            self._adoption = 0
        self.id = id
        names = self._calls.world.trace.names
        if id not in names:
            names[id] = f"{self._calls.process.name}({id.hex[-4:]})"

    async def _unasked(self) -> None:
        try:
            while True:
                self._asked.clear()
                async with asyncio.timeout(UNASKED_S):
                    await self._asked.wait()
        except TimeoutError:
            pass

    async def leave(self) -> None:
        """Takes nothing more, hands its jobs back, and resigns."""
        self._is_leaving = True
        for job, token in list(self.jobs.items()):
            self._executor.abort(ReleaseReport(job, token))
        if self.jobs:
            await self._idle.wait()
        if self.id is not None:
            await self._calls.ask("DELETE", f"/dispatcher/workers/{self.id}")

    # the four routes

    async def answer(self, request: Request) -> Answer:
        """Answers a gateway."""
        path = "/" + request.url.split("/", 3)[-1]
        if self.id is not None and not self._is_signed(request, path):
            return _answer(403)
        if self._is_late(request):
            return _answer(409)
        if path == "/health_check/":
            return _answer(200, self._health(request))
        if request.method == "POST":
            return _answer(self._posted(request))
        name, _, query = path.removeprefix("/jobs/").partition("?token=")
        job = UUID(name)
        token = self.jobs.get(job)
        if token is None:
            return _answer(404)
        if request.method == "GET":
            return _answer(200, {"id": name, "token": token})
        if query != str(token):
            return _answer(404)
        self._executor.abort(CancelReport(job, token))
        return _answer(202)

    def _posted(self, request: Request) -> int:
        """Takes a job, once it is registered: what its address was given before is not its own."""
        if self.id is None:
            return 409
        self._renew(request)
        status = self._take(json.loads(request.body))
        if status == 409:
            self._on_checked(self._plan.node, True)
        return status

    def _is_signed(self, request: Request, path: str) -> bool:
        """Whether a gateway speaks to this very registration, not to another at its address."""
        at, now = int(request.headers[TIME]), self._calls.world.clock.utc().timestamp()
        what = TO_SERVICE, request.method, path, at, request.body, now
        return is_signed(self._secret, request.headers[SIGNATURE], *what)

    def _is_late(self, request: Request) -> bool:
        """Whether another gateway has adopted the service since: then this one is not heeded."""
        adoption = int(request.headers[ADOPTION])
        if adoption > self._adoption:
            self._adoption = adoption
            self._answered.clear()
        return adoption < self._adoption

    def _health(self, request: Request) -> dict[str, Any]:
        self._asked.set()
        self._renew(request)
        check = int(request.headers[CHECK])
        self._answered.pop(check, None)
        self._answered[check] = self._now()
        self._on_checked(self._plan.node, False)
        if self._plan.knowledge is Knowledge.SILENT:
            return {}
        return {"jobs": [{"id": str(job), "token": token} for job, token in self.jobs.items()]}

    def _renew(self, request: Request) -> None:
        """An answer that counted makes the lease last from when that answer was sent."""
        counted = int(request.headers.get(COUNTED, "0"))
        if counted in self._answered:
            lease_s = float(request.headers[LEASE])
            self._stop_at = self._answered[counted] + lease_s - min(ABORT_BEFORE_S, lease_s / 3)

    def _take(self, posted: dict[str, Any]) -> int:
        job, token = UUID(posted["id"]), posted["token"]
        has_room = len(self.jobs) < self._plan.max_jobs
        if self._plan.is_careless and not has_room:
            return 409
        if self.jobs.get(job) == token:
            return 202
        if job in self.jobs or not has_room or self._is_closed():
            return 409
        self.jobs[job] = token
        self._idle.clear()
        timeout_s, attempt = posted["timeout_s"], posted["attempt"]
        one = Assignment(job, token, 0, posted["kind"], b"\x80", timeout_s, attempt)
        self._executor.start(one)
        if self._plan.knowledge is Knowledge.FORGETS and self._calls.random.random() < FORGETS:
            after_s = self._calls.random.uniform(0.0, 5.0)
            asyncio.get_running_loop().call_later(after_s, self._forget, one)
        return 202

    def _is_closed(self) -> bool:
        now = self._now()
        refuses = self._is_leaving or any(a <= now < b for a, b in self._plan.refuses)
        return refuses or now >= self._stop_at

    # jobs

    async def _heed(self) -> None:
        """Stops all jobs before others may get them: no gateway renewed the lease."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._now() >= self._stop_at:
                for job, token in list(self.jobs.items()):
                    self._executor.abort(ReleaseReport(job, token))

    def _forget(self, one: Assignment) -> None:
        if self._executor.forget(one.key):
            del self.jobs[one.job]

    def _said(self, entry: LogEntry) -> None:
        """A service has no way to log."""

    def _ended(self, report: Report, took_s: float | None = None, /) -> None:
        self._calls.process.start(self._report(report))

    async def _report(self, report: Report) -> None:
        """Tells how a job ended until a gateway has taken or refused it."""
        while True:
            path = f"/dispatcher/jobs/{report.job}/result"
            status, _ = await self._calls.ask("PUT", path, body_of(report))
            if 200 <= status < 300 or status in _REFUSED:
                break
            await asyncio.sleep(PAUSE_S)
        del self.jobs[report.job]
        if not self.jobs:
            self._idle.set()


def _answer(status: int, document: object = None) -> Answer:
    return Answer(status, {}, b"{}" if document is None else json.dumps(document).encode())
