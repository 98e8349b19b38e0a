"""The composition root: the one place that knows which store, sockets and executors are used."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random, SystemRandom

import psutil
import zmq
from msgspec import Struct, structs

from longshore.client.ids import fresh_id
from longshore.config import (
    DEFAULT_STORE,
    FRONTEND_PORT,
    LOST_VARIABLES,
    PREFIX,
    Config,
    FileSettings,
    WorkerSettings,
    as_text,
    http_address,
    is_loopback,
    load,
    reachable,
    value_of,
)
from longshore.core.addresses import allowed
from longshore.core.resources import as_given, is_device, parse
from longshore.core.urls import redacted
from longshore.core.webhooks import callback_key, secret_text
from longshore.dispatcher.engine import Dispatcher
from longshore.dispatcher.meter import meter_of
from longshore.errors import AppError, ConfigError, LongshoreError
from longshore.executors.scratch import room
from longshore.links.credentials import calling_with, dispatcher_keys, key_advice, own_keys
from longshore.links.descriptors import raise_limit
from longshore.links.hook import LostHook
from longshore.links.zeromq import Dealer, Router
from longshore.model.finding import Finding
from longshore.model.worker import MachineInfo, Stats
from longshore.ports import Link, OnMessages, Store
from longshore.run import doctor, machine
from longshore.run.http import SQLITE, DispatcherAddresses, gateway_beside, with_files
from longshore.run.logs import sayer
from longshore.run.own_token import write_own_token
from longshore.run.pools import make_executors, pools_of
from longshore.run.ready import Announce, Ready, at_once
from longshore.run.reload import Reloader
from longshore.run.rings import Rings, Sockets, gate
from longshore.run.stopping import first_of, stop_signals
from longshore.run.supervisor import Supervisor
from longshore.run.worker_state import worker_state
from longshore.worker.agent import Connect, Identity, Worker

log = logging.getLogger("longshore")

# Python tells a changed file from its cached bytecode by size and whole seconds only.
_UNCACHED = {"PYTHONDONTWRITEBYTECODE": "1"}
_DOMAINS = ("workers", "clients")
_POSTGRES = ("postgresql://", "postgres://")
_URLS = (
    "a store is sqlite:///relative/file.db, sqlite:////absolute/file.db "
    "or postgresql://user@host:5432/database"
)


# stores


def make_store(
    url: str, listen_url: str | None = None, prepared: bool = True, margin_s: float = 10.0
) -> Store:
    """The store that a URL names; it is not open yet. `margin_s` is `timeout_margin_s`."""
    if url.startswith(_POSTGRES):
        return _postgres(url, listen_url, prepared, margin_s)
    path = url.removeprefix(SQLITE)
    if path in (url, "", ":memory:"):
        raise ConfigError(f"'{redacted(url)}' is not the URL of a store; {_URLS}")
    from longshore.store.sqlite.store import SqliteStore

    return SqliteStore(Path(path), expiry_margin_s=margin_s)


def _postgres(url: str, listen_url: str | None, prepared: bool, margin_s: float) -> Store:
    try:
        from longshore.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            f"{redacted(url)} needs asyncpg, which is not installed; "
            "run: pip install 'longshore[postgres]'"
        ) from None
    return PostgresStore(url, listen_url=listen_url, prepared=prepared, expiry_margin_s=margin_s)


async def migrate(config: Config) -> tuple[int, int]:
    """Brings the store's schema forward; returns the version before and after."""
    return await _store(config).migrate()


async def examine(config: Config, *, repair: bool) -> list[Finding]:
    """What is wrong in a store, and healed with `repair`."""
    store = _store(config)
    await store.open()
    try:
        limit = config.dispatcher.crash_limit
        return await doctor.examine(store, repair=repair, crash_limit=limit)
    finally:
        await store.close()


async def webhook_secret(config: Config) -> str:
    """The secret with which receivers check the callbacks of a store's fleet."""
    store = _store(config)
    await store.open()
    try:
        return secret_text(callback_key(await store.callback_secret()))
    finally:
        await store.close()


