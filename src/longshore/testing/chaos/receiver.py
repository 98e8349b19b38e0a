"""Who is told by callbacks: a web server of one route, which is not always well."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress

from longshore.testing.chaos.history import Told, Writer
from longshore.testing.servers import HOST

ILL = 0.15
"""How many requests get an answer that says: not now."""
_READ_S = 5.0


class Receiver:
    """Notes who ended and how."""

    def __init__(self, writer: Writer, seed: int) -> None:
        self._writer = writer
        self._chance = random.Random(f"receiver {seed}")
        self._server: asyncio.Server | None = None
        self.url = ""
        self.told: set[str] = set()
        """Of which jobs it heard."""

    async def start(self) -> None:
        """It listens; `url` says where."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.url = f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}/ended"

    async def close(self) -> None:
        """It does not listen any more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(_READ_S):
                body = await _body(reader)
                is_ill = self._chance.random() < ILL
                if not is_ill:
                    self._note(json.loads(body))
                status = b"503 Not Now" if is_ill else b"204 Heard"
                writer.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n\r\n")
                await writer.drain()
        writer.close()

    def _note(self, said: dict[str, dict[str, str]]) -> None:
        self.told.add(said["data"]["id"])
        self._writer.add(Told(job=said["data"]["id"], state=said["data"]["state"]))


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    found = [line for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    return await reader.readexactly(int(found[0].partition(b":")[2]) if found else 0)
