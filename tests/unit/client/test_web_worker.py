"""`longshore.asgi(app)` without a server: a test is its gateway, and speaks ASGI to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from longshore.client import web_worker
from longshore.client.app import App
from longshore.client.gateway_calls import GatewayCalls
from longshore.client.web_worker import WebWorker
from longshore.core.signatures import TO_SERVICE, signature
from longshore.testing.builders import new_id

app = App("web")


@app.job
async def linger() -> None:
    """Until it is stopped."""
    await asyncio.Event().wait()


class Calls(GatewayCalls):
    """Notes what the worker asks of its gateway, which takes everything."""

    def __init__(self) -> None:
        super().__init__("http://gateway.invalid")
        self.secret = "secret"
        self.is_confused = False
        self.registered: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.reported: asyncio.Queue[tuple[UUID, str]] = asyncio.Queue()

    async def register(self, me: dict[str, Any]) -> None:
        self.registered.put_nowait(me)
        if self.is_confused:
            raise KeyError("id")

    async def report(self, job: UUID, body: dict[str, Any]) -> None:
        self.reported.put_nowait((job, body["status"]))

    async def resign(self) -> None: ...


class Gateway:
    """Asks a web worker, signed."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.web = WebWorker(app, self.calls, "127.0.0.1", 1, 2, "")
        self._stop = asyncio.Event()

    async def ask(self, method: str, path: str, body: object = None, **told: object) -> int:
        data = b"" if body is None else json.dumps(body).encode()
        route, _, query = path.partition("?")
        now = int(time.time())
        signed = signature(self.calls.secret, TO_SERVICE, method, path, now, data)
        given = {"longshore-time": now, "longshore-signature": signed}
        given |= {f"longshore-{name.replace('_', '-')}": value for name, value in told.items()}
        headers = [(name.encode(), str(value).encode()) for name, value in given.items()]
        scope = {"type": "http", "method": method, "path": route, "headers": headers}
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"body": data}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.web({**scope, "query_string": query.encode()}, receive, send)
        return int(sent[0]["status"])

    async def check(self, no: int, **told: object) -> None:
        assert await self.ask("GET", "/health_check/", check=no, **told) == 200

    async def give(self, job: UUID, **told: object) -> int:
        body = {"id": str(job), "token": 1, "kind": "linger", "args": {}}
        return await self.ask("POST", "/jobs/", body, **told)

    async def live(self, started: asyncio.Event) -> None:
        async def receive() -> dict[str, Any]:
            if started.is_set():
                await self._stop.wait()
            return {}

        async def send(message: Any) -> None:
            started.set()

        await self.web({"type": "lifespan"}, receive, send)

    def stop(self) -> None:
        self._stop.set()


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(web_worker, "LOOK_S", 0.005)
    monkeypatch.setattr(web_worker, "UNASKED_S", 0.01)
    monkeypatch.setattr(web_worker, "LONGEST_PAUSE_S", 0.01)
    gateway, started = Gateway(), asyncio.Event()
    living = asyncio.create_task(gateway.live(started))
    await started.wait()
    yield gateway
    gateway.stop()
    await living


async def test_a_job_whose_lease_ends_goes_back_and_is_not_cancelled(gateway: Gateway) -> None:
    job = new_id()
    await gateway.check(1)
    assert await gateway.give(job, counted=1, lease_s=60) == 202
    await gateway.check(2, counted=1, lease_s=0)
    assert await asyncio.wait_for(gateway.calls.reported.get(), 10) == (job, "released")


async def test_a_job_that_is_deleted_is_cancelled(gateway: Gateway) -> None:
    job = new_id()
    assert await gateway.give(job) == 202
    assert await gateway.ask("DELETE", f"/jobs/{job}?token=1") == 202
    assert await asyncio.wait_for(gateway.calls.reported.get(), 10) == (job, "cancelled")


async def test_no_job_is_taken_while_the_lease_is_over(gateway: Gateway) -> None:
    await gateway.check(1)
    await gateway.check(2, counted=1, lease_s=0)
    assert await gateway.give(new_id()) == 409
    assert await gateway.give(new_id(), counted=2, lease_s=60) == 202


async def test_the_first_job_brings_the_lease(gateway: Gateway) -> None:
    await gateway.check(1)
    assert await gateway.give(new_id(), counted=1, lease_s=0) == 409


async def test_a_new_gateway_that_counts_from_1_renews_the_lease(gateway: Gateway) -> None:
    for no in range(1, web_worker.MAX_ANSWERS + 20):
        await gateway.check(no + 1)
    await gateway.check(1)
    assert await gateway.give(new_id(), counted=1, lease_s=0) == 409


async def test_it_registers_again_as_the_same_instance_when_nobody_asks_for_its_health(
    gateway: Gateway,
) -> None:
    first = await gateway.calls.registered.get()
    assert await asyncio.wait_for(gateway.calls.registered.get(), 10) == first


async def test_an_answer_that_makes_no_sense_does_not_end_its_registering(
    gateway: Gateway,
) -> None:
    gateway.calls.is_confused = True
    for _ in range(3):
        await asyncio.wait_for(gateway.calls.registered.get(), 10)


async def test_a_gateway_that_is_late_is_heeded_in_nothing(gateway: Gateway) -> None:
    """It was frozen, and another one has adopted the worker meanwhile."""
    await gateway.check(1, adoption=1)
    await gateway.check(1, adoption=2)
    job = new_id()
    assert await gateway.give(job, adoption=2) == 202
    assert await gateway.give(new_id(), adoption=1) == 409
    assert await gateway.ask("DELETE", f"/jobs/{job}?token=1", adoption=1) == 409
    assert await gateway.ask("GET", "/health_check/", check=2, adoption=1) == 409
    assert await gateway.ask("GET", f"/jobs/{job}", adoption=2) == 200


async def test_answers_to_an_earlier_gateway_bring_no_lease_of_the_next(gateway: Gateway) -> None:
    """Each numbers its health checks from 1."""
    await gateway.check(1, adoption=1)
    await gateway.check(7, adoption=2)
    assert await gateway.give(new_id(), adoption=2, counted=1, lease_s=0) == 202, "not that one"
    assert await gateway.give(new_id(), adoption=2, counted=7, lease_s=0) == 409


async def test_a_new_registration_counts_its_adoptions_anew(gateway: Gateway) -> None:
    await gateway.check(1, adoption=5)
    gateway.calls.id = "another"
    await gateway.check(1, adoption=1)


async def test_no_job_is_taken_before_the_registration_is_answered(gateway: Gateway) -> None:
    """It may be meant for whoever was at this address before: it goes back, and does not fail."""
    gateway.calls.secret = ""
    assert await gateway.give(new_id()) == 409
    await gateway.check(1)
