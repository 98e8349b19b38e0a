"""Packs: many small blobs in one body, so that 100,000 small files are not 100,000 requests.

A pack is a row of blobs, each as its SHA-256 (32 bytes), its size (4 bytes, big-endian) and its
bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from longshore.errors import InvalidInput

PACKED_BYTES: Final = 64 * 1024
"""The largest blob in a pack."""
PACK_BLOBS: Final = 500
"""How many blobs a pack may have."""
PACK_BYTES: Final = 8 * 1024 * 1024
"""How many bytes the blobs of a pack may have."""
HEAD_BYTES: Final = 36
MOST_BODY_BYTES: Final = PACK_BYTES + PACK_BLOBS * HEAD_BYTES

T = TypeVar("T")


def frame(sha256: bytes, data: bytes) -> bytes:
    """A blob as it stands in a pack."""
    return sha256 + len(data).to_bytes(4, "big") + data


class Unpacking:
    """Finds the blobs in a pack that comes piece by piece, and checks their hashes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self.count = 0

    def add(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The blobs that are whole now, each with its hash; raises `InvalidInput`."""
        self._held += piece
        at = 0
        while len(self._held) >= at + HEAD_BYTES:
            size = int.from_bytes(self._held[at + 32 : at + HEAD_BYTES], "big")
            if size > PACKED_BYTES or self.count == PACK_BLOBS:
                raise InvalidInput(
                    f"a pack has at most {PACK_BLOBS} blobs, of {PACKED_BYTES:,} bytes each"
                )
            end = at + HEAD_BYTES + size
            if len(self._held) < end:
                break
            yield self._checked(
                bytes(self._held[at : at + 32]), bytes(self._held[at + HEAD_BYTES : end])
            )
            at = end
        del self._held[:at]

    def _checked(self, sha256: bytes, data: bytes) -> tuple[bytes, bytes]:
        if hashlib.sha256(data).digest() != sha256:
            raise InvalidInput(f"the pack has other bytes than those of {sha256.hex()}")
        self.count += 1
        return sha256, data

    def finish(self) -> None:
        """Raises `InvalidInput` if the pack breaks off."""
        if self._held:
            raise InvalidInput("the pack breaks off in the middle of a blob")


def in_packs(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Items with the sizes of their blobs, as many together as fit into a pack."""
    some: list[T] = []
    total = 0
    for item, size in items:
        if some and (len(some) == PACK_BLOBS or total + size > PACK_BYTES):
            yield some
            some, total = [], 0
        some.append(item)
        total += size
    if some:
        yield some
