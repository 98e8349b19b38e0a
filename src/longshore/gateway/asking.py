"""Who asks over HTTP: the token of the present request, and how often its holder may ask.

The gateway judges nobody. It sends the hash of the token with all that it asks of dispatchers, and
they judge (`dispatcher.access`). It only asks them beforehand who it is, so that it reads no body
and opens no stream for a stranger. What the gateway asks for itself, it asks without a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from longshore.client.connection import Connection
from longshore.config import GatewaySettings
from longshore.core.access import Asker, Right, check_right, hash_of, is_token
from longshore.errors import NotAuthenticated
from longshore.files.documents import TICKET_SCHEME
from longshore.gateway.problems import TooManyRequests

MOST_BUCKETS: Final = 10_000
KEPT_S: Final = 0.5
_SCHEME: Final = "bearer "
COOKIE: Final = "longshore_token"
_SAME, _DIRECT = "same-origin", "none"

_asking: ContextVar[bytes | None] = ContextVar("_asking", default=None)


def asking() -> bytes | None:
    """The hash of the token that the present request came with."""
    return _asking.get()


@contextmanager
def asked_by(token: bytes | None) -> Iterator[None]:
    """Inside, dispatchers are asked for the holder of this token; without one, for ourselves."""
    before = _asking.set(token)
    try:
        yield
    finally:
        _asking.reset(before)


def bearer(headers: Headers) -> bytes | None:
    """The hash of the token in a request's headers; None if there is none."""
    given = headers.getlist("authorization")
    if not given:
        return None
    text = given[0]
    token = text[len(_SCHEME) :].strip() if text.lower().startswith(_SCHEME) else ""
    if len(given) > 1 or not is_token(token):
        # Not a word of what came: it may be somebody's password.
        raise NotAuthenticated("Authorization must be one header, `Bearer` and a token: ls_…")
    return hash_of(token)


def ticket_of(headers: Headers) -> str:
    """The ticket of an attempt in a request's headers; empty if there is none."""
    given = headers.get("authorization", "")
    scheme, _, text = given.partition(" ")
    return text.strip() if scheme.lower() == TICKET_SCHEME.lower() else ""


def cookie_token(method: str, headers: Headers) -> bytes | None:
    """The hash of the token in the cookie of the dashboard; None if it does not count.

    It counts for what a page of ours asks, and for what a person opens directly. That a browser
    says so itself (`Sec-Fetch-Site`), so a request without it is no browser's that knows our pages.
    """
    site = headers.getlist("sec-fetch-site")
    own = [_SAME, _DIRECT] if method in ("GET", "HEAD") else [_SAME]
    token = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
    return hash_of(token) if len(site) == 1 and site[0] in own and is_token(token) else None


def comes_from_elsewhere(headers: Headers) -> bool:
    """Whether a page of another site leads to this one."""
    return any(site not in (_SAME, _DIRECT) for site in headers.getlist("sec-fetch-site"))


def navigates(method: str, headers: Headers) -> bool:
    """Whether a browser opens an address as a page of its own, in no frame."""
    wanted = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    is_so = all(headers.getlist(name) == [value] for name, value in wanted.items())
    return is_so and method == "GET" and "origin" not in headers


class KnownAskers:
    """Whose the tokens are, as dispatchers said lately."""

    def __init__(self, connection: Connection, now: Callable[[], float]) -> None:
        self._connection = connection
        self._now = now
        self._known: dict[bytes, tuple[float, Asker]] = {}

    async def check(self, token: bytes, right: Right) -> None:
        """Raises unless the holder of a token has this right."""
        check_right(await self.asker(token), right)

    async def asker(self, token: bytes) -> Asker:
        """Who holds a token."""
        now = self._now()
        asked_at, asker = self._known.get(token, (float("-inf"), Asker()))
        if now - asked_at >= KEPT_S:
            with asked_by(token):
                found = await self._connection.asker()
            if len(self._known) >= MOST_BUCKETS:
                self._known.clear()
            asker = Asker(found.name, found.role, found.scope)
            self._known[token] = (now, asker)
        return asker


class Rates:
    """How many requests each token may make: some at once, and then so many a second."""

    def __init__(self, settings: GatewaySettings, now: Callable[[], float]) -> None:
        self._rate, self._burst = settings.http_rate, settings.http_burst
        self._now = now
        self._buckets: dict[bytes, tuple[float, float]] = {}

    def take(self, token: bytes) -> None:
        """Counts a request; raises `TooManyRequests` if it is one too many."""
        now = self._now()
        left, at = self._buckets.pop(token, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._rate)
        if len(self._buckets) >= MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[token] = (left - 1 if left >= 1 else left, now)
        if left < 1:
            wait_s = max(1, round((1 - left) / self._rate))
            raise TooManyRequests(
                f"this token makes more than {self._rate:,} requests a second (http_rate); try "
                f"again after {wait_s} s",
                {"Retry-After": str(wait_s)},
            )
