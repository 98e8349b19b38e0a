"""Bulks as both stores keep them."""

from __future__ import annotations

from typing import Final

from msgspec import msgpack

from longshore.model.bulk import BulkRun, NewBulk
from longshore.model.job import Refused

_encode: Final = msgpack.Encoder(uuid_format="bytes").encode
_decoder: Final = msgpack.Decoder(BulkRun)


def pack_bulk(bulk: BulkRun) -> bytes:
    """A bulk as it is stored."""
    return _encode(bulk)


def unpack_bulk(packed: bytes) -> BulkRun:
    """A bulk."""
    return _decoder.decode(packed)


def too_many_bulks(new: NewBulk, most: int) -> Refused:
    """The answer to a bulk past the bound."""
    return Refused(
        new.id,
        "wrong_state",
        f"{most} bulks are running, which is the most (max_bulks); wait until one is done, or "
        "cancel one: `longshore bulk ls`",
    )
