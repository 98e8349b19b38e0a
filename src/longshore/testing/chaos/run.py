"""One run: everything starts, works while it is being broken, comes to rest, and is judged."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
from msgspec import Struct

from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.errors import InvalidInput, LongshoreError, Unavailable
from longshore.model.schedule import Catchup, NewSchedule, Overlap, Rules, Spec, Timing
from longshore.testing.chaos import app, history, reading
from longshore.testing.chaos.clients import Client
from longshore.testing.chaos.cluster import EVERY_S, LEASE_S, LONGEST_S, Probe
from longshore.testing.chaos.faults import LOOK_S, Nemesis, close_all, start_all
from longshore.testing.chaos.fleet import Fleet, Sizes, pace_of
from longshore.testing.chaos.history import AnyEvent, Began, Hiccup, Lease, Phase, Writer
from longshore.testing.chaos.parts import RUN_VARIABLE, end_marked
from longshore.testing.chaos.plan import OF_CLUSTER, Deed, Fault, Shape, cluster_plan, plan
from longshore.testing.chaos.receiver import Receiver
from longshore.testing.chaos.work import SORTS, STEADY, Menu, Setting
from longshore.testing.patroni import Haproxy, PatroniCluster
from longshore.testing.processes import run as run_command
from longshore.testing.servers import MissingServer, PostgresServer

T = TypeVar("T")

READY_S = 60.0
HICCUP_S = 0.25
_TICK_S = 0.05
_FIRES_S = 20.0
PATRONI, HAPROXY = "patroni", "haproxy"
CLUSTERS = (PATRONI, HAPROXY)
"""Stores that are a cluster: dispatchers have the URL of all members, or that of an haproxy."""


class Wanted(Struct, frozen=True, kw_only=True):
    """What to run."""

    folder: Path
    seed: int
    seconds: float
    store: str = ""
    """A URL, sqlite, patroni or haproxy; empty: a PostgreSQL if there is one, else SQLite."""
    sizes: Sizes = Sizes()
    rate: float = 8.0
    """How many calls a second all clients make together."""
    every_s: float = 0.0
    """How long from one fault to the next, on average; 0: 2 s, and of a cluster 40 s."""
    calm_settings: bool = False
    drain_s: float = 60.0
    """It gives up once nothing has ended for so long although all faults are over."""
    sorts: tuple[str, ...] = SORTS
    cluster_deeds: tuple[tuple[Deed, str], ...] = OF_CLUSTER


class Outcome(Struct, frozen=True):
    """What a run leaves."""

    events: list[AnyEvent]
    faults: tuple[Fault, ...]
    store: str
    left_out: tuple[str, ...]


def run(
    wanted: Wanted,
    told: Callable[[str], None],
    also: Callable[[Fleet], None] = lambda fleet: None,
) -> Outcome:
    """Runs it all. `told` hears what happens; `also` is called when the faults are over."""
    wanted.folder.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    try:
        with ExitStack() as stack:
            return _Run(wanted, told, mark, stack).whole(also)
    finally:
        if left := end_marked(mark):
            told(f"{len(left)} processes were still there and were killed: {left}")


class Background:
    """An event loop in a thread of its own: the proxies, the clients and the receiver."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Runs it to its end; `meanwhile` is called now and then."""
        future = self.begin(work)
        while not concurrent.futures.wait([future], LOOK_S).done:
            meanwhile()
        return future.result()

    def close(self) -> None:
        """Cancels what still runs."""
        with suppress(TimeoutError, concurrent.futures.TimeoutError):
            self.begin(_cancel_all()).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=4)


