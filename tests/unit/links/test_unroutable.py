"""A router knows when nobody is behind an identity any more: that is how plain workers are lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import zmq

from longshore.links.zeromq import Router

BEAT_S = 0.1
LOST_S = BEAT_S * 4
Context = zmq.Context[zmq.Socket[bytes]]


class Listening:
    """A router and whom it has heard of."""

    def __init__(self, context: Context) -> None:
        self._peers: asyncio.Queue[bytes] = asyncio.Queue()
        self.router = Router(context, "tcp://127.0.0.1:0", self._receive, heartbeat_s=BEAT_S)

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for peer, _ in arrived:
            self._peers.put_nowait(peer)

    async def peer(self) -> bytes:
        """The next one that says something."""
        async with asyncio.timeout(5.0):
            return await self._peers.get()

    def reaches(self, peer: bytes) -> bool:
        return self.router.send(peer, [b"", b"PONG"])


async def within(seconds: float, happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(seconds):
        while not happened():  # noqa: ASYNC110, no event tells of it
            await asyncio.sleep(BEAT_S / 10)


@pytest.fixture
def context() -> Context:
    return zmq.Context()


@pytest.fixture
async def listening(context: Context) -> AsyncIterator[Listening]:
    listening = Listening(context)
    yield listening
    listening.router.close()
    context.destroy(linger=0)


def dealer(context: Context, address: str, name: bytes | None = None) -> zmq.Socket[bytes]:
    made = context.socket(zmq.DEALER)
    if name is not None:
        made.setsockopt(zmq.IDENTITY, name)
    made.connect(address)
    made.send_multipart([b"", b"READY"])
    return made


def mute_dealer(address: str) -> socket.socket:
    """A peer that greets by hand, says READY, and then answers no heartbeat."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    made = socket.create_connection((host, int(port)))
    made.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32))
    properties = b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
    command = b"\x05READY" + properties
    made.sendall(b"\x04" + bytes([len(command)]) + command)
    greeted = b""
    while b"ROUTER" not in greeted:
        greeted += made.recv(1000)
    made.sendall(b"\x01\x00" + b"\x00\x05READY")
    return made


async def test_nobody_is_reached_once_a_connection_is_closed(
    context: Context, listening: Listening
) -> None:
    worker = dealer(context, listening.router.address)
    peer = await listening.peer()
    assert peer.startswith(b"\0")
    assert listening.reaches(peer)
    worker.close(linger=0)
    await within(5.0, lambda: not listening.reaches(peer))


async def test_nobody_is_reached_once_a_peer_answers_no_heartbeats(listening: Listening) -> None:
    with mute_dealer(listening.router.address):
        peer = await listening.peer()
        assert listening.reaches(peer)
        await within(LOST_S * 5, lambda: not listening.reaches(peer))


async def test_a_peer_whose_program_is_busy_answers_heartbeats_all_the_same(
    context: Context, listening: Listening
) -> None:
    worker = dealer(context, listening.router.address)
    peer = await listening.peer()
    began = asyncio.get_running_loop().time()
    await within(5.0, lambda: asyncio.get_running_loop().time() - began > LOST_S * 3)
    assert listening.reaches(peer)
    worker.close(linger=0)


async def test_a_peer_that_named_itself_is_reached_where_it_came_last(
    context: Context, listening: Listening
) -> None:
    before = dealer(context, listening.router.address, b"press-3")
    assert await listening.peer() == b"press-3"
    after = dealer(context, listening.router.address, b"press-3")
    assert await listening.peer() == b"press-3"
    assert listening.reaches(b"press-3")
    await within(5.0, lambda: bool(after.poll(0)))
    assert not before.poll(0)
    for one in (before, after):
        one.close(linger=0)
