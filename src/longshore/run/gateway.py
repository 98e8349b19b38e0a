"""The process of a gateway: its socket, and its connections to dispatchers as client and worker.

Only this process imports a server for HTTP; the others start without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from msgspec import structs

from longshore.client.adapters import Dialler
from longshore.client.connection import Connection
from longshore.config import Config, http_address
from longshore.core.access import hash_of, is_token
from longshore.core.addresses import Allowed, allowed
from longshore.errors import ConfigError, InvalidInput
from longshore.files.blobs import Blobs
from longshore.files.local import default_cache
from longshore.files.places import place_of
from longshore.gateway.asking import asking
from longshore.gateway.backend import Backend
from longshore.gateway.callbacks import CallbackExecutor
from longshore.gateway.certificates import Certificate
from longshore.gateway.connection import GatewayConnection
from longshore.gateway.file_keeping import FileKeeping
from longshore.gateway.file_upkeep import keep_up
from longshore.gateway.ids import new_id
from longshore.gateway.operation import Gateway
from longshore.gateway.own_worker import OwnWorker
from longshore.gateway.server import serve
from longshore.gateway.web_workers import WebWorkers
from longshore.links.descriptors import raise_limit
from longshore.model.callback import CALLBACK_QUEUE
from longshore.model.worker import MachineInfo, Pool, Stats
from longshore.run import machine
from longshore.run.http import bind, is_for_this_machine, needs_token, own_host, url_of
from longshore.run.ready import Announce, Ready
from longshore.run.stopping import stop_signals
from longshore.run.web_workers import attending
from longshore.worker.agent import Identity, Worker

log = logging.getLogger("longshore.gateway")


async def run_gateway(config: Config, announce: Announce, descriptor: int | None = None) -> None:
    """Runs a gateway until it is told to stop."""
    raise_limit()
    tls = config.gateway.http_tls_cert, config.gateway.http_tls_key
    certificate = Certificate(*tls) if tls[0] else None
    with closing(_listening(config, descriptor)) as listening:
        config = _guarded(config, listening)
        connection = GatewayConnection(
            config.client_addresses(),
            timeout_s=config.request_timeout_s,
            dialler=Dialler.of(config),
            new_id=new_id,
            token=asking,
        )
        settings = config.gateway
        stop, url = asyncio.Event(), url_of(listening, settings)
        asked = ", ".join(config.client_addresses())
        ready = Ready(f"{url}, dispatchers {asked}", {"http": url})
        working = _working(config, connection, _allowed(config, listening), _told_url(url))
        keeping = _files(config, connection)
        async with connection, working as (stop_own, web), keeping as files:

            def stop_both() -> None:
                stop.set()
                stop_own()

            with stop_signals(stop_both):
                gateway = Gateway(
                    connection,
                    settings,
                    needs_token=needs_token(settings, listening),
                    own_host=own_host(listening),
                    board=_board(settings.http_board_token),
                    web=web,
                    files=files,
                )
                await serve(gateway, listening, stop, lambda: announce(ready), certificate)


@asynccontextmanager
async def _files(config: Config, connection: Connection) -> AsyncIterator[FileKeeping | None]:
    """The files that the gateway keeps; None if it is to keep none."""
    settings = config.filesets
    if not settings.files:
        yield None
        return
    staging = settings.files_staging or default_cache().with_name("uploads")
    place = await asyncio.to_thread(place_of, settings.files, Path(staging))
    keeping = FileKeeping(Blobs(place), settings)
    keeping.why_not = "the gateway has just started; try again"
    upkeep = asyncio.create_task(keep_up(keeping, connection))
    try:
        yield keeping
    finally:
        upkeep.cancel()
        await asyncio.gather(upkeep, return_exceptions=True)
        keeping.close()


def _guarded(config: Config, listening: socket.socket) -> Config:
    """The settings, with signatures of web workers if others than this machine can ask."""
    if is_for_this_machine(config.gateway, listening):
        return config
    return structs.replace(config, gateway=structs.replace(config.gateway, web_signatures=True))


def _allowed(config: Config, listening: socket.socket) -> Allowed:
    """What the gateway may call: this machine too, if nobody else can ask the gateway."""
    return allowed(config.http_allow, loopback=is_for_this_machine(config.gateway, listening))


@asynccontextmanager
async def _working(
    config: Config, connection: Connection, allowed: Allowed, url: str
) -> AsyncIterator[tuple[Callable[[], None], WebWorkers | None]]:
    """The gateway's own worker, and the web workers that it attends, while they work.

    Yields what stops the worker, and the web workers. There are none without addresses.
    """
    if not config.gateway_addresses():
        log.warning(
            "no callbacks are sent and no web workers attended from here: --backend does not say "
            "for which dispatchers"
        )
        yield (lambda: None), None
        return
    dialler = Dialler.of(config)
    backend = Backend(config.gateway_addresses(), dialler.connect)
    async with attending(config, connection.web, backend, allowed) as web:
        own = OwnWorker(lambda: _worker(config, backend, allowed, web, url))
        working = asyncio.create_task(own.run())
        try:
            yield own.stop, web
            own.stop()
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
    dialler.close()


def _board(file: str) -> bytes | None:
    """The hash of the token in a file; None if no file is named."""
    if not file:
        return None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"http_board_token: cannot read {file}: {error.strerror}") from None
    if not is_token(token):
        raise ConfigError(f"http_board_token: there is no token in {file}; one begins with ls_")
    return hash_of(token)


def _told_url(url: str) -> str:
    """The address of a gateway as clients of the fleet find it: any address is its host's name."""
    parts = urlsplit(url)
    if parts.hostname not in ("0.0.0.0", "::"):
        return url
    return f"{parts.scheme}://{socket.gethostname()}:{parts.port}"


def _worker(
    config: Config, backend: Backend, allowed: Allowed, web: WebWorkers, url: str
) -> Worker:
    clock = machine.SystemClock()
    return Worker(
        Identity(
            name=f"gateway-{machine.process_name()}",
            host=socket.gethostname(),
            pid=os.getpid(),
            process=machine.process_mark(),
            queues=(CALLBACK_QUEUE,),
            gateway=True,
            machine=MachineInfo(url=url),
        ),
        structs.replace(config.worker, drain_s=config.gateway.http_drain_s),
        backend.addresses,
        connect=web.connect,
        make_executors=lambda on_report, on_log: {
            Pool.COROUTINE: CallbackExecutor(
                config.gateway.callback_slots, allowed, on_report, on_log, clock.utc
            )
        },
        clock=clock,
        new_id=web.new_gateway_id,
        measure=lambda: Stats(psutil.cpu_percent(), psutil.virtual_memory().percent),
        on_joined=web.joined,
    )


def _listening(config: Config, descriptor: int | None) -> socket.socket:
    if descriptor is not None:
        return socket.socket(fileno=descriptor)
    address = http_address(config)
    if address is None:
        raise InvalidInput("a gateway without HTTP does nothing; give --http HOST:PORT")
    return bind(address, config.gateway)