def _store(config: Config) -> Store:
    _refuse_missing_folder(config.store)
    margin_s = config.dispatcher.timeout_margin_s
    return make_store(config.store, config.listen_url, config.prepared_statements, margin_s)


async def _make_new_file(config: Config) -> None:
    """Makes a SQLite file that does not exist yet. One that exists is left to `migrate`."""
    if _is_new_file(config.store):
        await migrate(config)
        log.info("made a new store, %s", config.store)


def _is_new_file(url: str) -> bool:
    return url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists()


def _refuse_missing_folder(url: str) -> None:
    """Raises if the file's folder does not exist: a mistyped path must not become a new store."""
    folder = Path(url.removeprefix(SQLITE)).parent
    if url.startswith(SQLITE) and url != DEFAULT_STORE and not folder.is_dir():
        raise ConfigError(
            f"'{url}': there is no folder {folder}; make it, or correct the path "
            "(three slashes begin a relative path, four an absolute one)"
        )


# the dispatcher


class Dispatching(Struct, frozen=True):
    """A dispatcher that serves, and where."""

    dispatcher: Dispatcher
    backend: str
    frontend: str
    store: str
    metrics: str | None = None

    @property
    def words(self) -> str:
        """Where it is, in one line."""
        metrics = f", metrics {self.metrics}" if self.metrics else ""
        return f"workers {self.backend}, clients {self.frontend}, store {self.store}{metrics}"

    @property
    def addresses(self) -> DispatcherAddresses:
        """Where processes of this machine reach it."""
        return DispatcherAddresses(reachable(self.frontend), reachable(self.backend))

    @property
    def facts(self) -> dict[str, str]:
        """Where it is, as JSON shows it."""
        facts = {"backend": self.backend, "frontend": self.frontend, "store": self.store}
        return {**facts, "metrics": self.metrics} if self.metrics else facts

    async def breaks(self) -> None:
        """Raises when the store is lost, or a part of the dispatcher fails unexpectedly."""
        await self.dispatcher.broken.wait()
        if self.dispatcher.lost is not None:
            raise self.dispatcher.lost
        raise LongshoreError(
            "a part of the dispatcher broke, the log above says how; start it again"
        )


async def run_dispatcher(config: Config, announce: Announce) -> None:
    """Runs a dispatcher until it is told to stop."""
    stop = asyncio.Event()
    with stop_signals(stop.set):
        async with _dispatching(config) as dispatching:
            address = http_address(config, None)
            own = {**_credentials(config)}
            beside = gateway_beside(config, address, dispatching.addresses, own)
            async with beside as url:
                announce(Ready(*_with_http(dispatching, url)))
                await first_of(stop.wait(), dispatching.breaks())


def _with_http(dispatching: Dispatching, url: str | None) -> tuple[str, dict[str, str | None]]:
    """Where a dispatcher and its gateway are, in words and as facts."""
    words = f", HTTP {url}" if url else ""
    return f"{dispatching.words}{words}", {**dispatching.facts, "http": url}


@asynccontextmanager
async def _dispatching(config: Config) -> AsyncIterator[Dispatching]:
    _refuse_exposure(config)
    await _make_new_file(config)
    raise_limit()
    async with AsyncExitStack() as stack:
        hook = _lost_hook(config)
        if hook is not None:
            stack.push_async_callback(hook.close)
        listening = stack.enter_context(_bound_metrics(config))
        store = _store(config)
        await store.open()
        stack.push_async_callback(store.close)
        sockets = stack.enter_context(_sockets())
        keys = dispatcher_keys(config)
        rings = None if keys is None else Rings.of(config, keys)
        dispatcher = Dispatcher(
            store,
            config.dispatcher,
            id=fresh_id(),
            name=machine.process_name(),
            clock=machine.SystemClock(),
            random=Random(SystemRandom().getrandbits(64)),
            on_lost=hook or (lambda lost: None),
            has_ended=machine.has_ended,
            meter=meter_of(config),
            keys=None if rings is None else rings.clients,
            gateway_keys=() if rings is None else rings.gateways,
        )
        serving = _serving(dispatcher, store, config, sockets, rings)
        backend, frontend = await stack.enter_async_context(serving)
        shown = await stack.enter_async_context(_shown(listening, dispatcher))
        yield Dispatching(dispatcher, backend, frontend, redacted(config.store), shown)


