"""A TCP proxy between two processes, which can be cut.

Every link of a run goes through one: workers, clients and gateways to each dispatcher, and each
dispatcher to PostgreSQL. A cut link loses nothing that TCP would not lose: `FORTH` and `BACK` hold
the bytes of one direction (as when packets are dropped on the way, TCP sends them again later),
`BOTH` holds both, and `BROKEN` closes what is open and refuses what comes. All proxies of a run
live in one event loop.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from enum import StrEnum

from longshore.testing.servers import HOST, free_port

CHUNK_BYTES = 64 * 1024


class Cut(StrEnum):
    """How a link is cut."""

    NONE = "none"
    FORTH = "forth"
    BACK = "back"
    BOTH = "both"
    BROKEN = "broken"


class Proxy:
    """Listens on a loopback port, and passes bytes on to another one."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.port = free_port()
        self._target = target
        self._cut = Cut.NONE
        self._open = {Cut.FORTH: asyncio.Event(), Cut.BACK: asyncio.Event()}
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """It listens."""
        await self._listen()
        self._let_pass()

    async def cut(self, how: Cut) -> None:
        """Cuts the link in this way, or joins it again."""
        self._cut = how
        if how is Cut.BROKEN:
            await self._stop_listening()
            self._drop_all()
        elif self._server is None:
            await self._listen()
        self._let_pass()

    async def reset(self) -> None:
        """Whatever is connected is cut off, and may connect again at once."""
        self._drop_all()

    async def close(self) -> None:
        """It does not listen any more, and nothing is connected."""
        self._drop_all()
        await self._stop_listening()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _let_pass(self) -> None:
        for way, event in self._open.items():
            if self._cut in (way, Cut.BOTH):
                event.clear()
            else:
                event.set()

    def _drop_all(self) -> None:
        for writer in self._connections:
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on until either side has enough of it."""
        _at_once(writer)
        self._connections.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            from_there, there = await asyncio.open_connection(HOST, self._target)
            _at_once(there)
            self._connections.add(there)
            ways = (
                self._pass(reader, there, self._open[Cut.FORTH]),
                self._pass(from_there, writer, self._open[Cut.BACK]),
            )
            await asyncio.gather(*ways)
        except OSError:
            _reset(writer)  # as the kernel does if nobody listens
        finally:
            for one in filter(None, (writer, there)):
                self._connections.discard(one)
                one.close()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_open: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(CHUNK_BYTES):
                await is_open.wait()
                sink.write(data)
                await sink.drain()
        await is_open.wait()  # an end is news, too: a cut link does not tell it
        sink.close()


def _at_once(writer: asyncio.StreamWriter) -> None:
    """Small messages are not held back to be sent together."""
    found = writer.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(writer: asyncio.StreamWriter) -> None:
    """The other end gets a reset, not a good end."""
    found = writer.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
