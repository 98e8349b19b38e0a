"""Tickets: signed texts with which attempts may reach their files at gateways.

The key follows from the secret of the store, so every dispatcher reads what another has signed. A
signature says who the attempt is; whether it still counts, only the store knows.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

import msgspec
from msgspec import msgpack

from longshore.errors import NotAuthenticated
from longshore.model.fileset import Ticket

MAX_TICKET_CHARS: Final = 500
SPARE_S: Final = 86_400.0
"""How much longer than its timeout an attempt may reach its files: it waits, and transfers."""
LONGEST_S: Final = 365 * 86_400.0
"""How long an attempt without a timeout may."""

_MAC_BYTES: Final = 16
_PERSON: Final = b"longshore.ticket"

_packer: Final = msgpack.Encoder(uuid_format="bytes")
_decoder: Final = msgpack.Decoder(Ticket)


def ticket_key(secret: bytes) -> bytes:
    """The key that signs tickets, which follows from the secret of the store."""
    return blake2b(b"tickets", key=secret, digest_size=32, person=_PERSON).digest()


def good_for_s(timeout_s: float | None) -> float:
    """How long the ticket of an attempt is good, at most."""
    return LONGEST_S if timeout_s is None else min(timeout_s + SPARE_S, LONGEST_S)


def sign(key: bytes, ticket: Ticket) -> str:
    """The text of a ticket."""
    said = _packer.encode(ticket)
    return urlsafe_b64encode(said + _mac(key, said)).decode().rstrip("=")


def verified(key: bytes, text: str, now: float) -> Ticket:
    """What a ticket says; raises `NotAuthenticated` if it is not ours, or too old."""
    try:
        data = urlsafe_b64decode(text[: MAX_TICKET_CHARS + 1] + "=" * (-len(text) % 4))
    except ValueError:
        data = b""
    said, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
    if not compare_digest(_mac(key, said), mac):
        raise NotAuthenticated("this ticket is none of this fleet; a worker gets it with its job")
    ticket = _decode(said)
    if now > ticket.expires_at:
        raise NotAuthenticated(f"the ticket of job {ticket.job} has expired")
    return ticket


def _decode(said: bytes) -> Ticket:
    try:
        return _decoder.decode(said)
    except msgspec.MsgspecError as error:
        raise NotAuthenticated(f"this ticket is of another version: {error}") from None


def _mac(key: bytes, said: bytes) -> bytes:
    return blake2b(said, key=key, digest_size=_MAC_BYTES, person=_PERSON).digest()
