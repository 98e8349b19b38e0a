"""The process of a gateway: its socket and its connection to dispatchers.

Only this process imports a server for HTTP; the others start without it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

from longshore.client.adapters import Dialler
from longshore.client.connection import Connection
from longshore.config import Config, http_address
from longshore.errors import InvalidInput
from longshore.gateway.ids import new_id
from longshore.gateway.operation import Gateway
from longshore.gateway.server import serve
from longshore.links.descriptors import raise_limit
from longshore.run.http import bind, url_of
from longshore.run.ready import Announce, Ready
from longshore.run.stopping import stop_signals


async def run_gateway(config: Config, announce: Announce, descriptor: int | None = None) -> None:
    """Runs a gateway until it is told to stop."""
    raise_limit()
    with closing(_listening(config, descriptor)) as listening:
        connection = Connection(
            config.client_addresses(),
            timeout_s=config.request_timeout_s,
            dialler=Dialler.of(config),
            new_id=new_id,
        )
        stop, url = asyncio.Event(), url_of(listening)
        asked = ", ".join(config.client_addresses())
        ready = Ready(f"{url}, dispatchers {asked}", {"http": url})
        async with connection:
            with stop_signals(stop.set):
                gateway = Gateway(connection, config.gateway)
                await serve(gateway, listening, stop, lambda: announce(ready))


def _listening(config: Config, descriptor: int | None) -> socket.socket:
    if descriptor is not None:
        return socket.socket(fileno=descriptor)
    address = http_address(config)
    if address is None:
        raise InvalidInput("a gateway without HTTP does nothing; give --http HOST:PORT")
    return bind(address)
