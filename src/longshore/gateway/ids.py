"""The ids of what a request makes or changes: derived from its `Idempotency-Key`, if it has one.

Everything that changes something carries an id, by which dispatchers recognise a repeat. A request
with a key that comes twice makes the same ids both times, at any gateway: so its effect happens
once, and nothing needs to be remembered here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Final
from uuid import UUID

from longshore.client.ids import fresh_id
from longshore.errors import InvalidInput

MAX_KEY_CHARS: Final = 255
_KEY: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_VERSION: Final = 0x8 << 76 | 0b10 << 62
_NOISE: Final = ~(0xF << 76 | 0b11 << 62) & (1 << 128) - 1


class _Derived:
    """Makes one id after the other of a seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._count = 0

    def next_id(self, of: bytes) -> UUID:
        """The next id, for something with this fingerprint."""
        self._count += 1
        seed = self._seed + self._count.to_bytes(8, "big") + of
        made = blake2b(seed, digest_size=16).digest()
        return UUID(int=int.from_bytes(made, "big") & _NOISE | _VERSION)


_derived: ContextVar[_Derived | None] = ContextVar("_derived", default=None)


def new_id(of: bytes = b"") -> UUID:
    """An id for what the present request makes or changes.

    With the fingerprint `of` a body, the same key with another body makes another id.
    """
    derived = _derived.get()
    return fresh_id() if derived is None else derived.next_id(of)


def has_key() -> bool:
    """Whether the present request has an `Idempotency-Key`."""
    return _derived.get() is not None


@contextmanager
def ids_of(method: str, path: str, key: str | None, token: bytes | None) -> Iterator[None]:
    """Inside, `new_id` goes by this key.

    The same key on another address, or of the holder of another token, is another one.
    """
    if key is None:
        yield
        return
    who = "" if token is None else token.hex()
    words = (method, path, _plain(key), *([who] if who else []))
    seed = blake2b("\n".join(words).encode()).digest()
    before = _derived.set(_Derived(seed))
    try:
        yield
    finally:
        _derived.reset(before)


def _plain(key: str) -> str:
    """The key, without the quotes that a structured header has."""
    text = key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
    if not _KEY.fullmatch(text) or len(text) > MAX_KEY_CHARS:
        raise InvalidInput(
            f"Idempotency-Key has 1 to {MAX_KEY_CHARS} printable ASCII characters; a UUID will do"
        )
    return text
