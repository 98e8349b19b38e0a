"""The web workers of a gateway: a defect in one of them does not end the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from longshore.config import GatewaySettings
from longshore.core.addresses import allowed
from longshore.gateway.backend import Backend
from longshore.gateway.web_proxy import WebProxy
from longshore.gateway.web_workers import WebWorkers
from longshore.links.outbound import Outbound
from longshore.model.job import Verdict
from longshore.model.reports import Report, SuccessReport
from longshore.model.web_worker import WebRegistration, WebWorker
from longshore.run.machine import SystemClock
from longshore.testing.builders import new_id
from longshore.wire.web_messages import Attendance
from longshore.wire.worker_side import Patience


class Requests:
    """A dispatcher whose first answer is a defect, and which then has two services."""

    def __init__(self) -> None:
        self.rounds = 0
        self.webs = [a_service(), a_service()]

    async def attend(self, gateway: UUID, attended: Sequence[UUID], notes: object) -> Attendance:
        self.rounds += 1
        if self.rounds == 1:
            raise ZeroDivisionError("a defect")
        return Attendance(taken=tuple(web for web in self.webs if web.id not in attended))

    async def report(self, report: Report, web_worker: UUID | None) -> Verdict:
        return Verdict.STALE

    async def fleet_key(self) -> bytes:
        return bytes(32)


class Deaf:
    """A socket to a dispatcher that says nothing."""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        return True

    def key_of(self, peer: bytes) -> str:
        return ""

    def close(self) -> None:
        pass


def a_service(principal: str = "") -> WebWorker:
    said = WebRegistration(
        host="127.0.0.1", port=1, kinds=("work",), max_jobs=2, principal=principal
    )
    id = new_id()
    return WebWorker(
        id=id, number=1, registration=said, worker=id, registered_at=datetime.now(UTC), adoptions=1
    )


def web_workers(requests: Requests) -> WebWorkers:
    return WebWorkers(
        GatewaySettings(web_attend_s=0.01),
        requests,  # type: ignore[arg-type]
        Backend(("tcp://127.0.0.1:1",), lambda address, heard: Deaf()),
        Outbound(allowed([], loopback=True)),
        SystemClock(),
        lease_s=15.0,
        patience=Patience(),
        utc=lambda: 0.0,
        new_id=new_id,
    )


async def test_defect_in_a_round_or_in_one_proxy_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests, ticked = Requests(), asyncio.Event()
    first, second = (web.id for web in requests.webs)

    def tick(proxy: WebProxy, now: float) -> None:
        if proxy.id == first:
            raise ZeroDivisionError("a defect")
        assert proxy.id == second
        ticked.set()

    monkeypatch.setattr(WebProxy, "tick", tick)
    web = web_workers(requests)
    web.new_gateway_id()
    web.connect("tcp://127.0.0.1:1", lambda arrived: None)
    running = asyncio.create_task(web.run())
    async with asyncio.timeout(5):
        await ticked.wait()
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_dispatcher_judges_an_end_that_another_principal_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway that attends the service has the job, and tokens of attempts can be guessed."""

    async def recorded(proxy: WebProxy, report: Report, within_s: float) -> Verdict:
        return Verdict.RECORDED

    monkeypatch.setattr(WebProxy, "owns", lambda proxy, attempt: True)
    monkeypatch.setattr(WebProxy, "report", recorded)
    web, service = web_workers(Requests()), a_service("owner")
    await web._take(service)
    report = SuccessReport(new_id(), 7)
    assert await web.report(report, None, "owner") is Verdict.RECORDED
    for principal in ("other", ""):
        assert await web.report(report, None, principal) is Verdict.STALE
        assert await web.report(report, service.id, principal) is Verdict.STALE
