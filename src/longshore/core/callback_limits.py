"""What a callback may be: which address it calls, how, and with which headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from longshore.core.addresses import checked_url
from longshore.errors import InvalidInput
from longshore.model.watcher import DEFAULT_METHOD, CallbackWatcher

METHODS: Final = ("POST", "PUT", "GET", "DELETE")
MAX_HEADERS: Final = 20
MAX_HEADERS_CHARS: Final = 8_000
"""How many characters the names and values of all headers may have."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?|")
_OURS: Final = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_PREFIX: Final = "webhook-"
_HTTPS_PORT: Final = 443


def as_callback(given: object) -> CallbackWatcher:
    """The callback that a user gives: a URL, or a map with the parts of one.

    A map has `url`, or `hostname` with `port` and `path`; beside that `method` and `headers`.
    """
    match given:
        case CallbackWatcher():
            callback = given
        case str():
            callback = CallbackWatcher(given)
        case Mapping():
            callback = _of_parts(dict(given))
        case _:
            raise InvalidInput(
                f"callback is {given!r}; give a URL, or a map with url, method and headers"
            )
    check_callback(callback)
    return callback


_PARTS: Final = ("url", "hostname", "port", "path", "method", "headers")


def _of_parts(given: dict[object, object]) -> CallbackWatcher:
    for name in given:
        if name not in _PARTS:
            raise InvalidInput(f"callback has {name!r}; there are {', '.join(_PARTS)}")
    url, method = _url(given), given.get("method", DEFAULT_METHOD)
    headers = given.get("headers") or {}
    if not isinstance(method, str):
        raise InvalidInput(f"the method of the callback is {method!r}; give text like POST")
    if not isinstance(headers, Mapping) or not all(
        isinstance(text, str) for pair in headers.items() for text in pair
    ):
        raise InvalidInput("the headers of the callback must be a map of texts")
    return CallbackWatcher(url, method.upper(), dict(headers))


def _url(given: Mapping[object, object]) -> str:
    """The URL that a map names, whole or in parts."""
    in_parts = [name for name in ("hostname", "port", "path") if name in given]
    if "url" in given:
        if in_parts:
            raise InvalidInput(f"callback has url and {in_parts[0]}; give one of them")
        checked_url("the callback", given["url"])
        return str(given["url"])
    host, port, path = given.get("hostname"), given.get("port"), given.get("path", "/")
    if not isinstance(host, str) or not host:
        raise InvalidInput("callback has no url; give one, or hostname, port and path")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int)):
        raise InvalidInput(f"the port of the callback is {port!r}; give a number")
    if not isinstance(path, str):
        raise InvalidInput(f"the path of the callback is {path!r}; give text like /hook")
    name = f"[{host}]" if ":" in host else host
    scheme = "https" if port == _HTTPS_PORT else "http"
    where = "" if port is None else f":{port}"
    return f"{scheme}://{name}{where}/{path.removeprefix('/')}"


def check_callback(callback: CallbackWatcher) -> None:
    """Raises `InvalidInput` naming what is wrong with a callback."""
    checked_url("the callback", callback.url)
    if callback.method not in METHODS:
        some = ", ".join(METHODS)
        raise InvalidInput(f"the method of the callback is {callback.method!r}; give one of {some}")
    _check_headers(callback.headers)


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > MAX_HEADERS:
        raise InvalidInput(
            f"the callback has {len(headers)} headers; {MAX_HEADERS} are the most there may be"
        )
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_CHARS:
        raise InvalidInput(
            f"the headers of the callback have more than {MAX_HEADERS_CHARS:,} characters"
        )
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidInput(f"the callback has the header {name!r}, which is no name of one")
        if name.lower() in _OURS or name.lower().startswith(_PREFIX):
            raise InvalidInput(f"the callback has the header {name!r}; a gateway sets it itself")
        if not _HEADER_VALUE.fullmatch(value):
            raise InvalidInput(
                f"the header {name!r} of the callback has a value that no header may have; give "
                "printable ASCII without spaces around it"
            )
