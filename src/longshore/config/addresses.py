"""Addresses of listeners, as settings have them."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach HOST:PORT."""
    host = address.removeprefix("tcp://").rpartition(":")[0]
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def reachable(bind: str) -> str:
    """The address at which a process of this machine reaches a listener."""
    host, _, port = bind.removeprefix("tcp://").rpartition(":")
    return f"tcp://{'127.0.0.1' if host in ('*', '0.0.0.0', '[::]') else host}:{port}"
