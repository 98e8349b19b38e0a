"""Callback tokens: texts with which anyone may send one value to an actor, once.

A token says whose it is (actor, turn, place among the callbacks of that turn) and who handles the
value, and is signed. The key follows from a secret of the store and from (actor, turn). A turn gets
its own key with its input. So a run of the turn signs without asking anybody, another run of it
makes the same tokens, and a worker can sign for no other turn. Whoever takes a token derives the
key again.

The value becomes a message whose id follows from (actor, turn, place), so the first one counts. The
store keeps that id for as long as the actor lives.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct, msgpack

from longshore.core.turns import REPLY_PREFIX
from longshore.errors import InvalidInput
from longshore.model.actor import Message, Replied
from longshore.model.ids import derive_id

MAX_CALLBACK_ABOUT_BYTES: Final = 1024
"""How long `about` may be in a token, packed."""
MAX_TOKEN_CHARS: Final = 8 * 1024

_FIRST: Final = 1 << 60
_MAC_BYTES: Final = 16
_PERSON: Final = b"longshore.cb"

_packer: Final = msgpack.Encoder()


class Callback(Struct, frozen=True, array_like=True):
    """What a token says. `index` is its place among the callbacks of the turn."""

    actor: UUID
    turn: int
    index: int
    type: str
    key: str
    name: str
    about: bytes = b""

    @property
    def id(self) -> UUID:
        """The id of the message that its value becomes."""
        return derive_id(derive_id(self.actor, self.turn), _FIRST + self.index)


_decoder: Final = msgpack.Decoder(Callback)


def turn_key(secret: bytes, actor: UUID, turn: int) -> bytes:
    """The key with which a turn signs its tokens."""
    named = actor.bytes + turn.to_bytes(8, "big")
    return blake2b(named, key=secret, digest_size=32, person=_PERSON).digest()


def sign(key: bytes, callback: Callback) -> str:
    """The token of a callback, signed with the key of its turn."""
    said = _packer.encode(callback)
    return urlsafe_b64encode(said + _mac(key, said)).decode().rstrip("=")


def _mac(key: bytes, said: bytes) -> bytes:
    return blake2b(said, key=key, digest_size=_MAC_BYTES, person=_PERSON).digest()


def verified(secret: bytes, token: str) -> Callback:
    """What a token says; raises `InvalidInput` if no turn of this fleet has signed it."""
    try:
        data = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        said, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        callback = _decoder.decode(said)
        key = turn_key(secret, callback.actor, callback.turn)
    except (ValueError, OverflowError, msgspec.DecodeError):
        raise _forged(token) from None
    if not compare_digest(mac, _mac(key, said)) or token != sign(key, callback):
        raise _forged(token)
    return callback


def _forged(token: str) -> InvalidInput:
    return InvalidInput(
        f"'{token:.20}…' is not a token of this fleet; give the whole text that ctx.callback() made"
    )


def resolution(callback: Callback, value: bytes | None) -> Message:
    """The message with which the actor gets the value, as it gets a reply to an ask."""
    args = _packer.encode(Replied(value, None, callback.about))
    name = REPLY_PREFIX + callback.name
    return Message(callback.id, callback.type, callback.key, name, args, actor=callback.actor)