class _Run:
    """A run while it is under way. What it starts is in the stack, and ends with it."""

    def __init__(
        self, wanted: Wanted, told: Callable[[str], None], mark: str, stack: ExitStack
    ) -> None:
        self._wanted = wanted
        self._told = told
        self._stack = stack
        self._left_out: list[str] = []
        self._writer = Writer(wanted.folder / "history.jsonl")
        stack.callback(self._writer.close)
        self._cluster: PatroniCluster | None = None
        self._haproxy: Haproxy | None = None
        store = self._store(mark)
        pace = None if wanted.calm_settings else pace_of(machine_load())
        if pace is not None and pace > 1:
            told(f"the machine is busy: leases and other intervals are {pace:.1f} times as long")
        self._fleet = Fleet(mark, wanted.folder, wanted.sizes, store, pace, self._cluster)
        self._background = Background()
        stack.callback(self._background.close)
        stack.callback(self._end_parts)
        self._clients: list[Client] = []
        self._stop = asyncio.Event()

    def whole(self, also: Callable[[Fleet], None]) -> Outcome:
        """From the start to the last reading."""
        self._phase("start")
        self._start()
        wanted = self._wanted
        faults = self._faults()
        nemesis = Nemesis(self._fleet, self._writer, wanted.seed, self._background.run)
        self._stack.callback(nemesis.calm)
        self._phase("storm")
        nemesis.rage(faults, time.monotonic() + wanted.seconds, self._told)
        also(self._fleet)
        self._rest(nemesis.look_after)
        self._stack.close()
        events = history.read(wanted.folder / "history.jsonl", wanted.folder / "bodies.jsonl")
        return Outcome(events, faults, _kind_of(self._fleet.store), tuple(self._left_out))

    def _faults(self) -> tuple[Fault, ...]:
        wanted = self._wanted
        if self._cluster is not None:
            self._left_out.append("faults of anything but the cluster")
            every_s, deeds = wanted.every_s or EVERY_S, wanted.cluster_deeds
            return cluster_plan(wanted.seed, wanted.seconds, every_s, LONGEST_S, deeds)
        shape = Shape(self._fleet.names(), tuple(self._impossible()))
        longest_s = 45.0 if wanted.calm_settings else 8.0
        return plan(wanted.seed, shape, wanted.seconds, wanted.every_s or 2.0, longest_s)

    # the start

    def _store(self, mark: str) -> str | PostgresServer:
        wanted = self._wanted.store
        if wanted in CLUSTERS:
            return self._cluster_url(mark)
        if wanted == "sqlite":
            return self._sqlite()
        if wanted:
            self._left_out.append("faults of the database itself: it is not ours (--store)")
            return wanted
        try:
            server = PostgresServer(fsync=False)
            self._stack.enter_context(server)
        except MissingServer as missing:
            self._told(f"no PostgreSQL here ({missing}): the store is SQLite")
            self._left_out.append(f"PostgreSQL: {missing}")
            return self._sqlite()
        return server

    def _cluster_url(self, mark: str) -> str:
        """Where dispatchers will find the cluster, which starts when its proxies listen."""
        try:
            self._cluster = PatroniCluster(env={RUN_VARIABLE: mark})
            self._stack.callback(self._cluster.close)
            if self._wanted.store == PATRONI:
                return self._cluster.url()
            self._haproxy = Haproxy(self._cluster)
        except MissingServer as missing:
            raise InvalidInput(f"--store {self._wanted.store}: {missing}") from None
        self._stack.callback(self._haproxy.close)
        return self._haproxy.url

    def _sqlite(self) -> str:
        return f"sqlite:///{self._wanted.folder.absolute()}/store.db"

    def _start(self) -> None:
        """Everything runs, and is ready to be broken."""
        fleet, background = self._fleet, self._background
        background.run(start_all(fleet))
        self._start_cluster()
        migrated = run_command("migrate", "--store", fleet.store)
        if migrated.returncode:
            raise InvalidInput(f"the store cannot be migrated: {migrated.stderr.strip()}")
        for part in fleet.start_order():
            part.start()
        background.run(self._await_ready())
        if fleet.gateway_url:
            self._push_files()
        background.run(self._begin_work())
        background.begin(self._watch_machine())
        background.begin(self._watch_schedule())
        if self._cluster is not None:
            background.begin(Probe(self._cluster, self._writer).run())

    def _start_cluster(self) -> None:
        if self._cluster is None:
            return
        self._told("three PostgreSQL, their Patronis and an etcd start")
        self._cluster.start()
        if self._haproxy is not None:
            self._haproxy.start()
        self._writer.add(Lease(seconds=LEASE_S))

    async def _await_ready(self) -> None:
        async with Connection(self._fleet.own_address, timeout_s=READY_S) as connection:
            if (await connection.jobs()).jobs:
                raise InvalidInput(
                    f"the store {_kind_of(self._fleet.store)} has jobs already; "
                    "give an empty one: a run judges all that it finds"
                )
            sizes = self._fleet.sizes
            wanted = sizes.workers + sizes.plain + sizes.gateways + sizes.web
            async with asyncio.timeout(READY_S):
                while True:
                    if len(await connection.workers()) >= wanted:
                        return
                    await asyncio.sleep(0.1)

    def _push_files(self) -> None:
        folder = self._wanted.folder / app.FILESET
        folder.mkdir(exist_ok=True)
        (folder / "crate").write_text("tea\n")
        words = ("push", app.FILESET, str(folder), "--connect", self._fleet.gateway_url)
        pushed = run_command("filesets", *words)
        if pushed.returncode:
            raise LongshoreError(f"the files could not be pushed: {pushed.stderr.strip()}")

    async def _begin_work(self) -> None:
        wanted = self._wanted
        self._receiver = Receiver(self._writer, wanted.seed)
        await self._receiver.start()
        await self._declare_schedule()
        setting = Setting(str(wanted.folder.absolute() / "bodies.jsonl"), self._receiver.url)
        per_s = wanted.rate / max(1, len(self._fleet.clients))
        for n, addresses in enumerate(self._fleet.clients, 1):
            seed = f"{wanted.seed} client {n}"
            menu = Menu(seed, self._sorts(), setting)
            client = Client(f"client-{n}", addresses, menu, self._writer, per_s, seed)
            self._clients.append(client)
        self._submitting = [
            asyncio.create_task(client.submit(self._stop)) for client in self._clients
        ]

    def _sorts(self) -> tuple[str, ...]:
        sizes = self._fleet.sizes
        lacking = {
            "callback": sizes.gateways,
            "command": sizes.gateways,
            "web": sizes.gateways and sizes.web,
            "plain": sizes.plain,
        }
        steady = () if self._cluster is None else (STEADY,)
        return tuple(sort for sort in (*self._wanted.sorts, *steady) if lacking.get(sort, 1))

    async def _declare_schedule(self) -> None:
        rules = Rules(overlap=Overlap.ALLOW, catchup=Catchup.ALL, grace_s=1.0)
        timing = Timing((Spec(every_s=reading.EVERY_S),))
        job = app.tick.call().submission
        new = NewSchedule(fresh_id(), reading.SCHEDULE, timing, rules, job)
        async with Connection(self._fleet.own_address) as connection:
            await connection.schedules.put(new)

    async def _watch_machine(self) -> None:
        """Notes when even this process had to wait: then all leases were in danger."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            late = time.monotonic() - before - _TICK_S
            if late > HICCUP_S:
                self._writer.add(Hiccup(seconds=late))

    async def _watch_schedule(self) -> None:
        """Notes fires before there are too many for one page."""
        while True:
            await asyncio.sleep(_FIRES_S)
            try:
                async with Connection(self._fleet.own_address) as connection:
                    await reading.note_fires(connection, self._writer)
            except Unavailable:
                continue

    def _impossible(self) -> Iterator[tuple[str, Deed]]:
        """What cannot be done here; `left_out` says so."""
        if self._fleet.database is None and not self._fleet.store.startswith("sqlite"):
            self._left_out.append("a full disk below the database")
        if not psutil.LINUX:
            self._left_out.append("a full disk: this needs Linux")
            yield from ((sort, Deed.FULL_DISK) for sort in ("dispatcher", "gateway", "postgres"))
        self._left_out.append("a slow disk: processes that stutter stand for it")
        self._left_out.append("clocks that jump: all processes share the machine's")

    # the end

    def _rest(self, meanwhile: Callable[[], None]) -> None:
        """No fault and no new call any more: all comes to its end, and is read."""
        self._phase("calm")
        background = self._background
        background.run(self._finish_calls(), meanwhile)
        background.run(self._read(), meanwhile)
        self._phase("over")

    async def _finish_calls(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._submitting)
        await asyncio.gather(*(client.finish(self._wanted.drain_s) for client in self._clients))

    def _unheard(self) -> Iterator[str]:
        """What clients and the receiver still wait for."""
        for client in self._clients:
            yield from client.unended
            yield from client.to_be_told - self._receiver.told

    async def _read(self) -> None:
        writer = self._writer
        async with Connection(self._fleet.own_address, timeout_s=READY_S) as connection:
            with suppress(Unavailable):
                await connection.schedules.pause(reading.SCHEDULE)
            is_drained = await reading.drained(
                connection, self._wanted.drain_s, writer, self._unheard
            )
            self._told("everything has ended" if is_drained else "not everything has ended")
            self._phase("read")
            bodies = history.read(self._wanted.folder / "bodies.jsonl")
            own = {one.job for one in bodies if isinstance(one, Began)}
            known = {
                one.job
                for one in history.read(self._wanted.folder / "history.jsonl")
                if isinstance(one, history.Called)
            }
            await reading.note_fires(connection, writer)
            await reading.read_all(connection, sorted(own | known), writer)
        for client in self._clients:
            await client.close()
        await self._receiver.close()

    def _end_parts(self) -> None:
        for part in reversed(list(self._fleet.start_order())):
            if part is not self._fleet.database:
                with suppress(OSError, subprocess.SubprocessError):
                    part.close()
        self._background.run(close_all(self._fleet))

    def _phase(self, name: str) -> None:
        self._writer.add(Phase(name=name))
        self._told({"storm": "the storm begins", "calm": "the storm is over"}.get(name, ""))


def _kind_of(store: str) -> str:
    return "PostgreSQL" if store.startswith("postgres") else "SQLite"


def new_folder(where: Path, seed: int) -> Path:
    """A folder for a run that is not there yet."""
    for number in range(1, 10_000):
        folder = where / (f"seed-{seed}" + (f"-{number}" if number > 1 else ""))
        if not folder.exists():
            folder.mkdir(parents=True)
            return folder
    raise InvalidInput(f"{where} has too many runs of seed {seed}; remove some")


def machine_load() -> float:
    """How many processes want to run for each core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
