"""The server of a gateway: uvicorn on a socket that is bound already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from longshore.gateway.app import make_app
from longshore.gateway.certificates import Certificate
from longshore.gateway.operation import Gateway

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def _protocol(max_header_bytes: int) -> type[asyncio.Protocol]:
    """How connections speak HTTP: a head that grows past this is not waited for."""

    class Protocol(HttpToolsProtocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._head_bytes: int | None = None

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head_bytes = 0

        def on_headers_complete(self) -> None:
            self._head_bytes = None
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._head_bytes is not None:
                self._head_bytes += len(data)
                if self._head_bytes > max_header_bytes and not self.transport.is_closing():
                    self.transport.write(_TOO_LARGE)
                    self.transport.close()

    return Protocol


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
    gateway: Gateway,
    listening: socket.socket,
    stop: asyncio.Event,
    on_started: Callable[[], None],
    certificate: Certificate | None = None,
) -> None:
    """Serves until `stop`; then requests under way may end, for `http_drain_s`."""
    settings = gateway.settings
    config = uvicorn.Config(
        make_app(gateway),
        loop="none",
        http=_protocol(settings.max_header_bytes),
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
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
    beside = [asyncio.create_task(_stop(server, gateway, stop))]
    if certificate is not None:
        beside.append(asyncio.create_task(certificate.follow()))
    try:
        await server.serve([listening])
    finally:
        for task in beside:
            task.cancel()
        gateway.closing.set()


async def _stop(server: _Server, gateway: Gateway, stop: asyncio.Event) -> None:
    await stop.wait()
    gateway.closing.set()
    server.should_exit = True
