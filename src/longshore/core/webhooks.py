"""Standard Webhooks 1.0: how what Longshore sends is signed, so that receivers know who sent it.

The signature is an HMAC of the id, the time and the body. The key of a fleet follows from its
store's secret; receivers have it as the text `whsec_…`.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import blake2b, sha256
from typing import Final

from longshore.errors import ConfigError

SECRET_PREFIX: Final = "whsec_"
ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
_PERSON: Final = b"longshore.webhk"


def callback_key(secret: bytes) -> bytes:
    """The key that signs the callbacks of a fleet, from the secret of its store."""
    return blake2b(b"callbacks", key=secret[:64], digest_size=32, person=_PERSON).digest()


def secret_text(key: bytes) -> str:
    """The key as receivers get it."""
    return SECRET_PREFIX + b64encode(key).decode()


def key_of_text(text: str) -> bytes:
    """The key in a secret that a user set: `whsec_` and base64, or any other text as it is."""
    if not text.startswith(SECRET_PREFIX):
        return text.encode()
    try:
        return b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:  # or it is not even ASCII
        raise ConfigError(f"a secret begins with {SECRET_PREFIX} and is not base64") from None


def signed_headers(key: bytes, id: str, unix_s: int, body: bytes) -> dict[str, str]:
    """The headers that a request with this body has, sent at this time."""
    content = f"{id}.{unix_s}.".encode() + body
    signature = b64encode(hmac.digest(key, content, sha256)).decode()
    return {ID: id, TIMESTAMP: str(unix_s), SIGNATURE: f"v1,{signature}"}
