"""Requests that Longshore makes over HTTP to addresses that its users name.

Each address is checked when its socket is made (`core.addresses`): the one that is connected to,
not one that a name led to before. Nothing else leads elsewhere: no redirect is followed, no proxy
and no password is taken from the environment, no cookie is kept. Answers are bounded in time and in
bytes, and are not unpacked.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Protocol, Self

import aiohttp
from aiohttp.abc import AbstractResolver
from msgspec import Struct, field
from multidict import CIMultiDict
from yarl import URL

from longshore._version import __version__
from longshore.core.addresses import Allowed

AGENT: Final = f"Longshore/{__version__}"
MAX_ANSWER_BYTES: Final = 64 * 1024
"""How much of an answer is read."""

_NOT_BY_ITSELF: Final[tuple[str, ...]] = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class NotAllowed(Exception):
    """The address may not be called. `of_name` says that it came from a name, which may change."""

    def __init__(self, words: str, *, of_name: bool) -> None:
        super().__init__(words)
        self.of_name = of_name


class Unanswered(Exception):
    """No answer came: nobody is there, the answer took too long, or it is not HTTP."""


class Unreached(Unanswered):
    """Nobody is there: the other side got nothing of the request."""


class Request(Struct, frozen=True, kw_only=True):
    """A request to make."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Answer(Struct, frozen=True):
    """An answer that came, and the beginning of its body. The names of headers are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the other side says that it did what it was asked."""
        return 200 <= self.status < 300


class Caller(Protocol):
    """Makes requests: `Outbound` does over sockets, a simulation over a network of its own."""

    @property
    def allowed(self) -> Allowed:
        """The addresses that it may call."""

    async def send(
        self, request: Request, *, within_s: float, most: int = MAX_ANSWER_BYTES
    ) -> Answer:
        """The answer to a request; raises `NotAllowed` or `Unanswered`."""


class _Dialling(Struct):
    """For which host a socket is made, and why addresses of it were refused."""

    host: str
    refusals: list[str]


_dialling: ContextVar[_Dialling] = ContextVar("longshore_dialling")


class Outbound:
    """Makes requests to addresses that are allowed; use it as a context, within an event loop."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        keep_alive: bool = False,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.allowed = allowed
        self._keep_alive = keep_alive
        self._resolver = resolver
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=0,
            use_dns_cache=False,
            force_close=not self._keep_alive,
            resolver=self._resolver,
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=_NOT_BY_ITSELF,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def send(
        self, request: Request, *, within_s: float, most: int = MAX_ANSWER_BYTES
    ) -> Answer:
        """The answer to a request; raises `NotAllowed` or `Unanswered`."""
        dialling = _Dialling("", [])
        before = _dialling.set(dialling)
        try:
            url = URL(request.url, encoded=True)
            dialling.host = url.host or ""
            async with asyncio.timeout(within_s):
                return await self._ask(url, request, most)
        except TimeoutError:
            raise Unanswered(f"no answer came within {within_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if dialling.refusals:
                words = "; ".join(dict.fromkeys(dialling.refusals))
                raise NotAllowed(words, of_name=not _is_literal(dialling.host)) from None
            unreached = isinstance(error, aiohttp.ClientConnectorError)
            raise (Unreached if unreached else Unanswered)(_words(error)) from None
        finally:
            _dialling.reset(before)

    async def _ask(self, url: URL, request: Request, most: int) -> Answer:
        headers = CIMultiDict({"User-Agent": AGENT, "Accept": "*/*"})
        headers.update(request.headers)
        asking = self._session.request(
            request.method,
            url,
            headers=headers,
            data=request.body or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(),
        )
        async with asking as response:
            body = await _beginning(response.content, most)
            found = {name.lower(): value for name, value in response.headers.items()}
            if not response.content.at_eof():
                response.close()
            return Answer(response.status, found, body)

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        """The socket for one address, if that is allowed. Each connection begins here."""
        family, kind, protocol, _, address = info
        dialling = _dialling.get()
        refusal = self.allowed.refusal(str(address[0]), dialling.host)
        if refusal is not None:
            dialling.refusals.append(refusal)
            raise OSError(refusal)
        return socket.socket(family, kind, protocol)


async def _beginning(content: aiohttp.StreamReader, most: int) -> bytes:
    """As much of an answer as may be read."""
    parts: list[bytes] = []
    while most > 0 and (part := await content.read(most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _is_literal(host: str) -> bool:
    """Whether a host is an address, in whatever form systems read as one (like 0x7f.1)."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        why = os.strerror(number) if number > 0 else str(error.os_error)
        return f"cannot connect: {why}"
    # The texts of the next two hold the first bytes that came. They may be anybody's secrets.
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        return "what came is no answer of HTTP"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer came"
    return str(error) or type(error).__name__
