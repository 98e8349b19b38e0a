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
from pathlib import Path

from msgspec import Struct, structs

from longshore.config import (
    DEFAULT_STORE,
    Config,
    FileSettings,
    GatewaySettings,
    as_text,
    is_loopback,
    load,
    value_of,
)
from longshore.errors import AddressInUse, ConfigError
from longshore.run.logs import sayer
from longshore.run.supervisor import Supervisor

_BACKLOG = 512
SQLITE = "sqlite:///"
DIALOGUE_SETTINGS = (
    "broker_timeout_s",
    "silent_periods",
    "abort_before_s",
    "kill_before_s",
    "resend_s",
    "stats_s",
    "lease_s",
)
"""The settings of workers that a gateway needs: it is one, towards dispatchers."""


def refuse_exposure(settings: GatewaySettings, address: str) -> None:
    """Raises if other machines could reach a gateway that speaks without encryption."""
    if settings.http_tls_key and not settings.http_tls_cert:
        raise ConfigError("http_tls_key is set and http_tls_cert is not; give --tls-cert FILE too")
    if is_loopback(address) or settings.http_insecure or settings.http_tls_cert:
        return
    raise ConfigError(
        f"http {address} can be reached from other machines: give a certificate with --tls-cert "
        "FILE and --tls-key FILE, and everybody needs a token (`longshore token create`); or "
        "listen on 127.0.0.1. With --insecure anybody who reaches it may do anything, in plain text"
    )


def needs_token(settings: GatewaySettings, listening: socket.socket) -> bool:
    """Whether a gateway refuses requests without a token."""
    host, port = listening.getsockname()[:2]
    is_own = is_loopback(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return settings.http_auth == "required" or not (is_own or settings.http_insecure)


def is_for_this_machine(settings: GatewaySettings, listening: socket.socket) -> bool:
    """Whether only users of this machine can ask a gateway.

    One that asks everybody for a token is behind a proxy, wherever it listens.
    """
    host, port = listening.getsockname()[:2]
    is_own = is_loopback(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return is_own and settings.http_auth != "required"


def own_host(listening: socket.socket) -> str:
    """The address that a socket listens on, as a client names it; empty if it is any address."""
    host: str = listening.getsockname()[0]
    return "" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host


def bind(address: str, settings: GatewaySettings) -> socket.socket:
    """A socket that listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    name = host.strip("[]")
    _check_resolves(name, address)
    refuse_exposure(settings, address)
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


def _check_resolves(name: str, address: str) -> None:
    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigError(
            f"http {address}: no address is known for {name!r}; give one of this machine, like "
            "127.0.0.1:7700"
        ) from None


def url_of(listening: socket.socket, settings: GatewaySettings) -> str:
    """The address of a socket, as one types it."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.http_tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def with_files(config: Config, url: str | None = None) -> Config:
    """The settings, with the usual place for files, and the gateway that workers ask for them."""
    given = config.filesets
    files = given.files or str(_usual_place(config.store).absolute())
    urls = given.files_url or ((url,) if url else ())
    return structs.replace(config, filesets=structs.replace(given, files=files, files_url=urls))


def _usual_place(store: str) -> Path:
    """The folder `files` beside a SQLite file, or where that would usually be."""
    path = store if store.startswith(SQLITE) else DEFAULT_STORE
    return Path(path.removeprefix(SQLITE)).parent / "files"


class DispatcherAddresses(Struct, frozen=True):
    """Where a dispatcher listens for clients, and where for workers."""

    frontend: str
    backend: str


@asynccontextmanager
async def gateway_beside(
    config: Config,
    address: str | None,
    dispatcher: DispatcherAddresses,
    environ: Mapping[str, str],
) -> AsyncIterator[str | None]:
    """Where HTTP is answered for this dispatcher, by a process beside this one."""
    if address is None:
        yield None
        return
    with closing(bind(address, config.gateway)) as listening:
        supervisor = Supervisor(
            _command(with_files(config), dispatcher, listening.fileno()),
            {**os.environ, **environ},
            1,
            patience_s=config.gateway.http_drain_s,
            role="gateway",
            say=sayer(config.log_format),
            pass_fds=(listening.fileno(),),
        )
        try:
            await supervisor.start()
            yield url_of(listening, config.gateway)
        finally:
            await supervisor.stop()


def _command(config: Config, dispatcher: DispatcherAddresses, descriptor: int) -> list[str]:
    """The command for a gateway with these settings."""
    file = ["--config", config.file] if config.file else []
    inherited = load(file=config.file)
    keys = (
        "log_level",
        "log_format",
        "request_timeout_s",
        "http_allow",
        *GatewaySettings.__struct_fields__,
        *FileSettings.__struct_fields__,
        *DIALOGUE_SETTINGS,
    )
    changed = [key for key in keys if value_of(config, key) != value_of(inherited, key)]
    overrides = [f"{key}={as_text(value_of(config, key))}" for key in changed]
    command = [sys.executable, "-m", "longshore", "gateway"]
    asked = ["--connect", dispatcher.frontend, "--backend", dispatcher.backend]
    own = ["--http-fd", str(descriptor), "--parent", str(os.getpid())]
    return [*command, *asked, *own, *file, *(word for one in overrides for word in ("--set", one))]
