"""Ids that sort by time, and ids that follow from other ids."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final
from uuid import UUID

from msgspec import convert

from longshore.errors import InvalidInput

NOISE_BYTES: Final = 10
_SET = 0x7 << 76 | 0b10 << 62
_KEPT = (1 << 8 * NOISE_BYTES) - 1 & ~(0xF << 76 | 0b11 << 62)
_ONE = (1).to_bytes(NOISE_BYTES, "big")
_ONE_OF_16 = (1).to_bytes(16, "big")
_DERIVED = 0x8 << 76 | 0b10 << 62
_NOISE = 0xFFF << 64 | (1 << 62) - 1


def make_id(unix_ms: int, random: bytes) -> UUID:
    """A UUIDv7: ids made later sort later. `random` is 10 random bytes."""
    [noise] = noises(random)
    return timed_id(unix_ms, noise)


def noises(random: bytes) -> list[bytes]:
    """All but the times of UUIDv7s, one for each 10 random bytes, made in one go."""
    ends = range(NOISE_BYTES, len(random) + 1, NOISE_BYTES)
    each = int.from_bytes(_ONE * len(ends), "big")
    fixed = (int.from_bytes(random, "big") & _KEPT * each) | _SET * each
    made = fixed.to_bytes(len(random), "big")
    return [made[end - NOISE_BYTES : end] for end in ends]


def timed_id(unix_ms: int, noise: bytes) -> UUID:
    """The UUIDv7 of this time and this noise."""
    # Less than half of what `UUID(…)` takes.
    return convert((unix_ms & (1 << 48) - 1).to_bytes(6, "big") + noise, UUID)


def derive_id(parent: UUID, index: int) -> UUID:
    """The id of the index-th job that `parent` submits. Every run of the parent makes the same id.

    It keeps the parent's time, so that it sorts beside the parent.
    """
    parent_int = parent.int
    hashed = parent_int.to_bytes(16, "big") + index.to_bytes(8, "big")
    noise = int.from_bytes(blake2b(hashed, digest_size=16).digest(), "big")
    derived = parent_int >> 80 << 80 | _DERIVED | noise & _NOISE
    # Less than half of what `UUID(…)` takes.
    return convert(derived.to_bytes(16, "big"), UUID)


def derive_ids(parent: UUID, indexes: Sequence[int]) -> list[UUID]:
    """The `derive_id` of each index. Of many together it takes half of the time."""
    parent_int, count = parent.int, len(indexes)
    copy, digests = blake2b(parent_int.to_bytes(16, "big"), digest_size=16).copy, list[bytes]()
    for index in indexes:
        hashed = copy()
        hashed.update(index.to_bytes(8, "big"))
        digests.append(hashed.digest())
    each = int.from_bytes(_ONE_OF_16 * count, "big")
    fixed = (parent_int >> 80 << 80 | _DERIVED) * each
    derived = (int.from_bytes(b"".join(digests), "big") & _NOISE * each) | fixed
    made = derived.to_bytes(16 * count, "big")
    return convert([made[start : start + 16] for start in range(0, 16 * count, 16)], list[UUID])


def submitted_id(parent: UUID, round: int, index: int) -> UUID:
    """The id of the index-th job that `parent` submits in this round of its own.

    In the first round it is what it was before rounds counted: a job that an older worker gave up
    submits the same jobs on a newer one.
    """
    # The high bit keeps these apart from what a job adds to its group.
    return derive_id(parent, index if round == 1 else 1 << 63 | round << 32 | index)


def fired_id(schedule: UUID, unix_us: int) -> UUID:
    """The id of what a schedule submits for the nominal time of so many microseconds.

    It sorts by the nominal time.
    """
    noise = derive_id(schedule, unix_us & (1 << 63) - 1).int & (1 << 80) - 1
    return UUID(int=(unix_us // 1000 & (1 << 48) - 1) << 80 | noise)


def watched_id(subject: UUID, round: int, index: int) -> UUID:
    """The id of the message that tells the index-th watcher of the end of this round."""
    return derive_id(subject, 1 << 62 | round << 16 | index)


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
