"""Sends messages to workers, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from longshore.model.worker import WorkerInfo
from longshore.ports import Link, OnMessages
from longshore.wire import messages as m
from longshore.wire.codec import encode
from longshore.wire.dispatcher_side import Session

Listen = Callable[[str, OnMessages], Link]


class WorkerLink:
    """The socket for workers. It exists from `open` on.

    Of connections with keys, only those with one of `gateway_keys` carry workers of gateways.
    """

    def __init__(self, gateway_keys: Container[str] = ()) -> None:
        self.socket: Link
        self._gateway_keys = gateway_keys

    def refuses(self, info: WorkerInfo) -> str | None:
        """Why a worker may not be one of a gateway; None if it may, or is none."""
        is_of_gateway = info.gateway or info.service is not None
        if not is_of_gateway or not info.key or info.key in self._gateway_keys:
            return None
        return (
            f"READY is refused: key {info.key} is not that of a gateway; add its public key file "
            "to curve_gateways of the dispatchers"
        )

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
