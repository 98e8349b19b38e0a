"""What a web worker does with the answers of a gateway."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from longshore.client.gateway_calls import GatewayCalls
from longshore.testing.builders import new_id


class Gateway:
    """Answers each PUT with the next of `statuses`, then with 200."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.asked = 0
        gateway = self

        class Routes(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                gateway.asked += 1
                self.send_response(gateway.statuses.pop(0) if gateway.statuses else 200)
                self.send_header("Retry-After", "7")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Routes)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.server.shutdown()
    gateway.server.server_close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that it makes, which take no time."""
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


async def reported(gateway: Gateway) -> int:
    calls = GatewayCalls(f"http://127.0.0.1:{gateway.server.server_port}")
    await calls.report(new_id(), {"token": 1, "status": "succeeded", "result": 1})
    return gateway.asked


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 503])
async def test_an_end_is_reported_again_after_the_pause_that_the_gateway_asks_for(
    gateway: Gateway, pauses: list[float], status: int
) -> None:
    gateway.statuses = [status]
    assert await reported(gateway) == 2
    assert pauses == [7.0]


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422])
async def test_an_end_that_is_refused_for_good_is_reported_once(
    gateway: Gateway, pauses: list[float], status: int
) -> None:
    gateway.statuses = [status]
    assert await reported(gateway) == 1
