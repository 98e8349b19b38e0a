"""The outermost layer: who may call at all, and what every answer carries.

Loopback is no trust boundary for browsers: any page a developer opens can send requests to
127.0.0.1. So the Host must be one of ours (a page that rebinds its name to 127.0.0.1 sends its own
name), the Origin must be our own, and the browser must not say that another site sent it. What a
page can send without asking first (forms, plain text) is refused by its content type in `bodies`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longshore.config import GatewaySettings
from longshore.core import webhooks
from longshore.core.tracing import is_traceparent
from longshore.errors import LongshoreError, Unavailable
from longshore.gateway.asking import navigates
from longshore.gateway.problems import Forbidden, Misdirected, problem_answer

REQUEST_ID: Final = "X-Request-ID"
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_REQUEST_ID: Final = re.compile(r"[\w.:@+/=-]{1,128}", re.ASCII)
_MAX_STATE_CHARS: Final = 512


log = logging.getLogger("longshore.gateway")


class Guard:
    """Lets requests through to an application, or answers them itself."""

    def __init__(
        self,
        app: ASGIApp,
        settings: GatewaySettings,
        own_host: str = "",
        is_page: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._app = app
        self._is_page = is_page
        named = (*settings.http_hosts, *([own_host] if own_host else []))
        self._hosts = _LOCAL_HOSTS | {host.lower() for host in named}
        self._most = settings.max_http_requests
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers = Headers(scope=scope)
        # As it was sent: a %2F belongs to a name, a / parts names.
        scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        sending = _Sending(send, headers)
        self._under_way += 1
        try:
            self._check(scope, headers)
            await self._app(scope, receive, sending)
        except LongshoreError as error:
            await _answer(error, scope, receive, sending)
        except Exception:
            log.exception("request %s of %s broke", sending.request_id, scope["path"])
            words = f"the gateway broke; its log says how, at request {sending.request_id}"
            await _answer(LongshoreError(words), scope, receive, sending)
        finally:
            self._under_way -= 1

    def _check(self, scope: Scope, headers: Headers) -> None:
        self._check_host(headers)
        # A link of another site may lead to a page: that reads and changes nothing, and comes
        # without the cookie.
        opens = navigates(scope["method"], headers) and self._is_page(scope["path"])
        _check_site(headers, opens_page=opens)
        if self._under_way > self._most:
            raise Unavailable(
                f"the gateway has too many requests under way (max_http_requests: {self._most:,}); "
                "try again"
            )

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        name = re.sub(r":\d*$", "", given[0]).lower() if len(given) == 1 else ""
        if name not in self._hosts:
            raise Misdirected(
                f"this gateway is not {name!r}; call it by 127.0.0.1 or localhost, or add the name "
                "to http_hosts"
            )


def _check_site(headers: Headers, *, opens_page: bool = False) -> None:
    """Raises if a browser sends the request for a page of another site, or a gateway a callback.

    A callback comes from this machine, but what it says and where it goes, somebody else chose.
    """
    if webhooks.ID in headers:
        raise Forbidden("this is a callback; no callback may call the API")
    host = headers["host"]
    for origin in headers.getlist("origin"):
        if origin not in (f"http://{host}", f"https://{host}"):
            raise Forbidden(f"the origin {origin!r} is not this gateway; its pages may not call it")
    for site in headers.getlist("sec-fetch-site"):
        if site not in _OWN_SITES and not opens_page:
            raise Forbidden(f"a page of another site sends this ({site}); it may not call the API")


class _Sending:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self.has_begun = False
        given = headers.get(REQUEST_ID, "")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid4())
        self._own = {
            REQUEST_ID: self.request_id,
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            **_trace(headers),
        }

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            headers.setdefault("Cache-Control", "no-store")
            for name, value in self._own.items():
                headers.setdefault(name, value)
        await self._send(message)


def _trace(headers: Headers) -> dict[str, str]:
    """The trace context of a request (W3C), if it is sound."""
    parent = headers.get("traceparent", "")
    if not is_traceparent(parent):
        return {}
    state = ",".join(headers.getlist("tracestate"))
    has_state = 0 < len(state) <= _MAX_STATE_CHARS and state.isascii() and state.isprintable()
    return {"traceparent": parent, **({"tracestate": state} if has_state else {})}


async def _answer(error: LongshoreError, scope: Scope, receive: Receive, send: _Sending) -> None:
    """Tells of an error, unless an answer has begun: then the connection breaks off."""
    if send.has_begun:
        raise error
    await problem_answer(error)(scope, receive, send)
