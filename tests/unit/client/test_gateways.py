"""Which gateways a client may ask: named ones, or those of the fleet that it can reach."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from longshore.client.gateways import gateway_urls
from longshore.model.worker import MachineInfo, WorkerInfo, WorkerView

AT = datetime(2026, 1, 31, tzinfo=UTC)


class Connected:
    """A connection to these addresses, over which these workers are seen."""

    def __init__(
        self, *workers: WorkerView, addresses: tuple[str, ...] = ("tcp://d:7702",)
    ) -> None:
        self.addresses = addresses
        self._workers = workers

    async def workers(self) -> tuple[WorkerView, ...]:
        return self._workers


def a_gateway(url: str, *, host: str = "there", alive: bool = True) -> WorkerView:
    return WorkerView(
        info=WorkerInfo(id=UUID(int=5), host=host, gateway=True, machine=MachineInfo(url=url)),
        session=1,
        dispatcher=UUID(int=6),
        alive=alive,
        draining=False,
        running={},
        started_at=AT,
        attended_at=AT,
    )


async def test_a_gateway_that_is_named_is_asked() -> None:
    named: Any = Connected(a_gateway("http://a:1"), addresses=("tcp://d:7702", "http://g:7700/"))
    assert await gateway_urls(named) == ["http://g:7700"]


async def test_dispatchers_know_the_others() -> None:
    here = socket.gethostname()
    connected: Any = Connected(
        a_gateway("https://b:7700"),
        a_gateway("http://a:7700"),
        a_gateway("http://gone:7700", alive=False),
        a_gateway(""),
        a_gateway("http://127.0.0.1:1"),
        a_gateway("http://127.0.0.1:2", host=here),
    )
    found = await gateway_urls(connected)
    assert found == ["http://127.0.0.1:2", "http://a:7700", "https://b:7700"]
