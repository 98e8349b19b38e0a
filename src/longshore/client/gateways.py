"""Which gateways a client can ask over HTTP: those it is connected to, or those of the fleet."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from longshore.client.adapters import is_http
from longshore.client.connection import Connection
from longshore.config import is_loopback
from longshore.model.worker import WorkerInfo


async def gateway_urls(connection: Connection) -> list[str]:
    """The addresses of gateways that this process may reach; dispatchers are asked if need be."""
    named = [address.rstrip("/") for address in connection.addresses if is_http(address)]
    if named:
        return named
    workers = await connection.workers()
    return sorted({one.info.machine.url for one in workers if one.alive and _is_in_reach(one.info)})


def _is_in_reach(info: WorkerInfo) -> bool:
    """Whether it is a gateway that says where it is; one on loopback counts on its machine only."""
    url = info.machine.url
    if not (info.gateway and is_http(url)):
        return False
    return not is_loopback(urlsplit(url).netloc) or info.host == socket.gethostname()
