"""ZeroMQ sockets on an asyncio event loop, drained in one go per wake-up.

pyzmq's own asyncio sockets make a future per message, which costs more than the message. Here the
loop watches the socket's descriptor. When it says that something happened, `_drain` takes all
messages there are and hands them over as one list. The descriptor is edge-triggered: after every
receive and every send, the socket must be asked again what is left. `_later` does that, once per
turn of the loop.

Identities. A listening socket names each peer: by what the peer says in its handshake, or else by a
zero byte and a counter. A peer that named itself must be able to come back while the router still
holds its old connection, so the last peer that gives a name gets it. But libzmq lets a peer give
any name. With one that the counter made, it makes the owner deaf. With one that the counter makes
next, there are two peers of one name, and libzmq aborts the process. And libzmq starts the counter
at the same value in every process. So here it starts where nobody can guess, and no peer is told an
automatic name.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import secrets
from collections.abc import Callable, Sequence

import zmq

from longshore.core.throttle import Throttle
from longshore.errors import AddressInUse, ConfigError
from longshore.links import descriptors
from longshore.links.listening import Listening, bind
from longshore.links.send_budget import MARK_BYTES, Account, SendBudget
from longshore.ports import OnMessages
from longshore.wire.portions import MAX_MESSAGE_BYTES

log = logging.getLogger("longshore.links")

MAX_DRAIN = 2_000
MAX_DRAIN_BYTES = 1024 * 1024
"""A drain stops after so many messages or bytes, so that the rest of the loop has its turn."""
SEND_QUEUE = 10_000
MISSED_BEATS = 3
MOST_TTL_MS = 6_553_500
MOST_BEAT_MS = (2**31 - 1) // MISSED_BEATS
MAX_UNSENT_BYTES = 64 * 1024 * 1024
HANDSHAKE_MS = 5_000
LOOK_S = 0.5
"""How often a listening socket looks whether there are descriptors for more connections."""

# As plain numbers: pyzmq's own are flags, and to combine two of those takes longer than to send.
_EVENTS = zmq.EVENTS
_POLLIN = int(zmq.POLLIN)
_AT_ONCE = int(zmq.DONTWAIT)
_AND_MORE = int(zmq.SNDMORE) | _AT_ONCE
USER_ID = "User-Id"

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
        self._routed: dict[bytes, zmq.Frame] | None = None
        """The senders of what is being delivered, as frames that know their keys; None without."""
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
        room = MAX_DRAIN_BYTES
        # To ask costs less than to be told by an exception, and most often one message is there.
        while int(self._socket.get(_EVENTS)) & _POLLIN:
            arrived.append(frames := self._receive())
            room -= len(frames[-1])
            if len(arrived) == MAX_DRAIN or room <= 0:
                self._later()
                break
        if arrived:
            self._deliver(arrived)

    def _receive(self) -> list[bytes]:
        # A frame knows whether more follow; to ask the socket takes longer than to receive one.
        frame = self._socket.recv(_AT_ONCE, copy=False)
        frames = [frame.bytes]
        if self._routed is not None:
            self._routed[frames[0]] = frame
        while frame.more:
            frame = self._socket.recv(_AT_ONCE, copy=False)
            frames.append(frame.bytes)
        return frames

    def _deliver(self, arrived: list[list[bytes]]) -> None:
        raise AssertionError("a link says how it delivers")

    def _send(
        self, frames: Sequence[bytes], trackers: list[zmq.MessageTracker] | None = None
    ) -> bool:
        """Sends a message; its tracker is added to the list, if one is given."""
        if self._closed:
            return False
        try:
            for frame in frames[:-1]:
                self._socket.send(frame, _AND_MORE)
            if trackers is None:
                self._socket.send(frames[-1], _AT_ONCE)
            else:
                trackers.append(self._socket.send(frames[-1], _AT_ONCE, copy=False, track=True))
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH:
                self._unreachable(frames[0])
            elif error.errno != errno.EAGAIN:
                raise
            return False
        finally:
            self._later()
        return True

    def _unreachable(self, peer: bytes) -> None:
        """Called if there is no such peer, or no longer."""

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
    """A listening socket: many peers, each with an identity. `send` says if there is no such peer.

    ZeroMQ itself beats every `heartbeat_s` (0: never), in threads of its own on both sides: a peer
    that is busy answers, and one whose machine is gone or whose process is stopped has its
    connection closed after three beats without an answer. Then no peer has its identity.

    For a peer that does not read, the socket holds at most `max_unsent_bytes`. While `are_short`
    says that descriptors run out, it takes no new connections; those that it has stay.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        on_messages: OnMessages,
        heartbeat_s: float = 0.0,
        secure: Secure | None = None,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
        are_short: Callable[[], bool] = descriptors.are_short,
    ) -> None:
        _start_anywhere()
        super().__init__(zmq.ROUTER, context)
        self._on_messages = on_messages
        self._are_short = are_short
        self._unsent = SendBudget(max_unsent_bytes, self._loop.time)
        self._unread, self._short, self._opened = Throttle(), Throttle(), Throttle()
        self._routed = None if secure is None else {}
        self._socket.copy_threshold = 0
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.ROUTER_HANDOVER, 1)
        self._socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._socket.set(zmq.BACKLOG, descriptors.backlog())
        self._beat(min(round(heartbeat_s * 1000), MOST_BEAT_MS))
        if secure is not None:
            secure(self._socket)
        self._door = self._bind(address)
        self.address: str = self._socket.get_string(zmq.LAST_ENDPOINT)
        self._looking = self._loop.call_later(LOOK_S, self._look)
        self._watch()

    def _beat(self, every_ms: int) -> None:
        silence_ms = every_ms * MISSED_BEATS
        self._socket.set(zmq.HEARTBEAT_IVL, every_ms)
        self._socket.set(zmq.HEARTBEAT_TIMEOUT, silence_ms)
        self._socket.set(zmq.HEARTBEAT_TTL, min(silence_ms, MOST_TTL_MS))

    def _bind(self, address: str) -> Listening:
        try:
            return bind(self._socket, address)
        except zmq.ZMQError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"{address} is taken by another process; stop that one or choose another port"
                ) from None
            raise ConfigError(f"cannot listen on {address}: {error}") from None

    # listening, as long as there are descriptors

    def _look(self) -> None:
        self._looking = self._loop.call_later(LOOK_S, self._look)
        if self._are_short():
            self._pause()
        elif not self._door.is_open:
            self._resume()

    def _pause(self) -> None:
        if self._short.count(self._loop.time()):
            log.warning(
                "nearly all of the %s file descriptors are in use: %s takes no new connections "
                "until some are closed; raise the limit (ulimit -n, or LimitNOFILE= in systemd)",
                descriptors.limit(),
                self.address,
            )
        if self._door.is_open:
            self._door.shut()

    def _resume(self) -> None:
        self._door.open()
        if self._opened.count(self._loop.time()):
            log.info("%s takes new connections again", self.address)

    # receiving

    def _deliver(self, arrived: list[list[bytes]]) -> None:
        self._on_messages([(frames[0], frames[1:]) for frames in arrived])
        if self._routed is not None:
            self._routed.clear()

    def key_of(self, peer: bytes) -> str:
        """The key that opened the connection of a peer whose message is being delivered."""
        return str(self._routed[peer].get(USER_ID)) if self._routed is not None else ""

    # sending

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to a peer; False if there is no such peer or no room."""
        account = self._unsent.of(peer)
        size = sum(map(len, frames))
        if (account.marks or size >= MARK_BYTES) and not self._unsent.admits(account, size):
            self._tell_of_unread()
            return False
        account.fresh += size
        if account.fresh < MARK_BYTES:
            return self._send([peer, *frames])
        return self._send_marked(account, [peer, *frames])

    def _send_marked(self, account: Account, frames: Sequence[bytes]) -> bool:
        trackers: list[zmq.MessageTracker] = []
        sent = self._send(frames, trackers)
        for tracker in trackers:
            self._unsent.mark(account, tracker)
        return sent

    def _unreachable(self, peer: bytes) -> None:
        self._unsent.forget(peer)

    def _tell_of_unread(self) -> None:
        count = self._unread.count(self._loop.time())
        if count:
            log.warning(
                "%s dropped messages to peers that do not read what they asked for "
                "(max_unsent_bytes): %d since this was last told",
                self.address,
                count,
            )

    def close(self) -> None:
        """Lets go of the socket at once; what was not sent is dropped."""
        self._looking.cancel()
        self._door.close()
        super().close()


def _start_anywhere() -> None:
    """Makes the counter of the next socket start where nobody can guess.

    libzmq takes the start from `rand`, which would give every process the same one without a seed.
    """
    ctypes.CDLL(None).srand(ctypes.c_uint(secrets.randbits(32)))


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

    def key_of(self, peer: bytes) -> str:
        """Always empty: a connecting side knows which server it has called."""
        return ""
