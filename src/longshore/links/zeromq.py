"""ZeroMQ sockets on an asyncio event loop, drained in one go per wake-up.

pyzmq's own asyncio sockets make a future per message, which costs more than the message. Here the
socket's descriptor is watched, and when it says that something happened all messages there are are
taken and handed over as one list. The descriptor is edge-triggered: after every receive and every
send what is left must be asked for again, which `_later` does, once per turn of the loop.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence

import zmq

from longshore.errors import AddressInUse, ConfigError
from longshore.ports import OnMessages
from longshore.wire.portions import MAX_MESSAGE_BYTES

MAX_DRAIN = 2_000
SEND_QUEUE = 10_000
MISSED_BEATS = 3
MOST_TTL_MS = 6_553_500
MOST_BEAT_MS = (2**31 - 1) // MISSED_BEATS

# As plain numbers: pyzmq's own are flags, and to combine two of those takes longer than to send.
_EVENTS = zmq.EVENTS
_POLLIN = int(zmq.POLLIN)
_AT_ONCE = int(zmq.DONTWAIT)
_AND_MORE = int(zmq.SNDMORE) | _AT_ONCE

Secure = Callable[[zmq.Socket[bytes]], None]
"""Sets up a socket's security before it binds or connects."""


class Socket:
    """What all links have in common: a socket that is drained on the event loop."""

    def __init__(self, kind: int, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = context.socket(kind)
        self._socket.linger = 0
        self._socket.set(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._socket.set(zmq.SNDHWM, SEND_QUEUE)
        self._socket.set(zmq.RCVHWM, SEND_QUEUE)
        self._pending: asyncio.Handle | None = None
        self._closed = False

    def _watch(self) -> None:
        self._fd = int(self._socket.get(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._later()

    def _later(self) -> None:
        if self._pending is None and not self._closed:
            self._pending = self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self._closed:
            return
        arrived: list[list[bytes]] = []
        # To ask costs less than to be told by an exception, and most often one message is there.
        while int(self._socket.get(_EVENTS)) & _POLLIN:
            arrived.append(self._receive())
            if len(arrived) == MAX_DRAIN:
                self._later()
                break
        if arrived:
            self._deliver(arrived)

    def _receive(self) -> list[bytes]:
        # A frame knows whether more follow; to ask the socket takes longer than to receive one.
        frame = self._socket.recv(_AT_ONCE, copy=False)
        frames = [frame.bytes]
        while frame.more:
            frame = self._socket.recv(_AT_ONCE, copy=False)
            frames.append(frame.bytes)
        return frames

    def _deliver(self, arrived: list[list[bytes]]) -> None:
        raise AssertionError("a link says how it delivers")

    def _send(self, frames: Sequence[bytes]) -> bool:
        if self._closed:
            return False
        try:
            for frame in frames[:-1]:
                self._socket.send(frame, _AND_MORE)
            self._socket.send(frames[-1], _AT_ONCE)
        except zmq.ZMQError as error:
            if error.errno in (errno.EAGAIN, errno.EHOSTUNREACH):
                return False
            raise
        finally:
            self._later()
        return True

    def close(self) -> None:
        """Lets go of the socket at once; what was not sent is dropped."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd)
        if self._pending is not None:
            self._pending.cancel()
        self._socket.close()


class Router(Socket):
    """A listening socket: many peers, each with an identity. Sending to nobody says so.

    ZeroMQ itself beats every `heartbeat_s` (0: never), in threads of its own on both sides: a peer
    that is busy answers, and one whose machine is gone or whose process is stopped has its
    connection closed after three beats without an answer. Then its identity is nobody's.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        on_messages: OnMessages,
        heartbeat_s: float = 0.0,
        secure: Secure | None = None,
    ) -> None:
        super().__init__(zmq.ROUTER, context)
        self._on_messages = on_messages
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.ROUTER_HANDOVER, 1)
        self._beat(min(round(heartbeat_s * 1000), MOST_BEAT_MS))
        if secure is not None:
            secure(self._socket)
        self._bind(address)
        self.address: str = self._socket.get_string(zmq.LAST_ENDPOINT)
        self._watch()

    def _beat(self, every_ms: int) -> None:
        silence_ms = every_ms * MISSED_BEATS
        self._socket.set(zmq.HEARTBEAT_IVL, every_ms)
        self._socket.set(zmq.HEARTBEAT_TIMEOUT, silence_ms)
        self._socket.set(zmq.HEARTBEAT_TTL, min(silence_ms, MOST_TTL_MS))

    def _bind(self, address: str) -> None:
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"{address} is taken by another process; stop that one or choose another port"
                ) from None
            raise ConfigError(f"cannot listen on {address}: {error}") from None

    def _deliver(self, arrived: list[list[bytes]]) -> None:
        self._on_messages([(frames[0], frames[1:]) for frames in arrived])

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to a peer; False if there is no such peer or no room."""
        return self._send([peer, *frames])


class Dealer(Socket):
    """A connection to one listening socket. ZeroMQ reconnects it by itself."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        on_messages: OnMessages,
        secure: Secure | None = None,
    ) -> None:
        super().__init__(zmq.DEALER, context)
        self._on_messages = on_messages
        self._socket.set(zmq.RECONNECT_IVL, 100)
        self._socket.set(zmq.RECONNECT_IVL_MAX, 1_000)
        if secure is not None:
            secure(self._socket)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._socket.close()
            raise ConfigError(
                f"'{address}' is not an address to connect to ({error}); "
                "it looks like tcp://127.0.0.1:7701"
            ) from None
        self._watch()

    def _deliver(self, arrived: list[list[bytes]]) -> None:
        self._on_messages([(b"", frames) for frames in arrived])

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to the other side; False if there is no room."""
        return self._send(frames)
