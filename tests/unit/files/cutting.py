"""A network that breaks: a proxy that cuts a connection after so many bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class CuttingProxy:
    """Passes bytes on to a server, and cuts each connection after a while."""

    def __init__(self, port: int, most_bytes: int) -> None:
        self._port = port
        self._most = most_bytes
        self.url = ""
        self.cuts = 0
        self.sent_bytes = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until it is cut."""
        above, below = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [
            asyncio.ensure_future(self._pass(reader, below)),
            asyncio.ensure_future(self._pass(above, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for side in (writer, below):
            side.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._most
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
                self.sent_bytes += len(chunk)
                left -= len(chunk)
                if left < 0:
                    self.cuts += 1
                    return


@asynccontextmanager
async def cutting_proxy(url: str, most_bytes: int) -> AsyncIterator[CuttingProxy]:
    """A proxy before a server, while the block runs."""
    proxy = CuttingProxy(urlsplit(url).port or 0, most_bytes)
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
