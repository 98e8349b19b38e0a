"""Clients of HTTP on bare sockets, in one process.

    python -m bench.http_client URL

Each question names what to do; it is answered when that is done.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from bench.helper import questions, reply

JOB = {"kind": "noop", "args": {}}
SLOW_S = 0.5
HUGE_BYTES = 100_000_000
CHUNK_BYTES = 1_000_000


class Client(asyncio.Protocol):
    """One connection that is kept alive: sends a request whenever the last one is answered."""

    def __init__(self, requests: Iterator[bytes], ended: asyncio.Future[None]) -> None:
        self._requests = requests
        self._ended = ended
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._ended.set_result(None)
            self._transport.close()
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        if not head.startswith((b"HTTP/1.1 201", b"HTTP/1.1 200")):
            raise RuntimeError(f"refused: {head.decode()} {body.decode()[:500]}")
        self._buffer = b""
        self._next()


def _length(head: bytes) -> int:
    at = head.lower().index(b"content-length:") + len(b"content-length:")
    return int(head[at : at + 12].partition(b"\r")[0])


def request(url: str, method: str, path: str, body: object = None, accept: str = "") -> bytes:
    """The bytes of a request."""
    data = b"" if body is None else json.dumps(body).encode()
    kind = "Content-Type: application/json\r\n" if data else ""
    kind += f"Accept: {accept}\r\n" if accept else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n{kind}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def submit(url: str, requests: int, jobs: int, connections: int) -> float:
    """Seconds for so many requests with so many jobs each."""
    body = JOB if jobs == 1 else {"jobs": [JOB] * jobs}
    left = iter([request(url, "POST", "/dispatcher/jobs/", body)] * requests)
    loop, where = asyncio.get_running_loop(), urlsplit(url)
    began = time.monotonic()
    ends = []
    for _ in range(connections):
        end = loop.create_future()
        client = partial(Client, left, end)
        await loop.create_connection(client, where.hostname or "", where.port or 0)
        ends.append(end)
    await asyncio.gather(*ends)
    return time.monotonic() - began


class Waiting:
    """Requests that wait for something that does not come."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, path: str, number: int) -> int:
        """So many more requests of this path wait. Those of a stream have got its beginning."""
        where = urlsplit(self._url)
        for _ in range(number):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(request(self._url, "GET", path))
            if path.endswith("events"):
                await reader.readuntil(b"\r\n\r\n")
            self._writers.append(writer)
        return len(self._writers)


class Tabs:
    """Tabs of a browser that show a page: they read whatever comes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, paths: list[str], number: int) -> int:
        """So many more tabs at each of these addresses, which have got the first news of it."""
        for path in paths * number:
            where = urlsplit(self._url)
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(request(self._url, "GET", path, accept="text/event-stream"))
            await reader.readuntil(b"event: regions")
            self._tasks.append(asyncio.create_task(self._read(reader, writer)))
        return len(self._tasks)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()


class Flood:
    """Those who would stop a server: idle connections, bodies that come slowly, and huge ones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, idle: int, slow: int, huge: int) -> int:
        """So many of each begin, and go on until the end."""
        for number, kind in ((idle, self._idle), (slow, self._slow), (huge, self._huge)):
            self._tasks += [asyncio.create_task(kind()) for _ in range(number)]
        return len(self._tasks)

    async def end(self) -> None:
        """All of them go away."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _idle(self) -> None:
        async with self._connection():
            await asyncio.Event().wait()

    async def _slow(self) -> None:
        while True:
            async with self._connection() as writer:
                writer.write(self._head(1_000_000))
                while not writer.is_closing():
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(SLOW_S)

    async def _huge(self) -> None:
        """Sends on until the server has had enough."""
        while True:
            async with self._connection() as writer:
                writer.write(self._head(HUGE_BYTES))
                for _ in range(HUGE_BYTES // CHUNK_BYTES):
                    writer.write(bytes(CHUNK_BYTES))
                    await writer.drain()
            await asyncio.sleep(SLOW_S)

    def _head(self, size: int) -> bytes:
        where = urlsplit(self._url).netloc
        head = f"POST /dispatcher/jobs/ HTTP/1.1\r\nHost: {where}\r\nContent-Length: {size}\r\n"
        return f"{head}Content-Type: application/json\r\n\r\n".encode()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncio.StreamWriter]:
        where = urlsplit(self._url)
        with suppress(OSError):
            _, writer = await asyncio.open_connection(where.hostname, where.port)
            try:
                yield writer
            finally:
                writer.close()


async def main(url: str) -> None:
    """Answers questions until there are none."""
    waiting, flood, tabs = Waiting(url), Flood(url), Tabs(url)
    asked: Iterator[dict[str, Any]] = questions()
    while (question := await asyncio.to_thread(next, asked, None)) is not None:
        match question.pop("do"):
            case "submit":
                reply(await submit(url, **question))
            case "wait":
                reply(await waiting.open(**question))
            case "tabs":
                reply(await tabs.open(**question))
            case "flood":
                reply(flood.begin(**question))
            case "end_flood":
                await flood.end()
                reply(None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
