"""A network like ZeroMQ over TCP, with a fate of its own.

A connection carries messages in order, each once or not at all: what gets lost is everything from
some message on, and the connection with it. Whoever dialled dials again by itself, and is a new
peer then, of another identity. Between connections there is no order. A way that is cut holds what
is under way until it heals, as TCP does when it sends again, or breaks the connections on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from longshore.errors import AddressInUse
from longshore.ports import OnMessages
from longshore.testing.simulation.loop import Process, SimulatedLoop
from longshore.testing.simulation.trace import Trace

LEAKING = frozenset({b"DONE", b"ACK"})
REDIAL_S: Final = 0.1
REDIAL_AT_MOST_S: Final = 1.0

Way = tuple[str, str]
"""From one node to another."""


class Slowness(Struct, frozen=True):
    """A way that gets slower: from nothing at `since` to `at_most_s` after `ramp_s`."""

    since: float
    ramp_s: float
    at_most_s: float

    def delay_s(self, now: float) -> float:
        """By how much a message that is sent now comes later."""
        return self.at_most_s * min(1.0, (now - self.since) / self.ramp_s)


class Network:
    """Who listens where, which ways are cut or slow, and every connection there is."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        trace: Trace,
        delay_s: tuple[float, float],
        heartbeat_s: float | None,
    ) -> None:
        self.loop = loop
        self.heartbeat_s = heartbeat_s
        """How often connections look whether the other end is there; None if they do not."""
        self.random = random
        self.trace = trace
        self.listeners: dict[str, Listener] = {}
        self.cuts: list[frozenset[Way]] = []
        self.slow: dict[Way, Slowness] = {}
        self.full: dict[Way, float] = {}
        """The share of messages for which a listener has no room, by way."""
        self.leaks: dict[Way, float] = {}
        """The share of DONE and ACK that arrive and are lost all the same, by way."""
        self._delay_s = delay_s
        self._connections: dict[Connection, None] = {}
        self._dialers: dict[Dialer, None] = {}
        self._identities = 0

    # what processes see

    def listen_as(self, process: Process) -> Callable[[str, OnMessages], Listener]:
        """How a process listens."""

        def listen(address: str, on_messages: OnMessages) -> Listener:
            if address in self.listeners:
                raise AddressInUse(f"{address} is taken")
            self.listeners[address] = Listener(self, process, address, on_messages)
            return self.listeners[address]

        return listen

    def connect_as(self, process: Process) -> Callable[[str, OnMessages], Dialer]:
        """How a process connects."""

        def connect(address: str, on_messages: OnMessages) -> Dialer:
            dialer = Dialer(self, process, address, on_messages)
            self._dialers[dialer] = None
            dialer.dial_in(self.random.uniform(*self._delay_s))
            return dialer

        return connect

    # what fate does

    def cut(self, ways: frozenset[Way], *, breaks: bool) -> None:
        """Nothing comes through these ways; connections on them break, or hold their messages."""
        self.cuts.append(ways)
        if breaks:
            self.reset(ways)

    def heal(self, ways: frozenset[Way]) -> None:
        """Everything comes through again, what was held first."""
        if ways in self.cuts:
            self.cuts.remove(ways)
            for connection in list(self._connections):
                connection.up.release()
                connection.down.release()

    def reset(self, ways: frozenset[Way]) -> None:
        """Breaks the connections on these ways."""
        for connection in list(self._connections):
            if {connection.up.way, connection.down.way} & ways:
                connection.breaks()

    def died(self, process: Process) -> None:
        """A process is gone: the kernel closes its sockets."""
        for address, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[address]
        for dialer in list(self._dialers):
            if dialer.process is process:
                dialer.close()
        for connection in list(self._connections):
            if connection.listener.process is process:
                connection.closed_by(process)

    # what connections need

    def is_cut(self, way: Way) -> bool:
        """Whether nothing comes through."""
        return any(way in ways for ways in self.cuts)

    def swallows(self, way: Way, frames: Sequence[bytes]) -> bool:
        """Whether a message is lost at its receiver, on a connection that goes on."""
        share = self.leaks.get(way)
        if share is None or len(frames) != 3 or frames[1] not in LEAKING:
            return False
        return self.random.random() < share

    def delay_s(self, way: Way) -> float:
        """How long a message that is sent now takes."""
        slow = self.slow.get(way)
        extra_s = slow.delay_s(self.loop.time()) if slow else 0.0
        return self.random.uniform(*self._delay_s) + extra_s

    def opened(self, dialer: Dialer, listener: Listener) -> Connection:
        """Two ends are connected, under an identity that nobody had before."""
        self._identities += 1
        identity = b"\0" + self._identities.to_bytes(4, "big")
        connection = Connection(self, dialer, listener, identity)
        self._connections[connection] = None
        return connection

    def forget(self, connection: Connection) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)

    def forget_dialer(self, dialer: Dialer) -> None:
        """A dialler dials no more."""
        self._dialers.pop(dialer, None)


