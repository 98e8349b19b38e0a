"""A link passes bytes, can be cut in each way, and loses nothing when it is joined again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from longshore.testing.chaos.proxy import Cut, Proxy
from longshore.testing.servers import HOST, free_port


class Echo:
    """A server that answers what it hears, and keeps what it heard."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            self.heard.set()
            writer.write(data)
        writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, Proxy]]:
    made, port = Echo(), free_port()
    server = await asyncio.start_server(made.serve, HOST, port)
    proxy = Proxy("client>echo", port)
    await proxy.start()
    yield made, proxy
    await proxy.close()
    server.close()


async def said(proxy: Proxy, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, proxy.port)
    writer.write(words)
    return reader, writer


async def assert_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with pytest.raises(ConnectionError):
        await reader.readexactly(1)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_bytes_pass_both_ways(echo: tuple[Echo, Proxy]) -> None:
    reader, writer = await said(echo[1], b"ahoy")
    assert await reader.readexactly(4) == b"ahoy"
    writer.close()


@pytest.mark.parametrize(("cut", "is_heard"), [(Cut.BACK, True), (Cut.FORTH, False)])
async def test_a_cut_holds_one_way_and_loses_nothing(
    echo: tuple[Echo, Proxy], cut: Cut, is_heard: bool
) -> None:
    server, proxy = echo
    reader, writer = await said(proxy, b"a")
    await reader.readexactly(1)
    server.heard.clear()
    await proxy.cut(cut)
    writer.write(b"bc")
    if is_heard:
        await server.heard.wait()
    else:
        answer = asyncio.create_task(reader.read(2))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not server.heard.is_set()
        assert not answer.done()
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
    await proxy.cut(Cut.NONE)
    assert await reader.readexactly(2) == b"bc"
    writer.close()


async def test_a_broken_link_refuses_until_it_is_joined(echo: tuple[Echo, Proxy]) -> None:
    proxy = echo[1]
    reader, writer = await said(proxy, b"a")
    await reader.readexactly(1)
    await proxy.cut(Cut.BROKEN)
    await assert_reset(reader, writer)
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection(HOST, proxy.port)
    await proxy.cut(Cut.NONE)
    reader, writer = await said(proxy, b"b")
    assert await reader.readexactly(1) == b"b"
    writer.close()


async def test_a_reset_ends_connections_and_takes_new_ones(echo: tuple[Echo, Proxy]) -> None:
    proxy = echo[1]
    reader, writer = await said(proxy, b"a")
    await reader.readexactly(1)
    await proxy.reset()
    await assert_reset(reader, writer)
    reader, writer = await said(proxy, b"b")
    assert await reader.readexactly(1) == b"b"
    writer.close()


async def test_who_cannot_be_reached_is_told_as_a_refused_connection(
    echo: tuple[Echo, Proxy],
) -> None:
    nobody = Proxy("client>nobody", free_port())
    await nobody.start()
    reader, writer = await asyncio.open_connection(HOST, nobody.port)
    await assert_reset(reader, writer)
    await nobody.close()
