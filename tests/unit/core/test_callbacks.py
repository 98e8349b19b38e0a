"""Callback tokens: what they say, and that nobody can make one up."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.callbacks import Callback, resolution, sign, turn_key, verified
from longshore.errors import InvalidInput

SECRET = b"s" * 32
ACTOR = UUID("018bcfe5-6848-7000-8000-08c200000048")
CALLBACK = Callback(ACTOR, 7, 2, "Order", "a-1", "paid", b"\x2a")


def a_token(callback: Callback = CALLBACK, secret: bytes = SECRET) -> str:
    return sign(turn_key(secret, callback.actor, callback.turn), callback)


def test_a_token_says_what_was_signed() -> None:
    token = a_token()
    assert verified(SECRET, token) == CALLBACK
    assert token == a_token()
    assert token.replace("-", "").replace("_", "").isalnum()


def test_its_message_is_for_this_actor_alone_and_always_the_same() -> None:
    message = resolution(CALLBACK, b"\x01")
    assert (message.type, message.key, message.name) == ("Order", "a-1", "reply:paid")
    assert (message.actor, message.id) == (ACTOR, resolution(CALLBACK, b"\x02").id)
    others = [structs.replace(CALLBACK, index=3), structs.replace(CALLBACK, turn=8)]
    assert len({message.id, *(one.id for one in others)}) == 3


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "no token",
        "é",
        a_token(secret=b"t" * 32),
        a_token()[:-1],
        a_token() + "A",
        a_token() + "=",
        sign(turn_key(SECRET, ACTOR, 8), CALLBACK),
    ],
)
def test_a_forged_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="is not a token of this fleet"):
        verified(SECRET, token)


def test_no_byte_of_a_token_can_be_changed() -> None:
    token = a_token()
    data = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(InvalidInput):
            verified(SECRET, urlsafe_b64encode(changed).decode().rstrip("="))
