"""The backend of a gateway: many workers share one socket to each dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from longshore.gateway.backend import Backend, SharedLink
from longshore.ports import OnMessages
from longshore.testing.builders import new_id
from longshore.wire import messages as m
from longshore.wire.codec import encode, from_dispatcher


class Socket:
    """A socket to a dispatcher that a test plays."""

    def __init__(self, on_messages: OnMessages) -> None:
        self.on_messages = on_messages
        self.sent: list[Sequence[bytes]] = []
        self.closes = 0

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        self.sent.append(frames)
        return True

    def key_of(self, peer: bytes) -> str:
        return ""

    def close(self) -> None:
        self.closes += 1

    def say(self, *messages: m.DispatcherMessage) -> None:
        self.on_messages([(b"", encode(one)) for one in messages])


class Dialled:
    """A backend whose sockets are kept, by their order."""

    def __init__(self) -> None:
        self.sockets: list[tuple[str, Socket]] = []
        self.backend = Backend(["tcp://a:1", "tcp://b:1"], self._dial)

    def _dial(self, address: str, on_messages: OnMessages) -> Socket:
        self.sockets.append((address, Socket(on_messages)))
        return self.sockets[-1][1]

    def worker(self, address: str = "tcp://a:1") -> tuple[UUID, SharedLink, list[object]]:
        """A worker that has said hello, and what it hears."""
        worker, heard = new_id(), list[object]()
        link = self.backend.connect(
            address, lambda arrived: heard.extend(from_dispatcher.decode(one) for _, one in arrived)
        )
        link.send(b"", encode(m.Ready(v=m.PROTOCOL_VERSION, worker=worker)))
        return worker, link, heard


def test_workers_share_a_socket_and_each_hears_only_what_is_for_it() -> None:
    dialled = Dialled()
    (first, _, to_first), (second, _, to_second) = dialled.worker(), dialled.worker()
    [(_, socket)] = dialled.sockets
    socket.say(m.Welcome(second, 1, 1.0, 15.0), m.Pong(first, 1, 1.0), m.Pong(new_id(), 1, 1.0))
    assert to_first == [m.Pong(first, 1, 1.0)]
    assert to_second == [m.Welcome(second, 1, 1.0, 15.0)]
    assert len(socket.sent) == 2


def test_a_worker_under_a_new_id_is_found_by_it() -> None:
    dialled = Dialled()
    _, link, heard = dialled.worker()
    anew = new_id()
    link.send(b"", encode(m.Ready(v=m.PROTOCOL_VERSION, worker=anew)))
    dialled.sockets[0][1].say(m.Gone(anew, "lost"))
    assert heard == [m.Gone(anew, "lost")]


def test_who_moves_away_leaves_the_socket_to_the_others_and_the_last_one_closes_it() -> None:
    dialled = Dialled()
    (worker, leaving, heard), (_, staying, _) = dialled.worker(), dialled.worker()
    [(_, socket)] = dialled.sockets
    leaving.close()
    leaving.close()
    socket.say(m.Pong(worker, 1, 1.0))
    assert not heard
    assert socket.closes == 0
    assert not leaving.send(b"", encode(m.Bye(worker)))
    staying.close()
    assert socket.closes == 1
    dialled.worker()
    assert [address for address, _ in dialled.sockets] == ["tcp://a:1", "tcp://a:1"]


def test_each_dispatcher_has_a_socket_of_its_own() -> None:
    dialled = Dialled()
    dialled.worker("tcp://a:1")
    dialled.worker("tcp://b:1")
    assert [address for address, _ in dialled.sockets] == ["tcp://a:1", "tcp://b:1"]


def test_junk_reaches_nobody() -> None:
    dialled = Dialled()
    _, _, heard = dialled.worker()
    dialled.sockets[0][1].on_messages([(b"", []), (b"", [b"", b"PONG", b"\xc1"])])
    assert not heard
