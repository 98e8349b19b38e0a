"""What a peer that means harm can do to a listening socket: nothing to the others."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

from longshore.links import zeromq
from longshore.links.curve import Gate, calling, serving
from longshore.links.keys import Keys, make_pair, read_secret
from longshore.links.send_budget import MARK_BYTES
from longshore.links.zeromq import MAX_DRAIN, Router

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

LOOK_EVERY_S = 0.01
MOST = 4 * 1024 * 1024
LARGE = b"x" * 1024 * 1024


class Heard:
    """What a router was told, in order."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[tuple[bytes, list[bytes]]] = asyncio.Queue()
        self.keys: list[str] = []
        self.router: Router

    def __call__(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for peer, frames in arrived:
            self.keys.append(self.router.key_of(peer))
            self.messages.put_nowait((peer, frames))

    async def next(self) -> tuple[bytes, list[bytes]]:
        async with asyncio.timeout(10):
            return await self.messages.get()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110, no event tells of it
            await asyncio.sleep(LOOK_EVERY_S)


MADE: list[Socket] = []


@pytest.fixture
def context() -> Iterator[Context]:
    context: Context = zmq.Context()
    yield context
    while MADE:
        MADE.pop().close(linger=0)
    context.destroy(linger=0)


@pytest.fixture
async def heard(context: Context) -> AsyncIterator[Heard]:
    heard = Heard()
    heard.router = Router(context, "tcp://127.0.0.1:0", heard, max_unsent_bytes=MOST)
    yield heard
    heard.router.close()


def dealer(context: Context, address: str) -> Socket:
    made = context.socket(zmq.DEALER)
    MADE.append(made)
    made.connect(address)
    return made


def port(router: Router) -> int:
    return int(router.address.rpartition(":")[2])


# bytes


async def test_what_a_peer_does_not_read_is_bounded_in_bytes(
    context: Context, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    silent = dealer(context, heard.router.address)
    silent.set(zmq.RCVHWM, 1)
    silent.send(b"x")
    peer, _ = await heard.next()
    taken = 0
    while heard.router.send(peer, [LARGE]):
        taken += 1
        assert taken < 100, "it takes whatever there is"
        await asyncio.sleep(0)
    assert "peers that do not read what they asked for (max_unsent_bytes)" in caplog.text
    reader = dealer(context, heard.router.address)
    reader.send(b"y")
    other, _ = await heard.next()
    assert heard.router.send(other, [LARGE])


async def test_a_peer_that_reads_late_is_sent_more_then(context: Context, heard: Heard) -> None:
    slow = dealer(context, heard.router.address)
    slow.send(b"x")
    peer, _ = await heard.next()
    taken = 0
    while heard.router.send(peer, [LARGE]):
        taken += 1
        assert taken < 100, "it takes whatever there is"
        await asyncio.sleep(0)
    for _ in range(taken):
        assert await asyncio.to_thread(slow.recv) == LARGE
    await until(lambda: heard.router.send(peer, [LARGE]))


async def test_small_messages_count_as_well(context: Context, heard: Heard) -> None:
    silent = dealer(context, heard.router.address)
    silent.send(b"x")
    peer, _ = await heard.next()
    small = b"x" * 8_000
    taken = 0
    while heard.router.send(peer, [small]):
        taken += 1
        assert taken * len(small) < 20 * MOST, "it takes whatever there is"
        await asyncio.sleep(0)
    assert taken * len(small) > MARK_BYTES


async def test_a_burst_larger_than_one_drain_arrives_whole(context: Context, heard: Heard) -> None:
    sender = dealer(context, heard.router.address)
    sender.set(zmq.SNDHWM, 0)
    count = MAX_DRAIN * 3 + 1_000
    for number in range(count):
        sender.send(b"%d" % number)
    for number in range(count):
        _, frames = await heard.next()
        assert frames == [b"%d" % number]


# identities


def test_identities_that_the_library_makes_begin_where_nobody_can_guess() -> None:
    """Whoever gives one as its own name takes it over, or aborts the process if it is the next."""
    program = (
        "import asyncio, zmq\n"
        "from longshore.links.zeromq import Router\n"
        "async def main():\n"
        "    context, peers = zmq.Context(), asyncio.Queue()\n"
        "    hear = lambda arrived: peers.put_nowait(arrived[0][0])\n"
        "    router = Router(context, 'tcp://127.0.0.1:0', hear)\n"
        "    dealer = context.socket(zmq.DEALER)\n"
        "    dealer.connect(router.address)\n"
        "    dealer.send(b'x')\n"
        "    print((await peers.get()).hex())\n"
        "    router.close()\n"
        "    context.destroy(linger=0)\n"
        "asyncio.run(main())\n"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
        ).stdout
        for _ in range(2)
    )
    assert first.startswith(b"00")
    assert first != second


# keys


@pytest.fixture
def server(tmp_path: Path) -> Keys:
    return read_secret(make_pair(tmp_path, "server")[1])


@pytest.fixture
def client(tmp_path: Path) -> Keys:
    return read_secret(make_pair(tmp_path, "client")[1])


def keyed(context: Context, router: Router, client: Keys, server: Keys) -> Socket:
    made = context.socket(zmq.DEALER)
    calling(client, server.public)(made)
    MADE.append(made)
    made.connect(router.address)
    return made


async def test_where_keys_are_asked_for_it_is_known_whose_key_opened_a_connection(
    context: Context, server: Keys, client: Keys, tmp_path: Path
) -> None:
    other = read_secret(make_pair(tmp_path, "other")[1])
    gate = Gate(context, {"workers": {client.public, other.public}})
    heard = Heard()
    heard.router = Router(context, "tcp://127.0.0.1:0", heard, secure=serving(server, "workers"))
    for one in (client, other, client):
        keyed(context, heard.router, one, server).send(b"x")
        await heard.next()
    assert heard.keys == [client.public, other.public, client.public]
    heard.router.close()
    gate.close()


async def test_while_nobody_keeps_the_gate_nobody_comes_in(
    context: Context, server: Keys, client: Keys
) -> None:
    heard = Heard()
    heard.router = Router(context, "tcp://127.0.0.1:0", heard, secure=serving(server, "workers"))
    made = context.socket(zmq.DEALER)
    calling(client, server.public)(made)
    ended = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
    MADE.append(made)
    monitor = made.get_monitor_socket(ended | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    made.connect(heard.router.address)
    event = parse_monitor_message(await asyncio.to_thread(monitor.recv_multipart))
    assert event["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED
    made.disable_monitor()
    monitor.close()
    heard.router.close()


# descriptors


async def test_without_descriptors_it_does_not_listen_and_says_so(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    short = False
    heard = Heard()
    heard.router = Router(context, "tcp://127.0.0.1:0", heard, are_short=lambda: short)
    early = dealer(context, heard.router.address)
    early.send(b"x")
    peer, _ = await heard.next()
    short = True
    await until(lambda: not _accepts(heard.router))
    assert "takes no new connections until some are closed; raise the limit" in caplog.text
    assert heard.router.send(peer, [b"still here"])
    assert await asyncio.to_thread(early.recv) == b"still here"
    late = dealer(context, heard.router.address)
    late.send(b"y")
    short = False
    assert (await heard.next())[1] == [b"y"]
    heard.router.close()


def _accepts(router: Router) -> bool:
    with ExitStack() as stack:
        try:
            stack.enter_context(socket.create_connection(("127.0.0.1", port(router)), 0.2))
        except TimeoutError:
            return False
    return True


async def test_a_handshake_that_is_not_finished_is_given_up(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zeromq, "HANDSHAKE_MS", 50)
    heard = Heard()
    heard.router = Router(context, "tcp://127.0.0.1:0", heard)
    with socket.create_connection(("127.0.0.1", port(heard.router)), 10) as idle:

        def left() -> bytes:
            while idle.recv(1000):
                pass
            return b"closed"

        assert await asyncio.to_thread(left) == b"closed"
    heard.router.close()


async def test_what_is_large_is_taken_a_little_at_a_time(context: Context) -> None:
    """A turn of the loop that hears a gigabyte would hold up everything else for as long."""
    turns: list[int] = []
    router = Router(context, "tcp://127.0.0.1:*", lambda arrived: turns.append(len(arrived)))
    peer = context.socket(zmq.DEALER)
    peer.linger = 0
    peer.connect(router.address)
    for _ in range(20):
        peer.send_multipart([b"", LARGE])
    await until(lambda: sum(turns) == 20)
    assert set(turns) == {1}
    peer.close()
    router.close()
