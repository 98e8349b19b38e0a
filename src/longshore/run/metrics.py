"""The listener on which a dispatcher shows its metrics, and whether it is alive and ready.

It answers three addresses to GET, one request on each connection, and reads no body. It runs on the
dispatcher's own loop: so `/healthz` tells that the loop turns, and no lock is needed. Only the text
of metrics is made in a thread. Only this machine can reach it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import msgspec

from longshore._version import __version__
from longshore.config import is_loopback
from longshore.core.metering import snapshot
from longshore.dispatcher.figures import Figures
from longshore.errors import AddressInUse, ConfigError
from longshore.links.openmetrics import exposition

log = logging.getLogger("longshore.metrics")

REQUEST_S: Final = 10.0
"""How long a request may take to come, and its answer to be taken."""
MAX_REQUEST_BYTES: Final = 16 * 1024
MAX_CONNECTIONS: Final = 50
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_ADDRESSES: Final = "/metrics, /healthz and /readyz"

Answer = tuple[HTTPStatus, str, bytes]


class BadRequest(Exception):
    """What came is not a request that is answered here; `status` says why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def bind(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT of this machine."""
    if not is_loopback(address):
        raise ConfigError(
            f"metrics {address} can be reached from other machines, and nothing there asks for a "
            "key; listen on 127.0.0.1, and let a Prometheus or an agent on this machine collect"
        )
    host, _, port = address.rpartition(":")
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=_family(host))
    except OSError as error:
        raise AddressInUse(
            f"cannot show metrics on {address}: {error.strerror}; stop what listens there, or show "
            "them elsewhere with --metrics HOST:PORT"
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@asynccontextmanager
async def metrics_shown(listening: socket.socket, figures: Figures) -> AsyncIterator[str]:
    """Shows what a dispatcher tells of itself; answers the URL."""
    server = await asyncio.start_server(_Listener(figures).serve, sock=listening)
    host, port = listening.getsockname()[:2]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.close()


class _Listener:
    """Answers the requests."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request, one answer."""
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_S):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # The other side is slow or gone.
        except Exception:
            log.exception("metrics could not be shown")
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_head = False
        try:
            method, path, headers = await _request(reader)
            is_head = method == "HEAD"
            status, kind, body = await self._found(path, headers)
        except BadRequest as error:
            status, kind, body = error.status, _TEXT, f"{error}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if is_head else body))
        await writer.drain()

    async def _found(self, path: str, headers: Mapping[str, str]) -> Answer:
        _check_host(headers.get("host", ""))
        match path.partition("?")[0]:
            case "/metrics":
                accept, now = headers.get("accept", ""), snapshot(self._figures.samples())
                # In a thread: with hundreds of kinds it takes as long as some transactions.
                text, kind = await asyncio.to_thread(exposition, now, accept)
                return HTTPStatus.OK, kind, text
            case "/healthz":
                alive = {"status": "alive", "version": __version__}
                return HTTPStatus.OK, _JSON, msgspec.json.encode(alive)
            case "/readyz":
                return self._ready()
            case _:
                words = f"there is nothing at {path!r:.100}; there are {_ADDRESSES}"
                raise BadRequest(HTTPStatus.NOT_FOUND, words)

    def _ready(self) -> Answer:
        troubles = self._figures.troubles()
        status = HTTPStatus.SERVICE_UNAVAILABLE if troubles else HTTPStatus.OK
        word = "not ready" if troubles else "ready"
        return status, _JSON, msgspec.json.encode({"status": word, "troubles": troubles})


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    """The method, the path and the headers of a request."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        head = b""
    if not head or len(head) > MAX_REQUEST_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large")
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")
    if parts[0] not in ("GET", "HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"GET answers here: {_ADDRESSES}")
    fields = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return parts[0], parts[1], headers


def _check_host(host: str) -> None:
    """Raises if a page of another site could have had a browser send this."""
    if not is_loopback(host if ":" in host.rpartition("]")[2] else f"{host}:0"):
        raise BadRequest(
            HTTPStatus.MISDIRECTED_REQUEST, f"this is not {host!r:.100}; call it by 127.0.0.1"
        )
