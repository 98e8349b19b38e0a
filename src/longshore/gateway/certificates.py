"""The certificate of a gateway: read from its files, and read again when they change.

Connections that are open keep what they have; those that come get the new certificate. A new one
that does not fit its key, or cannot be read, is logged, and the old one stays.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from longshore.errors import ConfigError

LOOK_AGAIN_S: Final = 2.0

log = logging.getLogger("longshore.gateway")


class Certificate:
    """A certificate and its key, and the context in which servers use them."""

    def __init__(self, cert: str, key: str) -> None:
        self._cert, self._key = cert, key or cert
        self._texts = self._read()
        self.context = _context(self._cert, self._key)

    async def follow(self, look_again_s: float = LOOK_AGAIN_S) -> None:
        """Looks for new files until it is cancelled."""
        while True:
            await asyncio.sleep(look_again_s)
            self.look()

    def look(self) -> None:
        """Takes a new certificate, if there is one that is sound."""
        texts = self._read()
        if texts == self._texts:
            return
        self._texts = texts
        try:
            # In a context of its own first: a pair that does not fit must not spoil the old one.
            _context(self._cert, self._key)
            self.context.load_cert_chain(self._cert, self._key)
        except (ConfigError, OSError) as error:
            log.error("the new certificate is not used, and the old one stays: %s", error)
        else:
            log.info("the certificate in %s is new, and used from now on", self._cert)

    def _read(self) -> tuple[bytes, bytes]:
        return _text(self._cert), _text(self._key)


def _text(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        return repr(error).encode()


def _context(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a password would ask for it on the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{cert} and {key} are no certificate with its key (http_tls_cert, http_tls_key): "
            f"{error.reason or error}"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the certificate {cert} or its key {key}: {error}") from None
    return context
