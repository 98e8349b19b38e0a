"""Which addresses Longshore connects to for its users: callbacks, web workers, hooks.

Whoever may submit a job chooses where its callback goes. So Longshore must not be led to what only
its own machine or network reaches: a database, an admin page, the metadata of a cloud. Public
addresses are free; all others must be allowed by the operator (`http_allow`).

The rules are about addresses, not about names: a name may lead elsewhere a moment later. Whoever
connects asks here with the address that it really connects to. What an IPv6 address carries inside
(an IPv4 address, mapped or translated) is looked at as that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from longshore.errors import ConfigError, InvalidInput

MAX_URL_CHARS: Final = 2_000
_SCHEMES: Final = {"http": 80, "https": 443}
_VISIBLE: Final = re.compile(r"[!-~]+")
_NUMERIC: Final = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE)
"""A host that systems may read as an address, though it is not written like one."""
_PATTERN: Final = re.compile(r"[a-z0-9*?_.-]+")
_BRACKETED: Final = re.compile(r"\[[^\[\]]+\](:[0-9]*)?")
_ENCODED: Final = "xn--"
"""How a label of a host begins that stands for one in other letters than ASCII (IDNA)."""
_LOOPBACK: Final = ("127.0.0.0/8", "::1/128")
_EMBEDDING: Final = tuple(ip_network(text) for text in ("64:ff9b::/96", "::/96"))
"""Networks whose addresses end in an IPv4 address that they lead to."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Allowed(Struct, frozen=True):
    """What may be connected to beside public addresses: networks, and hosts by their names.

    A host's name allows private and loopback addresses, whatever it leads to. Link-local, multicast
    and reserved ones need their network: no service that a name should lead to has such an address.
    """

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()

    def refusal(self, address: str, host: str = "") -> str | None:
        """Why an address may not be connected to, for a URL with this host; None if it may."""
        try:
            effective = _effective(ip_address(address.partition("%")[0]))
        except ValueError:
            return f"{address!r} is not an address"
        what = _kind(effective)
        if what is None or any(effective in network for network in self.networks):
            return None
        if what in _ALLOWED_BY_NAME and self._names(host):
            return None
        return (
            f"{effective} is {what}; only public addresses are called, unless http_allow has "
            f"others: an operator may add {effective}, its network, or the name of its host"
        )

    def _names(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return any(fnmatchcase(name, pattern) for pattern in self.hosts)


def allowed(entries: Iterable[str], *, loopback: bool) -> Allowed:
    """What these entries of `http_allow` allow: addresses, networks and patterns of host names."""
    networks: list[Network] = [ip_network(text) for text in (_LOOPBACK if loopback else ())]
    hosts: list[str] = []
    for entry in entries:
        try:
            networks.append(ip_network(entry.strip("[]")))
        except ValueError:
            hosts.append(_pattern(entry))
    return Allowed(tuple(networks), tuple(hosts))


def _pattern(entry: str) -> str:
    pattern = entry.lower().rstrip(".")
    is_network = "/" in entry or not re.search(r"[a-z*?]", pattern)
    if is_network or not _PATTERN.fullmatch(pattern):
        raise ConfigError(
            f"http_allow has {entry!r}, which is neither a network nor the name of a host; give "
            "10.0.0.0/8, 192.168.1.7, hooks.example.internal or *.example.internal"
        )
    return pattern


_ALLOWED_BY_NAME: Final = frozenset({"a private address", "a loopback address"})


def _kind(address: Address) -> str | None:
    """What an address is, if it is no public one."""
    match address:
        case _ if address.is_unspecified:
            return "the unspecified address"
        case _ if address.is_loopback:
            return "a loopback address"
        case _ if address.is_link_local:
            return "a link-local address"
        case _ if address.is_multicast:
            return "a multicast address"
        case _ if address.is_private or (
            isinstance(address, IPv6Address) and address.is_site_local
        ):
            return "a private address"
        case _ if address.is_reserved or not address.is_global:
            return "a reserved address"
    return None


def _effective(address: Address) -> Address:
    """The address that is really reached: the IPv4 address inside, if there is one."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    last = int(address) & 0xFFFF_FFFF
    if last > 1 and any(address in network for network in _EMBEDDING):
        return IPv4Address(last)
    return address


def checked_url(what: str, url: object) -> SplitResult:
    """The parts of a URL that may be called; raises `InvalidInput` naming what is wrong with it."""
    if not isinstance(url, str) or not _VISIBLE.fullmatch(url) or "\\" in url:
        raise InvalidInput(f"{what} is {url!r}; give a URL like https://example.com/hook, in ASCII")
    if len(url) > MAX_URL_CHARS:
        raise InvalidInput(f"{what} has {len(url):,} characters; {MAX_URL_CHARS:,} are allowed")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{what} {url!r} is no URL: {error}") from None
    if parts.scheme not in _SCHEMES or not parts.hostname or port == 0:
        raise InvalidInput(f"{what} is {url!r}; give a URL like https://example.com/hook")
    if _NUMERIC.fullmatch(parts.hostname) and not _is_address(parts.hostname):
        raise InvalidInput(
            f"{what} has the host {parts.hostname!r}; write an address like 192.0.2.1, or a name"
        )
    if "@" in parts.netloc:
        raise InvalidInput(f"{what} has a user or a password in it; put them into a header")
    if not _is_bracketed_well(parts) or not is_host(parts.hostname):
        raise InvalidInput(f"{what} is {url!r}, whose host is neither a name nor an address")
    if parts.fragment:
        raise InvalidInput(f"{what} {url!r} has a part behind #, which is never sent; leave it out")
    return parts


def is_host(host: str) -> bool:
    """Whether a host may be a name or an address: it is ASCII, and each label decodes as IDNA."""
    return host.isascii() and all(map(_is_label, host.lower().split(".")))


def _is_label(label: str) -> bool:
    if not label.startswith(_ENCODED):
        return True
    try:
        decoded = label.removeprefix(_ENCODED).encode().decode("punycode")
    except UnicodeError:
        return False
    return not decoded.isascii() and decoded.isprintable()


def _is_bracketed_well(parts: SplitResult) -> bool:
    """Whether brackets, if there are any, hold an address, and only a port is behind them."""
    if "[" not in parts.netloc and "]" not in parts.netloc:
        return True
    return bool(_BRACKETED.fullmatch(parts.netloc)) and _is_address(parts.hostname or "")


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def shown_url(url: str) -> str:
    """A URL as errors and logs show it: what is behind `?` may be a secret."""
    parts = urlsplit(url)
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"
