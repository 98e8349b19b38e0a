"""Where a PostgreSQL is: its URL, which may name several hosts, and the way to the one that writes.

Of several hosts one is the primary, and after a failover another one. So a new connection asks all
of them at once, and takes the first that accepts writes. One after the other would not do: a server
that is frozen, or cut off, takes connections into its backlog and never answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from msgspec import Struct

from longshore.core.urls import redacted
from longshore.errors import ConfigError

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

EXAMPLE: Final = "postgresql://user:password@host:5432/database"
HOST_S: Final = 3.0
"""One of several hosts that has not answered by then is left out. Soon all are asked again."""

_SWITCH: Final = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_ROLE: Final = "target_session_attrs"


class Address(Struct, frozen=True):
    """Where a database is; `name` says it without the password, `urls` has one for each host."""

    url: str
    name: str
    prepared: bool
    urls: tuple[str, ...]


def parse_address(url: str, *, prepared: bool = True) -> Address:
    """An address from a URL; `?prepared=off` in it switches prepared statements off."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _not_a_url(url) from None
    if not url.startswith(("postgresql://", "postgres://")):
        raise _not_a_url(url)
    if "@" in url.partition("://")[2].removeprefix(parts.netloc):
        raise ConfigError(
            f"'{redacted(url)}' has an @ after its host: in a user, a password or a value write "
            "%40 for @, %2F for /, %3F for ?, %23 for # and %5B for ["
        )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    word = query.pop("prepared", "on").lower()
    if word not in _SWITCH:
        raise ConfigError(f"prepared={word} in the URL of the store is neither on nor off")
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    plain = urlunsplit(parts._replace(query=urlencode(query)))
    urls = tuple(_urls(parts, query, url))
    return Address(plain, urlunsplit(place), prepared and _SWITCH[word], urls)


def _urls(parts: SplitResult, query: dict[str, str], given: str) -> Iterator[str]:
    """A URL for each host, as libpq reads them: in the authority, or as `host` and `port`."""
    account, at, netloc = parts.netloc.rpartition("@")
    hosts = netloc.split(",") if netloc else query.get("host", "").split(",")
    if len(hosts) == 1:
        yield urlunsplit(parts._replace(query=urlencode(query)))
        return
    if not all(hosts):
        raise ConfigError(f"'{redacted(given)}' has a comma before or after nothing: name a host")
    query = {_ROLE: "read-write", **query}
    if netloc:
        for host in hosts:
            yield urlunsplit(parts._replace(netloc=f"{account}{at}{host}", query=urlencode(query)))
        return
    for host, port in zip(hosts, _ports(query, len(hosts), given), strict=True):
        one = {**query, "host": host, **({"port": port} if port else {})}
        yield urlunsplit(parts._replace(query=urlencode(one)))


def _ports(query: dict[str, str], hosts: int, given: str) -> Sequence[str]:
    ports = query.get("port", "").split(",")
    if len(ports) == 1:
        return list(repeat(ports[0], hosts))
    if len(ports) == hosts:
        return ports
    raise ConfigError(
        f"'{redacted(given)}' has {hosts} hosts and {len(ports)} ports: give one port for all, "
        "or one for each"
    )


def _not_a_url(url: str) -> ConfigError:
    return ConfigError(f"'{redacted(url)}' is not the URL of a PostgreSQL database; give {EXAMPLE}")


async def connect(address: Address, *, timeout_s: float, **options: Any) -> Connection:
    """A connection to the database, on the host that accepts writes if there are several."""
    if len(address.urls) == 1:
        return await asyncpg.connect(address.url, timeout=timeout_s, **options)
    limit_s = min(timeout_s, HOST_S)
    asked = [
        asyncio.create_task(asyncpg.connect(url, timeout=limit_s, **options))
        for url in address.urls
    ]
    chosen: asyncio.Task[Connection] | None = None
    try:
        chosen = await _first_to_succeed(asked)
    finally:
        for task in asked:
            if task is not chosen:
                task.cancel()
                task.add_done_callback(_let_go)
    if chosen is None:
        raise _failure(address, asked)
    return chosen.result()


async def _first_to_succeed(
    asked: Sequence[asyncio.Task[Connection]],
) -> asyncio.Task[Connection] | None:
    waiting = set(asked)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled() and task.exception() is None:
                return task
    return None


def _let_go(task: asyncio.Task[Connection]) -> None:
    """Drops a connection that came although another was first."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


def _failure(address: Address, asked: Sequence[asyncio.Task[Connection]]) -> BaseException:
    """Why no host will do: what all say, or that each says something else."""
    errors = [task.exception() or asyncio.CancelledError() for task in asked]
    if len({type(error) for error in errors}) == 1:
        return errors[0]
    hosts = (urlsplit(url) for url in address.urls)
    names = [host.netloc.rpartition("@")[2] or host.query for host in hosts]
    said = (f"{n}: {str(e) or type(e).__name__}" for n, e in zip(names, errors, strict=True))
    return ConnectionError(f"no host accepts writes ({'; '.join(said)})")
