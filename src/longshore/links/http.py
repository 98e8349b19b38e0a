"""A client's link over HTTP: each message is a request to a gateway, which passes it on.

The body of the request is the message as ZeroMQ would carry it, and so is that of the answer. A
refusal comes as a problem document. A request that gets no answer at all is silence, as on a
socket: the conversation sends it again, or turns to another address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from longshore.errors import ConfigError, NotAuthenticated, ProtocolError, Unavailable
from longshore.ports import OnMessages
from longshore.wire.access_messages import ON_BEHALF, unwrapped
from longshore.wire.codec import encode, request_number
from longshore.wire.messages import Err
from longshore.wire.portions import MAX_MESSAGE_BYTES

log = logging.getLogger("longshore.client")

OCTETS: Final = "application/octet-stream"
_PROBLEM: Final = "application/problem+json"
_REQUESTS: Final = "/dispatcher/requests/"
_MOST_AT_ONCE: Final = 64
"""Connections to one gateway. Requests past them wait for one that comes free."""


class _Problem(Struct, frozen=True):
    """What a problem document says that matters here."""

    code: str
    detail: str


class HttpLink:
    """A link to one gateway, on the event loop that runs."""

    def __init__(self, address: str, on_messages: OnMessages, token: str | None = None) -> None:
        self._base = _base(address)
        self._on_messages = on_messages
        self._connector = aiohttp.TCPConnector(limit=_MOST_AT_ONCE)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._requests: set[asyncio.Task[None]] = set()

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Sends a request; what comes of it arrives as a message."""
        task = asyncio.get_running_loop().create_task(self._ask(frames))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return True

    def key_of(self, peer: bytes) -> str:
        """None: a gateway is known by its certificate."""
        return ""

    def close(self) -> None:
        """Drops what was not answered, and closes the connections."""
        for task in self._requests:
            task.cancel()
        self._session.detach()
        # Up to its first wait it has closed all connections. What it waits for is that the loop
        # has seen that; a task for it might be cancelled, with the loop, before it has begun.
        closing = self._connector.close(abort_ssl=True)
        with suppress(StopIteration):
            closing.send(None)
        closing.close()

    async def _ask(self, frames: Sequence[bytes]) -> None:
        if frames[1] == ON_BEHALF:
            # The token of this process, which the gateway gets as a header.
            _, frames = unwrapped(frames)
        rid = request_number(frames)
        assert rid is not None, "a client numbers its requests"
        try:
            answer = await self._post(rid, frames)
        except aiohttp.ClientConnectorCertificateError as error:
            self._on_messages([(b"", encode(self._untrusted(rid, error)))])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("no answer from %s: %s", self._base, error)
        else:
            self._on_messages([(b"", answer)])

    async def _post(self, rid: int, frames: Sequence[bytes]) -> list[bytes]:
        async with self._session.post(
            f"{self._base}{_REQUESTS}{frames[1].decode()}",
            data=frames[2],
            headers={"Content-Type": OCTETS},
            allow_redirects=False,
        ) as response:
            body = await _bounded(response)
            if response.status == 200 and response.content_type == OCTETS:
                return [b"", b"OK", body]
            return encode(self._refused(rid, response, body))

    def _untrusted(self, rid: int, error: aiohttp.ClientConnectorCertificateError) -> Err:
        """It will not get better by asking again, so it is no silence."""
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        words = f"{self._base} shows a certificate that is not trusted here ({why})"
        advice = "check the address, or name the file of its CA in SSL_CERT_FILE"
        return Err(rid, ProtocolError.code, f"{words}; {advice}")

    def _refused(self, rid: int, response: aiohttp.ClientResponse, body: bytes) -> Err:
        """What a gateway refused, or something else that answers in its place."""
        if response.content_type == _PROBLEM:
            try:
                problem = msgspec.json.decode(body, type=_Problem)
                return Err(rid, problem.code, self._told(problem))
            except msgspec.DecodeError:
                pass
        words = f"{self._base} answers {response.status} {response.reason}"
        if response.status >= 500:
            return Err(rid, Unavailable.code, f"{words}; is a gateway running behind it?")
        return Err(rid, ProtocolError.code, f"{words}, as no gateway does; check the address")

    def _told(self, problem: _Problem) -> str:
        """What a gateway says to people with curl, with what an app or a command does instead."""
        if problem.code != NotAuthenticated.code or "Authorization" in self._session.headers:
            return problem.detail
        words = f"{self._base} asks for a token: put one into LONGSHORE_TOKEN"
        return f"{words}. It says: {problem.detail}"


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer, unless it is larger than any message."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_MESSAGE_BYTES:
            raise aiohttp.ClientPayloadError("the answer is larger than a message may be")
    return bytes(body)


def _base(address: str) -> str:
    parts = urlsplit(address)
    if parts.username or parts.password:
        raise ConfigError(
            f"the address of the gateway at {parts.hostname} holds a password; put a token into "
            "LONGSHORE_TOKEN instead"
        )
    return address.rstrip("/")
