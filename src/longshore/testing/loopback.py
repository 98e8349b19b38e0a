"""Links inside one process: a network of addresses with no sockets under it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from longshore.errors import AddressInUse
from longshore.ports import OnMessages


class Network:
    """Who listens where. Messages take `delay_s`, in order, unless the way is cut."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.listeners: dict[str, Listener] = {}
        self.cut: set[str] = set()
        """Addresses whose messages are lost in both directions."""
        self._peers = 0

    def listen(self, address: str, on_messages: OnMessages) -> Listener:
        """Listens at an address."""
        if address in self.listeners:
            raise AddressInUse(f"{address} is taken")
        self.listeners[address] = Listener(self, address, on_messages)
        return self.listeners[address]

    def connect(self, address: str, on_messages: OnMessages) -> Connector:
        """Connects to an address, whether or not anybody listens there yet."""
        self._peers += 1
        return Connector(self, address, b"peer-%d" % self._peers, on_messages)

    def carry(self, address: str, deliver: Callable[[], None]) -> None:
        """Delivers a message later, unless it is lost."""

        def arrive() -> None:
            if address not in self.cut:
                deliver()

        if address not in self.cut:
            asyncio.get_running_loop().call_later(self.delay_s, arrive)


class Listener:
    """The listening end: knows its peers by their identity."""

    def __init__(self, network: Network, address: str, on_messages: OnMessages) -> None:
        self._network = network
        self.address = address
        self.on_messages = on_messages
        self.peers: dict[bytes, Connector] = {}
        self.keys: dict[bytes, str] = {}
        """With which key a peer came, where a story has keys."""

    def key_of(self, peer: bytes) -> str:
        """The key with which a peer came, if it has one."""
        return self.keys.get(peer, "")

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to a peer; False if there is no such peer."""
        connector = self.peers.get(peer)
        if connector is None:
            return False
        self._network.carry(self.address, lambda: connector.arrived(list(frames)))
        return True

    def arrived(self, peer: Connector, frames: list[bytes]) -> None:
        """A message came from a peer."""
        self.peers[peer.identity] = peer
        self.on_messages([(peer.identity, frames)])

    def close(self) -> None:
        """Listens no more."""
        del self._network.listeners[self.address]


class Connector:
    """The connecting end."""

    def __init__(
        self, network: Network, address: str, identity: bytes, on_messages: OnMessages
    ) -> None:
        self._network = network
        self._address = address
        self.identity = identity
        self._on_messages = on_messages
        self._open = True

    def key_of(self, peer: bytes) -> str:
        """None: nobody is asked for a key."""
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to whoever listens at the address when it arrives."""
        self._network.carry(self._address, lambda: self._deliver(list(frames)))
        return True

    def _deliver(self, frames: list[bytes]) -> None:
        listener = self._network.listeners.get(self._address)
        if listener is not None:
            listener.arrived(self, frames)

    def arrived(self, frames: list[bytes]) -> None:
        """A message came from the listener."""
        if self._open:
            self._on_messages([(b"", frames)])

    def close(self) -> None:
        """Hears and says nothing more."""
        self._open = False
        listener = self._network.listeners.get(self._address)
        if listener is not None:
            listener.peers.pop(self.identity, None)