@contextmanager
def _bound_metrics(config: Config) -> Iterator[socket.socket | None]:
    """The socket for metrics, if there are to be any. A taken port is known before all else."""
    if not config.metrics:
        yield None
        return
    from longshore.run.metrics import bind

    with closing(bind(config.metrics)) as listening:
        yield listening


@asynccontextmanager
async def _shown(
    listening: socket.socket | None, dispatcher: Dispatcher
) -> AsyncIterator[str | None]:
    """Where a dispatcher shows its metrics, while it does."""
    if listening is None or dispatcher.figures is None:
        yield None
        return
    from longshore.run.metrics import metrics_shown

    async with metrics_shown(listening, dispatcher.figures) as url:
        yield url


def _lost_hook(config: Config) -> LostHook | None:
    """What the dispatcher calls when a worker is lost, if the settings name it."""
    settings = config.dispatcher
    if not settings.on_worker_lost:
        return None
    return LostHook(
        settings.on_worker_lost,
        settings.on_worker_lost_secret,
        machine.SystemClock().utc,
        variables=LOST_VARIABLES,
        allowed=allowed(
            config.http_allow,
            loopback=is_loopback(config.backend) and is_loopback(config.frontend),
        ),
    )


@asynccontextmanager
async def _serving(
    dispatcher: Dispatcher, store: Store, config: Config, sockets: Sockets, rings: Rings | None
) -> AsyncIterator[tuple[str, str]]:
    """The addresses a dispatcher listens on, while it does."""
    addresses: list[str] = []
    domains = iter(_DOMAINS)

    def listen(address: str, on_messages: OnMessages) -> Link:
        secure = guarded(next(domains))
        router = Router(
            sockets,
            address,
            on_messages,
            config.zeromq_heartbeat_s,
            secure,
            config.dispatcher.max_unsent_bytes,
        )
        addresses.append(router.address)
        return router

    with gate(rings, sockets) as guarded:
        try:
            await dispatcher.start(listen, f"tcp://{config.backend}", f"tcp://{config.frontend}")
        except BaseException:
            await store.retire(dispatcher.id)
            raise
        try:
            backend, frontend = addresses
            yield backend, frontend
        finally:
            await dispatcher.stop()


@contextmanager
def _sockets() -> Iterator[Sockets]:
    context: Sockets = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)


def _refuse_exposure(config: Config) -> None:
    """Raises if other machines could reach a dispatcher that asks for no key."""
    for key, address in (("backend", config.backend), ("frontend", config.frontend)):
        if config.curve_secret is None and not is_loopback(address):
            raise ConfigError(
                f"{key} {address} can be reached from other machines, and nothing there is "
                "encrypted or asked for a key; listen on 127.0.0.1, or make keys with "
                "`longshore keys new` and set curve_secret, curve_workers and curve_clients"
            )


# the worker


async def run_worker(config: Config, announce: Announce) -> None:
    """Runs a worker until it is told to stop, or a dispatcher tells it to leave."""
    joined: list[Ready] = []
    raise_limit()

    def on_joined() -> None:
        if not joined:
            joined.append(_at_work(config))
            announce(joined[0])

    with (
        worker_state(config.worker.state_folder) as state,
        _sockets() as sockets,
        room(config.worker.scratch) as scratch,
    ):
        worker = Worker(
            Identity(
                name=machine.process_name(),
                host=socket.gethostname(),
                pid=os.getpid(),
                process=machine.process_mark(),
                target=config.target or machine.machine_target(),
                resources=machine.machine_resources(config.resources),
                first_devices=parse(config.worker.first_devices),
                queues=config.queues,
                machine=_machine_info(config),
            ),
            config.worker,
            config.worker_addresses(),
            connect=_dialling(config, sockets, lambda: bool(joined)),
            make_executors=partial(make_executors, config, scratch),
            clock=machine.SystemClock(),
            new_id=fresh_id,
            measure=lambda: Stats(psutil.cpu_percent(), psutil.virtual_memory().percent),
            on_joined=on_joined,
            state=state,
        )
        with stop_signals(worker.drain, worker.hurry):
            await worker.run()


