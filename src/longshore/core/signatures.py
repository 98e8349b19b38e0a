"""Signatures between gateways and web workers, both ways.

The secret of a service follows from a key of the fleet, its id and the number of its registration.
So nobody stores it, and a repeated registration answers the same one. A signature covers who speaks
to whom, the method, the path with its query, the time and the body.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b, sha256
from typing import Final
from uuid import UUID

CLOCKS_DIFFER_S: Final = 300
"""A signature is good for so long, before and after its time."""

TO_SERVICE: Final = "gateway"
FROM_SERVICE: Final = "worker"

_PERSON: Final = b"longshore.web"


def fleet_key(secret: bytes) -> bytes:
    """The key of the fleet, which follows from the secret of its store."""
    return blake2b(b"web workers", key=secret, digest_size=32, person=_PERSON).digest()


def secret_of(key: bytes, web_worker: UUID, number: int) -> str:
    """The secret of a service, as text."""
    named = web_worker.bytes + number.to_bytes(8, "big")
    return hmac.new(key, named, sha256).hexdigest()


def signature(secret: str, speaker: str, method: str, path: str, time: int, body: bytes) -> str:
    """The signature of a message; the digest of the body stands for it."""
    said = "\n".join((speaker, method, path, str(time), sha256(body).hexdigest()))
    return hmac.new(secret.encode(), said.encode(), sha256).hexdigest()


def is_signed(
    secret: str,
    given: str,
    speaker: str,
    method: str,
    path: str,
    time: int,
    body: bytes,
    now: float,
) -> bool:
    """Whether a signature is right, and of this time."""
    if abs(now - time) > CLOCKS_DIFFER_S:
        return False
    made = signature(secret, speaker, method, path, time, body)
    # As bytes: of text, it compares only ASCII.
    return hmac.compare_digest(given.encode("utf-8", "replace"), made.encode())