class Socket:
    """What arrived at a process and was not read yet; all of it is read in one turn."""

    def __init__(self, process: Process, on_messages: OnMessages) -> None:
        self.process = process
        self.is_closed = False
        self._on_messages = on_messages
        self._arrived: list[tuple[bytes, list[bytes]]] = []

    def put(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """A message is there to be read."""
        if not self._arrived:
            self.process.loop.call_soon(self._read, context=self.process.context)
        self._arrived.append((peer, list(frames)))

    def _read(self) -> None:
        arrived, self._arrived = self._arrived, []
        if not self.is_closed:
            self._on_messages(arrived)


class Listener(Socket):
    """The listening end: knows its peers by the identities of their connections."""

    def __init__(
        self, network: Network, process: Process, address: str, on_messages: OnMessages
    ) -> None:
        super().__init__(process, on_messages)
        self._network = network
        self._address = address
        self.peers: dict[bytes, Connection] = {}

    def key_of(self, peer: bytes) -> str:
        """None: nobody is asked for a key."""
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to a peer; False if there is no such peer or no room."""
        connection = self.peers.get(peer)
        if connection is None or self.is_closed:
            return False
        full = self._network.full.get(connection.down.way, 0.0)
        if full and self._network.random.random() < full:
            return False
        connection.down.send(frames)
        return True

    def close(self) -> None:
        """Listens no more; peers find out."""
        self.is_closed = True
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]
        for connection in list(self.peers.values()):
            connection.closed_by(self.process)


class Dialer(Socket):
    """The connecting end: keeps what it has to say until somebody listens."""

    def __init__(
        self, network: Network, process: Process, address: str, on_messages: OnMessages
    ) -> None:
        super().__init__(process, on_messages)
        self._network = network
        self._address = address
        self._connection: Connection | None = None
        self._unsent: deque[Sequence[bytes]] = deque()
        self._tries = 0

    def key_of(self, peer: bytes) -> str:
        """None: nobody is asked for a key."""
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to whoever listens, now or later."""
        if self.is_closed:
            return False
        if self._connection is not None:
            self._connection.up.send(frames)
        else:
            self._unsent.append(frames)
        return True

    def close(self) -> None:
        """Hears and says nothing more; what was not sent is dropped."""
        self.is_closed = True
        self._unsent.clear()
        self._network.forget_dialer(self)
        if self._connection is not None:
            self._connection.closed_by(self.process)

    def dial_in(self, seconds: float) -> None:
        """Tries to connect after so long."""
        loop = self._network.loop
        loop.outside_at(loop.time() + seconds, self._dial)

    def _dial(self) -> None:
        if self.is_closed or self._connection is not None:
            return
        listener = self._network.listeners.get(self._address)
        if listener is None or not self._reaches(listener):
            self._tries += 1
            pause_s = min(REDIAL_S * 2**self._tries, REDIAL_AT_MOST_S)
            self.dial_in(pause_s * self._network.random.uniform(0.5, 1.0))
            return
        self._tries = 0
        self._connection = self._network.opened(self, listener)
        while self._unsent:
            self._connection.up.send(self._unsent.popleft())

    def _reaches(self, listener: Listener) -> bool:
        there = self.process.node, listener.process.node
        back = there[1], there[0]
        both_run = self.process.runs and listener.process.runs
        return both_run and not self._network.is_cut(there) and not self._network.is_cut(back)

    def broken(self) -> None:
        """The connection is gone; another is made by and by."""
        self._connection = None
        if not self.is_closed:
            self.dial_in(REDIAL_S)


class Connection:
    """One TCP connection: a stream each way."""

    def __init__(
        self, network: Network, dialer: Dialer, listener: Listener, identity: bytes
    ) -> None:
        self._network = network
        self.dialer = dialer
        self.listener = listener
        self.identity = identity
        self._is_closing = False
        self._is_over = False
        here, there = dialer.process.node, listener.process.node
        self.up = Stream(network, (here, there), self._said)
        self.down = Stream(network, (there, here), self._heard)
        listener.peers[identity] = self
        self._missed_beats = 0
        self._beat_later()

    def _beat_later(self) -> None:
        loop, every_s = self._network.loop, self._network.heartbeat_s
        if every_s is not None:
            loop.outside_at(loop.time() + every_s, self._beat)

    def _beat(self) -> None:
        if self._is_over:
            return
        both_run = self.dialer.process.runs and self.listener.process.runs
        is_cut = self._network.is_cut(self.up.way) or self._network.is_cut(self.down.way)
        self._missed_beats = 0 if both_run and not is_cut else self._missed_beats + 1
        if self._missed_beats > 1:
            self.breaks()
        else:
            self._beat_later()

    def _said(self, frames: Sequence[bytes]) -> bool:
        if self.listener.is_closed or self.listener.process.dead:
            return False
        self.listener.put(self.identity, frames)
        return True

    def _heard(self, frames: Sequence[bytes]) -> bool:
        if self.dialer.is_closed or self.dialer.process.dead:
            return False
        self.dialer.put(b"", frames)
        return True

    def breaks(self) -> None:
        """Everything under way is lost, and both ends know."""
        if self._is_over:
            return
        self._is_over = True
        self._network.forget(self)
        self.up.lose(0)
        self.down.lose(0)
        self.listener.peers.pop(self.identity, None)
        self.dialer.broken()

    def closed_by(self, process: Process) -> None:
        """One end is gone. What it said last may still arrive; the other end learns of it later."""
        if self._is_closing:
            return
        self._is_closing = True
        mine = self.up if process is self.dialer.process else self.down
        keeps_all = self._network.random.random() < 0.5
        left = mine.under_way
        mine.lose(left if keeps_all else self._network.random.randint(0, left))
        self._end_after(mine)

    def _end_after(self, last_words: Stream) -> None:
        loop = self._network.loop
        at = max(last_words.ends_at, loop.time() + REDIAL_S)
        loop.outside_at(at, self._end, last_words)

    def _end(self, last_words: Stream) -> None:
        cut = self._network.is_cut(last_words.way)
        if (last_words.under_way or cut) and not self._is_over:
            self._end_after(last_words)
        else:
            self.breaks()


class Stream:
    """One direction of a connection: messages arrive in the order they were sent."""

    def __init__(
        self, network: Network, way: Way, deliver: Callable[[Sequence[bytes]], bool]
    ) -> None:
        self.way = way
        self.ends_at = network.loop.time()
        self._network = network
        self._deliver = deliver
        self._flying: deque[Sequence[bytes]] = deque()
        self._held: list[Sequence[bytes]] = []
        self._is_over = False

    @property
    def under_way(self) -> int:
        """How many messages were sent and have not arrived."""
        return len(self._flying) + len(self._held)

    def send(self, frames: Sequence[bytes]) -> None:
        """Sends a message; it never overtakes another."""
        if self._is_over:
            self._note("never sent", frames)
            return
        self._note("sent", frames)
        self._flying.append(frames)
        self._fly()

    def _fly(self) -> None:
        loop = self._network.loop
        self.ends_at = max(self.ends_at, loop.time() + self._network.delay_s(self.way))
        loop.outside_at(self.ends_at, self._arrive)

    def _arrive(self) -> None:
        if not self._flying:
            return
        frames = self._flying.popleft()
        if self._held or self._network.is_cut(self.way):
            self._held.append(frames)
        elif self._network.swallows(self.way, frames):
            self._note("lost", frames)
        else:
            self._note("arrived" if self._deliver(frames) else "lost", frames)

    def release(self) -> None:
        """The way is open again: what was held comes now, before everything sent later."""
        if self._held and not self._network.is_cut(self.way):
            held, self._held = self._held, []
            self._flying.extendleft(reversed(held))
            for _ in held:
                self._fly()

    def lose(self, but: int) -> None:
        """Everything under way is lost, but for the first few; nothing more can be sent."""
        self._is_over = True
        under_way = [*self._held, *self._flying]
        for frames in under_way[but:]:
            self._note("lost", frames)
        kept = under_way[:but]
        self._held = kept[: len(self._held)]
        self._flying = deque(kept[len(self._held) :])

    def _note(self, fate: str, frames: Sequence[bytes]) -> None:
        src, dst = self.way
        who = dst if fate == "arrived" else src
        other = f"from {src}" if fate == "arrived" else f"to {dst}"
        self._network.trace.passage(self._network.loop.time(), who, f"{fate} {other}:", frames)
