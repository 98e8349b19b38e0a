"""Requests for others, and the requests of clients about tokens and the audit (see `messages`).

A gateway asks for those who show it a token. It sends the hash of the token around the request:

    ["", "ONBEHALF", {rid, token, verb, request}]

`verb` and `request` are the frames of the request itself, and its answer comes as always. So a
request without a token costs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from longshore.errors import ProtocolError
from longshore.model.access import AskerView, Audited, AuditFilter, NewToken, Token
from longshore.wire.actor_messages import Numbered

HASH_BYTES: Final = 32
ON_BEHALF: Final = b"ONBEHALF"


class OnBehalf(Struct, frozen=True):
    """A request of somebody else, who showed the token with this hash."""

    rid: int
    token: bytes
    verb: str
    request: Raw


_decoder = msgspec.msgpack.Decoder(OnBehalf)
_encoder = msgspec.msgpack.Encoder()


def on_behalf(token: bytes, rid: int, frames: Sequence[bytes]) -> list[bytes]:
    """The frames that ask for the holder of a token what these frames ask."""
    wrapped = OnBehalf(rid, token, frames[1].decode(), Raw(frames[2]))
    return [b"", ON_BEHALF, _encoder.encode(wrapped)]


def unwrapped(frames: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """The hash of the token, and the frames of the request, in an ONBEHALF."""
    try:
        found = _decoder.decode(frames[2])
        frames = [b"", found.verb.encode(), bytes(found.request)]
    except (IndexError, ValueError, RecursionError) as error:
        raise ProtocolError(f"ONBEHALF is malformed: {error}") from None
    if len(found.token) != HASH_BYTES:
        raise ProtocolError(f"the token of ONBEHALF has {HASH_BYTES} bytes: a SHA-256 hash")
    return found.token, frames


class CreateToken(Numbered, frozen=True):
    """Make a token, once for the id of `new`."""

    new: NewToken


class RevokeToken(Numbered, frozen=True):
    """Make a token worthless: the one with this name, or this id as text."""

    id: UUID
    token: str


class ListTokens(Numbered, frozen=True):
    """Which tokens there are, those too that are worth nothing any more."""


class ListAudit(Numbered, frozen=True):
    """Who asked for which changes, newest first."""

    wanted: AuditFilter = AuditFilter()


class ShowAsker(Numbered, frozen=True):
    """Who asks here, and what they may do?"""


AccessRequest = CreateToken | RevokeToken | ListTokens | ListAudit | ShowAsker

ACCESS_ANSWERS: Final[dict[type, Any]] = {
    CreateToken: Token,
    RevokeToken: Token,
    ListTokens: tuple[Token, ...],
    ListAudit: tuple[Audited, ...],
    ShowAsker: AskerView,
}
