"""Ids that sort by time, and ids that follow from other ids."""

from __future__ import annotations

from hashlib import blake2b
from uuid import UUID

from longshore.errors import InvalidInput

_VERSION_7 = 0x7 << 76
_VERSION_8 = 0x8 << 76
_VARIANT = 0b10 << 62


def make_id(unix_ms: int, random: bytes) -> UUID:
    """A UUIDv7: ids made later sort later. `random` is 10 random bytes."""
    noise = int.from_bytes(random, "big")
    rand_a = (noise >> 62) & 0xFFF
    rand_b = noise & ((1 << 62) - 1)
    return UUID(int=(unix_ms & (1 << 48) - 1) << 80 | _VERSION_7 | rand_a << 64 | _VARIANT | rand_b)


def derive_id(parent: UUID, index: int) -> UUID:
    """The id of the index-th job that `parent` submits. Every run of the parent makes the same id.

    It keeps the parent's time, so that it sorts beside the parent.
    """
    digest = blake2b(parent.bytes + index.to_bytes(8, "big"), digest_size=16).digest()
    noise = int.from_bytes(digest, "big")
    rand_a = (noise >> 64) & 0xFFF
    rand_b = noise & ((1 << 62) - 1)
    return UUID(int=parent.int >> 80 << 80 | _VERSION_8 | rand_a << 64 | _VARIANT | rand_b)


def parse_ref(text: str, what: str = "job") -> UUID | int:
    """The id or the number that names a job, or a group."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(
            f"'{text}' is not a {what}: give its number (like 42) or its id (a UUID)"
        ) from None