def _dialling(config: Config, sockets: Sockets, has_joined: Callable[[], bool]) -> Connect:
    """How a worker connects. After the first try without an answer it logs what may be wrong."""
    secure = calling_with(config)
    addresses = config.worker_addresses()
    advice = port_advice(config) + key_advice(secure, addresses, "worker")
    tries = count(1)

    def connect(address: str, on_messages: OnMessages) -> Link:
        if next(tries) == 2 and not has_joined():
            asked = ", ".join(addresses)
            log.warning("no dispatcher answers workers at %s: is one running?%s", asked, advice)
        return Dealer(sockets, address, on_messages, secure)

    return connect


def port_advice(config: Config) -> str:
    """Which port a worker should connect to, if no dispatcher answers."""
    clients = {str(FRONTEND_PORT), config.frontend.rpartition(":")[2]}
    ports = {address.rpartition(":")[2] for address in config.worker_addresses()}
    if not ports & clients:
        return " Workers connect to the port that its --backend names."
    return (
        f" Port {min(ports & clients)} is where clients connect; workers connect to the port that "
        f"its --backend names, like {config.backend.rpartition(':')[2]}."
    )


def _machine_info(config: Config) -> MachineInfo:
    settings = config.worker
    private_ip = settings.private_ip or machine.own_address(config.worker_addresses()[0])
    return MachineInfo(settings.instance_id or socket.gethostname(), private_ip, settings.public_ip)


def _at_work(config: Config) -> Ready:
    addresses = ", ".join(config.worker_addresses())
    facts = {"app": config.app, "connect": list(config.worker_addresses())}
    runs = at_once(pools_of(config))
    what = f"app {config.app}" if config.app else "no app"
    anything = ", and any command" if config.worker.exec else ""
    return Ready(f"{what}{anything}, dispatchers {addresses}, {runs}", facts)


# all in one


async def run_up(config: Config, announce: Announce, *, reload: bool = False) -> None:
    """Runs a dispatcher and its workers until it is told to stop; then the workers drain first."""
    stop = asyncio.Event()
    with stop_signals(stop.set):
        await migrate(config)
        async with _dispatching(config) as dispatching:
            environ = {
                f"{PREFIX}CONNECT": ",".join(config.connect) or reachable(dispatching.frontend),
                **_credentials(config),
            }
            address, addresses = http_address(config), dispatching.addresses
            if address is not None and config.worker.exec:
                await _make_own_token(config)
            async with gateway_beside(config, address, addresses, environ) as url:
                await _run_workers(config, dispatching, url, announce, environ, stop, reload)


async def _make_own_token(config: Config) -> None:
    store = _store(config)
    await store.open()
    try:
        await write_own_token(store, config.dispatcher.max_tokens)
    finally:
        await store.close()


async def _run_workers(
    config: Config,
    dispatching: Dispatching,
    url: str | None,
    announce: Announce,
    environ: Mapping[str, str],
    stop: asyncio.Event,
    reload: bool,
) -> None:
    """Keeps the workers of `longshore up` running until it is told to stop."""
    count = _worker_count(config)
    backend = reachable(dispatching.backend)
    supervisor = _supervisor(with_files(config, url), backend, environ, count, reload)
    working = _working(
        supervisor,
        lambda: announce(_all_up(config, dispatching, url)),
        reload,
        lambda error: dispatching.dispatcher.note_crew(supervisor_trouble(config, error)),
    )
    try:
        await first_of(stop.wait(), dispatching.breaks(), working)
    finally:
        await supervisor.stop()


async def run_reloading(config: Config, announce: Announce) -> None:
    """Runs a worker in its own process, and a new one after each change, until told to stop."""
    keys = {"CURVE_SECRET": config.curve_secret, "CURVE_SERVER_KEY": config.curve_server_key}
    environ = {f"{PREFIX}{key}": value for key, value in keys.items() if value}
    supervisor = _supervisor(config, ",".join(config.worker_addresses()), environ, 1, reload=True)
    stop = asyncio.Event()
    with stop_signals(stop.set):
        try:
            working = _working(supervisor, lambda: announce(_at_work(config)), reload=True)
            await first_of(stop.wait(), working)
        finally:
            await supervisor.stop()


