"""Sends messages to workers, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longshore.ports import Link, OnMessages
from longshore.wire import messages as m
from longshore.wire.codec import encode
from longshore.wire.dispatcher_side import Session

Listen = Callable[[str, OnMessages], Link]


class WorkerLink:
    """The socket for workers. It exists from `open` on."""

    def __init__(self) -> None:
        self.socket: Link

    def open(self, listen: Listen, address: str, on_messages: OnMessages) -> Link:
        """Listens at this address."""
        self.socket = listen(address, on_messages)
        return self.socket

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Sends frames; False if there is no such peer or no room."""
        return self.socket.send(peer, frames)

    def key_of(self, peer: bytes) -> str:
        """The key of a peer whose message is being delivered (see `ports.Link`)."""
        return self.socket.key_of(peer)

    def tell(self, session: Session, messages: Sequence[m.DispatcherMessage]) -> bool:
        """Sends messages to a worker; False if some could not be sent.

        The worker's next PING, or its loss, makes up for those.
        """
        sent = [self.socket.send(session.peer, encode(one)) for one in messages]
        return all(sent)

    def acknowledge(self, session: Session, ack: m.Ack) -> None:
        """Sends an ACK, now or after the worker's next PING."""
        if not self.tell(session, session.acknowledge(ack)):
            session.unsent_acks.append(ack)

    def abort(self, session: Session, job: m.AttemptKey, reason: str) -> None:
        """Tells a worker to stop an attempt."""
        self.tell(session, session.abort([job], reason))
