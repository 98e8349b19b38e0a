"""Listens for HTTP, and keeps a gateway running beside a dispatcher.

`longshore up` and `longshore dispatcher --http` bind the socket themselves and pass its descriptor
on: a port that is taken is known before anything runs, and a gateway that is replaced after a crash
goes on with the connections that wait.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing

from longshore.config import (
    Config,
    GatewaySettings,
    as_text,
    is_loopback,
    load,
    value_of,
)
from longshore.errors import AddressInUse, ConfigError
from longshore.run.supervisor import Supervisor

_BACKLOG = 512


def bind(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT."""
    if not is_loopback(address):
        raise ConfigError(
            f"http {address} can be reached from other machines, and HTTP asks nobody for a key "
            "yet; listen on 127.0.0.1"
        )
    host, _, port = address.rpartition(":")
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((name, int(port)))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressInUse(
            f"cannot listen for HTTP on {address}: {error.strerror}; stop what does, listen "
            "elsewhere with --http HOST:PORT, or do without: --no-http"
        ) from None
    listening.setblocking(False)
    return listening


def url_of(listening: socket.socket) -> str:
    """The address of a socket, as one types it."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def gateway_beside(
    config: Config, address: str | None, frontend: str, environ: Mapping[str, str]
) -> AsyncIterator[str | None]:
    """Where HTTP is answered for the dispatcher at `frontend`, by a process beside this one."""
    if address is None:
        yield None
        return
    with closing(bind(address)) as listening:
        supervisor = Supervisor(
            _command(config, frontend, listening.fileno()),
            {**os.environ, **environ},
            1,
            patience_s=config.gateway.http_drain_s,
            role="gateway",
            pass_fds=(listening.fileno(),),
        )
        try:
            await supervisor.start()
            yield url_of(listening)
        finally:
            await supervisor.stop()


def _command(config: Config, frontend: str, descriptor: int) -> list[str]:
    """The command for a gateway with these settings."""
    file = ["--config", config.file] if config.file else []
    inherited = load(file=config.file)
    keys = ("log_level", "request_timeout_s", *GatewaySettings.__struct_fields__)
    changed = [key for key in keys if value_of(config, key) != value_of(inherited, key)]
    overrides = [f"{key}={as_text(value_of(config, key))}" for key in changed]
    command = [sys.executable, "-m", "longshore", "gateway", "--connect", frontend]
    own = ["--http-fd", str(descriptor), "--parent", str(os.getpid())]
    return [*command, *own, *file, *(word for one in overrides for word in ("--set", one))]