async def _working(
    supervisor: Supervisor,
    on_ready: Callable[[], None],
    reload: bool,
    on_start: Callable[[LongshoreError | None], None] = lambda error: None,
) -> None:
    if reload:
        await Reloader(supervisor, Path.cwd(), on_ready, on_start=on_start).run()
    await supervisor.start()
    on_ready()
    await asyncio.Event().wait()


def supervisor_trouble(config: Config, error: LongshoreError | None) -> str:
    """What `why` says of workers that did not start: its reader may not see their output."""
    if error is None:
        return ""
    is_app = isinstance(error, AppError)
    what = f"app '{config.app}' does not load" if is_app else "workers do not start"
    return f"{what}; the output of `longshore up` says why, and it tries again when a file changes"


def _supervisor(
    config: Config, backend: str, environ: Mapping[str, str], count: int, reload: bool
) -> Supervisor:
    """Keeps `count` workers running for the dispatcher at `backend`."""
    if count > 1:
        share = machine.machine_resources(config.resources, count)
        config = structs.replace(config, resources=as_given(share))
    state = "" if reload else config.worker.state_folder
    worker = structs.replace(config.worker, state_folder="")
    return Supervisor(
        worker_command(structs.replace(config, worker=worker), backend),
        {**os.environ, **(_UNCACHED if reload else {}), **environ},
        count,
        patience_s=config.worker.drain_s + config.worker.abort_grace_s,
        say=sayer(config.log_format),
        own_words=partial(_words_of_worker, config, state),
    )


def _words_of_worker(config: Config, state: str, number: int) -> list[str]:
    """What differs between the workers of one machine: each has a folder and devices of its own."""
    words = [f"state_folder={state}/{number}"] if state else []
    first = parse(config.worker.first_devices)
    for name, amount in parse(config.resources).items():
        if is_device(name):
            first[name] = first.get(name, 0.0) + (number - 1) * amount
    if first:
        words.append(f"first_devices={as_given(first)}")
    return [word for one in words for word in ("--set", one)]


def _credentials(config: Config) -> dict[str, str]:
    """The variables that give workers, and the jobs they run, the dispatcher's keys."""
    keys = own_keys(config)
    if keys is None:
        return {}
    return {
        f"{PREFIX}CURVE_SECRET": config.curve_secret or "",
        f"{PREFIX}CURVE_SERVER_KEY": config.curve_server_key or keys.public,
    }


def worker_command(config: Config, backend: str) -> list[str]:
    """The command for a worker with these settings; it sets those that a worker reads otherwise."""
    file = ["--config", config.file] if config.file else []
    inherited = load(file=config.file)
    own = ("app", "target", "resources", "queues", "log_level", "log_format")
    keys = (*own, *WorkerSettings.__struct_fields__, *FileSettings.__struct_fields__)
    changed = [key for key in keys if value_of(config, key) != value_of(inherited, key)]
    overrides = [f"{key}={as_text(value_of(config, key))}" for key in changed]
    command = [sys.executable, "-m", "longshore", "worker", "--connect", backend]
    parent = ["--parent", str(os.getpid())]
    return [*command, *parent, *file, *(word for one in overrides for word in ("--set", one))]


def _worker_count(config: Config) -> int:
    """How many workers `longshore up` runs: none, if there is nothing for them to run."""
    return config.workers if config.app or config.worker.exec else 0


def _all_up(config: Config, dispatching: Dispatching, url: str | None) -> Ready:
    count = _worker_count(config)
    crew = f"{count} worker{'' if count == 1 else 's'} of {config.app or 'any command'}"
    if not config.app and not config.worker.exec:
        crew = "no workers, as no --app was given"
    words, facts = _with_http(dispatching, url)
    return Ready(f"{words}, {crew}", {**facts, "app": config.app, "workers": count})
