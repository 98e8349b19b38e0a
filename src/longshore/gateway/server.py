"""The server of a gateway: uvicorn on a socket that is bound already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn

from longshore.gateway.app import make_app
from longshore.gateway.operation import Gateway


class _Server(uvicorn.Server):
    """A server that leaves signals to its process, and says when it serves."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


async def serve(
    gateway: Gateway, listening: socket.socket, stop: asyncio.Event, on_started: Callable[[], None]
) -> None:
    """Serves until `stop`; then requests under way may end, for `http_drain_s`."""
    settings = gateway.settings
    config = uvicorn.Config(
        make_app(gateway),
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(1, round(settings.keep_alive_s)),
        timeout_graceful_shutdown=max(1, round(settings.http_drain_s)),
    )
    server = _Server(config, on_started)
    stopping = asyncio.create_task(_stop(server, gateway, stop))
    try:
        await server.serve([listening])
    finally:
        stopping.cancel()
        gateway.closing.set()


async def _stop(server: _Server, gateway: Gateway, stop: asyncio.Event) -> None:
    await stop.wait()
    gateway.closing.set()
    server.should_exit = True
