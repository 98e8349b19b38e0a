"""CURVE on ZeroMQ sockets: encrypted both ways, and only known keys get through.

Theory. A listening socket with a secret key speaks CURVE and nothing else, so a peer without keys
never finishes its handshake. Of each peer that does speak it, libzmq asks the process's ZAP
handler, a socket at a fixed address inside the context, whether its key may enter; until the answer
is yes, not one of its frames is delivered. Each listening socket asks in its own domain, so that a
client's key opens the frontend and not the backend. `ZAP_ENFORCE_DOMAIN` makes libzmq refuse
everybody while there is no handler.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from typing import Final

import zmq
from zmq.utils import z85

from longshore.links.keys import Keys
from longshore.links.zeromq import Secure, Socket

log = logging.getLogger("longshore.curve")

ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
ZAP_VERSION: Final = b"1.0"
REMEMBERED: Final = 1_000
NAMED_KEYS: Final = 10


def serving(keys: Keys, domain: str) -> Secure:
    """Sets up a listening socket that lets in the keys of this domain, by the ZAP handler."""

    def secure(socket: zmq.Socket[bytes]) -> None:
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
        socket.set_string(zmq.ZAP_DOMAIN, domain)
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)

    return secure


def calling(keys: Keys, server_key: str) -> Secure:
    """Sets up a connecting socket that talks to the owner of this key, and to nobody else."""

    def secure(socket: zmq.Socket[bytes]) -> None:
        socket.set(zmq.CURVE_SERVERKEY, server_key.encode())
        socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())

    return secure


class Gate(Socket):
    """The ZAP handler of a context: a domain's ring of keys decides who enters there."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], rings: Mapping[str, Container[str]]
    ) -> None:
        super().__init__(zmq.ROUTER, context)
        self._rings = rings
        self._refused: OrderedDict[tuple[str, str], set[str]] = OrderedDict()
        self._socket.bind(ZAP_ADDRESS)
        self._watch()

    def _deliver(self, arrived: list[list[bytes]]) -> None:
        for frames in arrived:
            # A router names who asks; then come an empty frame, and the request.
            asker, empty, version, number = frames[:4]
            verdict = self._judge(frames[4:]) if version == ZAP_VERSION else _NO
            self._send([asker, empty, ZAP_VERSION, number, *verdict])

    def _judge(self, request: Sequence[bytes]) -> Sequence[bytes]:
        domain, address, _identity, mechanism, *credentials = request
        if mechanism != b"CURVE" or len(credentials) != 1 or len(credentials[0]) != 32:
            return _NO
        key = z85.encode(credentials[0]).decode()
        if key in self._rings.get(domain.decode(errors="replace"), ()):
            return (b"200", b"OK", key.encode(), b"")
        self._note(domain.decode(errors="replace"), address.decode(errors="replace"), key)
        return _NO

    def _note(self, domain: str, address: str, key: str) -> None:
        """Logs each refused key once: a stranger that keeps trying must not fill the disk."""
        named = self._refused.setdefault((domain, address), set())
        if len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)
        if key not in named and len(named) < NAMED_KEYS:
            named.add(key)
            log.warning(
                "refused a peer at %s: its key %s is not one of the %s", address, key, domain
            )


_NO: Final = (b"400", b"not known here", b"", b"")
