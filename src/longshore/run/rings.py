"""Who may connect to a dispatcher, by keys: rings of them, and the gate that asks for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager

import zmq
from msgspec import Struct

from longshore.config import Config
from longshore.links import curve
from longshore.links.keys import ClientKeys, KeyRing, Keys
from longshore.links.zeromq import Secure
from longshore.run import machine

Sockets = zmq.Context[zmq.Socket[bytes]]

log = logging.getLogger("longshore")


class Rings(Struct, frozen=True):
    """A dispatcher's own keys, and those that it lets in."""

    own: Keys
    workers: KeyRing
    clients: ClientKeys
    gateways: KeyRing
    """They connect as workers, too. That beside a dispatcher has the dispatcher's own key."""

    @classmethod
    def of(cls, config: Config, own: Keys) -> Rings:
        def ring(sources: Sequence[str]) -> KeyRing:
            return KeyRing(sources, own, now=machine.SystemClock().now, on_fault=log.warning)

        gateways = ring(config.curve_gateways)
        clients = ClientKeys(ring(config.curve_clients), gateways)
        return cls(own, ring((*config.curve_workers, *config.curve_gateways)), clients, gateways)


@contextmanager
def gate(rings: Rings | None, sockets: Sockets) -> Iterator[Callable[[str], Secure | None]]:
    """How each of a dispatcher's sockets is secured, while the gate is open."""
    if rings is None:
        yield lambda domain: None
        return
    doors: dict[str, Container[str]] = {"workers": rings.workers, "clients": rings.clients}
    opened = curve.Gate(sockets, doors)
    try:
        yield lambda domain: curve.serving(rings.own, domain)
    finally:
        opened.close()
