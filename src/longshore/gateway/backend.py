"""A gateway's connections to the backends of dispatchers, where it is a worker.

A gateway speaks for many workers: its own, and one for each web service. All of them talk through
one socket for each dispatcher that they use. Messages of that dialogue name their worker, so the
backend hands each one that comes to the link whose worker it names. A link learns which workers are
its from what it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from longshore.ports import OnMessages
from longshore.wire.codec import worker_of
from longshore.worker.agent import Connect


class Backend:
    """Sockets to dispatchers, shared by all workers of a gateway.

    `connect` is what a `Worker` takes for that. `dial` opens a socket. The backend closes one when
    no link uses it any more.
    """

    def __init__(self, addresses: Sequence[str], dial: Connect) -> None:
        self.addresses = tuple(addresses)
        """The dispatchers, in the order in which workers should try them."""
        self._dial = dial
        self._lines: dict[str, _Line] = {}

    def connect(self, address: str, on_messages: OnMessages) -> SharedLink:
        """A link to the dispatcher at this address, for one worker."""
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(self._dial, address)
        link = SharedLink(line, on_messages, partial(self._left, address, line))
        line.links.add(link)
        return link

    def _left(self, address: str, line: _Line) -> None:
        if not line.links:
            del self._lines[address]
            line.socket.close()


class _Line:
    """The socket to one dispatcher, the links that share it, and whose each worker is."""

    def __init__(self, dial: Connect, address: str) -> None:
        self.links: set[SharedLink] = set()
        self.by_worker: dict[UUID, SharedLink] = {}
        self.socket = dial(address, self._deliver)

    def _deliver(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        """Hands messages to the links of their workers; drops those of workers that left."""
        by_link: dict[SharedLink, list[tuple[bytes, list[bytes]]]] = {}
        for peer, frames in arrived:
            worker = worker_of(frames)
            link = None if worker is None else self.by_worker.get(worker)
            if link is not None:
                by_link.setdefault(link, []).append((peer, frames))
        for link, messages in by_link.items():
            link.on_messages(messages)

    def forget(self, link: SharedLink) -> None:
        """A link is closed: what comes for its workers is dropped."""
        self.links.discard(link)
        for worker in [worker for worker, one in self.by_worker.items() if one is link]:
            del self.by_worker[worker]


class SharedLink:
    """One worker's part of a socket: a `ports.Link`."""

    def __init__(self, line: _Line, on_messages: OnMessages, left: Callable[[], None]) -> None:
        self.on_messages = on_messages
        self._line = line
        self._left = left
        self._last: UUID | None = None
        self._is_closed = False

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Sends a message of a worker, whose messages come to this link from now on."""
        if self._is_closed:
            return False
        worker = worker_of(frames)
        if worker is not None and worker != self._last:
            self._last = worker
            self._line.by_worker[worker] = self
        return self._line.socket.send(peer, frames)

    def key_of(self, peer: bytes) -> str:
        """Always empty, as of any connecting side."""
        return ""

    def close(self) -> None:
        """Leaves the socket to the other links; the last one closes it."""
        if not self._is_closed:
            self._is_closed = True
            self._line.forget(self)
            self._left()
