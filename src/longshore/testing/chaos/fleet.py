"""The fleet of a run: its processes, and a proxy on every way between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from longshore.testing.chaos.cluster import LEASE_S, Role
from longshore.testing.chaos.history import BODIES_VARIABLE
from longshore.testing.chaos.parts import RUN_VARIABLE, Database, Part
from longshore.testing.chaos.proxy import Proxy
from longshore.testing.patroni import PatroniCluster
from longshore.testing.processes import command, settings
from longshore.testing.servers import HOST, PostgresServer, free_port

QUICK = {
    "lease_s": 3.0,
    "ping_s": 0.2,
    "renew_s": 0.3,
    "dispatcher_lease_s": 1.5,
    "takeover_margin_s": 1.5,
    "poll_s": 0.3,
    "promote_s": 0.2,
    "cancel_poll_s": 0.2,
    "expire_s": 0.5,
    "sweep_s": 1.0,
    "group_poll_s": 0.3,
    "heartbeat_s": 1.0,
    "web_poll_s": 0.3,
    "plain_probe_s": 1.0,
    "callback_backoff_s": 0.2,
    "callback_max_backoff_s": 1.0,
    "callback_timeout_s": 2.0,
}
QUICK_WORKER = {"broker_timeout_s": 0.3, "abort_grace_s": 0.5, "drain_s": 2, "resend_s": 1.0}
QUICK_GATEWAY = {
    **{key: QUICK_WORKER[key] for key in ("broker_timeout_s", "resend_s")},
    "web_ping_interval_s": 0.5,
    "web_dead_ping_interval_s": 1.0,
    "web_remove_after": 1000,
    "web_request_s": 1.0,
    "web_adoption_s": 2.0,
    "web_attend_s": 0.3,
    "http_drain_s": 1.0,
}
ALWAYS = {"crash_limit": 1_000_000, "callback_attempts": 10_000, "keep_most": 0}
"""Nothing is given up only because its processes died so often."""


SLOWEST_PACE = 5.0
"""At it a lease is as long as it usually is."""


def pace_of(load: float) -> float:
    """How much longer short intervals are on a machine where so many wait for each core.

    A lease of 3 s that a worker cannot keep, because it does not get a core, tests nothing.
    """
    return min(SLOWEST_PACE, max(1.0, load / 2))


class Sizes(Struct, frozen=True):
    """How many of each there are."""

    dispatchers: int = 2
    workers: int = 2
    gateways: int = 1
    plain: int = 1
    web: int = 1
    clients: int = 3
    """One of them speaks HTTP, if there is a gateway."""


class Fleet:
    """The parts of a run by name, and its proxies."""

    def __init__(
        self,
        run: str,
        folder: Path,
        sizes: Sizes,
        store: str | PostgresServer,
        pace: float | None,
        cluster: PatroniCluster | None = None,
    ) -> None:
        self.cluster = cluster
        self.roles: dict[str, Role] = {}
        self.sizes = sizes
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.database = Database(store) if isinstance(store, PostgresServer) else None
        self.parts: dict[str, Part | Database] = {}
        self.links: dict[str, Proxy] = {}
        self._env = {
            RUN_VARIABLE: run,
            BODIES_VARIABLE: str(folder / "bodies.jsonl"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONUNBUFFERED": "1",
        }
        self._pace = pace
        self.store = store if isinstance(store, str) else store.url()
        if self.database is not None:
            self.parts["postgres"] = self.database
        if cluster is not None:
            self._add_cluster(cluster)
        self._frontends = [free_port() for _ in range(sizes.dispatchers)]
        self._backends = [free_port() for _ in range(sizes.dispatchers)]
        self._http = [free_port() for _ in range(sizes.gateways)]
        self._add_dispatchers()
        self._add_workers()
        self._add_gateways()
        self.clients = [self._client(f"client-{n + 1}", n) for n in range(sizes.clients)]

    @property
    def own_address(self) -> str:
        """Where this process finds the dispatchers, past all proxies."""
        return ",".join(f"tcp://{HOST}:{port}" for port in self._frontends)

    @property
    def gateway_url(self) -> str:
        """The first gateway, past all proxies; empty if there is none."""
        return f"http://{HOST}:{self._http[0]}" if self._http else ""

    def start_order(self) -> Iterator[Part | Database]:
        """The parts, those first that others need."""
        order = ("postgres", "dispatcher", "gateway", "worker", "plain", "web")
        for sort in order:
            yield from (part for part in self.parts.values() if part.sort == sort)

    def names(self) -> dict[str, tuple[str, ...]]:
        """All names by sort; links too."""
        found: dict[str, list[str]] = {}
        for part in self.parts.values():
            found.setdefault(part.sort, []).append(part.name)
        return {sort: tuple(some) for sort, some in found.items()} | {"link": tuple(self.links)}

    def _add_cluster(self, cluster: PatroniCluster) -> None:
        self.roles = {name: Role(name, cluster) for name in ("primary", "standby")}
        for member in cluster.members:
            member.etcd_port = self._link(member.name, "etcd", cluster.etcd_port)

    def _tuned(self, quick: Mapping[str, float]) -> dict[str, object]:
        """Short intervals at the pace of the machine; without a pace, the usual ones."""
        if self._pace is None:
            return {}
        return {
            key: many * self._pace if key.endswith("_s") else many for key, many in quick.items()
        }

    def _link(self, who: str, to: str, port: int) -> int:
        """A proxy; answers its port."""
        name = f"{who}>{to}"
        if name not in self.links:
            self.links[name] = Proxy(name, port)
        return self.links[name].port

    def _add(self, name: str, words: list[str]) -> None:
        self.parts[name] = Part(name, words, self._env, self.logs)

    def _ways(self, who: str, ports: list[int], socket: str = "") -> str:
        """The addresses by which somebody reaches all dispatchers."""
        links = [self._link(who, f"dispatcher-{n}{socket}", p) for n, p in enumerate(ports, 1)]
        return ",".join(f"tcp://{HOST}:{port}" for port in links)

    def _add_dispatchers(self) -> None:
        tuned = {**self._tuned(QUICK), **ALWAYS}
        if self.cluster is not None:
            tuned["lease_s"] = LEASE_S
        for n, (front, back) in enumerate(zip(self._frontends, self._backends, strict=True), 1):
            name = f"dispatcher-{n}"
            words = ["--store", self._store_for(name), "--frontend", f"{HOST}:{front}"]
            words += ["--backend", f"{HOST}:{back}"]
            self._add(name, command("dispatcher", *words, *settings(**tuned)))

    def _store_for(self, name: str) -> str:
        """PostgreSQL through proxies of its own, one for each host; SQLite as it is."""
        where = urlsplit(self.store)
        if not where.scheme.startswith("postgres"):
            return self.store
        account, at, hosts = where.netloc.rpartition("@")
        places = [_host_and_port(host) for host in hosts.split(",")]
        if any(host not in ("", HOST, "localhost") for host, _ in places):
            return self.store  # another machine: proxies are for loopback only
        names = ["postgres"] if len(places) == 1 else [f"node-{n + 1}" for n in range(len(places))]
        ports = [self._link(name, to, p) for to, (_, p) in zip(names, places, strict=True)]
        netloc = ",".join(f"{HOST}:{port}" for port in ports)
        return where._replace(netloc=f"{account}{at}{netloc}").geturl()

    def _add_workers(self) -> None:
        tuned = {**self._tuned(QUICK_WORKER), "engine": "off"}
        if self._http:
            urls = (f"http://{HOST}:{port}" for port in self._http)
            tuned |= {"files_url": ",".join(urls)}
        for n in range(1, self.sizes.workers + 1):
            ways = self._ways(f"worker-{n}", self._backends)
            words = ["--app", "longshore.testing.chaos.app:app", "--connect", ways]
            words += ["--processes", "2", "--commands", "2", "--threads", "4", "--slots", "20"]
            self._add(f"worker-{n}", command("worker", *words, *settings(**tuned)))
        for n in range(1, self.sizes.plain + 1):
            place = (n - 1) % len(self._backends)
            port = self._link(f"plain-{n}", f"dispatcher-{place + 1}", self._backends[place])
            program = [sys.executable, "-m", "longshore.testing.chaos.plain_worker"]
            self._add(f"plain-{n}", [*program, f"tcp://{HOST}:{port}"])

    def _add_gateways(self) -> None:
        tuned = {**self._tuned(QUICK_GATEWAY), "files": self.folder / "files"}
        for n, port in enumerate(self._http, 1):
            name = f"gateway-{n}"
            words = ["--http", f"{HOST}:{port}", "--connect", self._ways(name, self._frontends)]
            words += ["--backend", self._ways(name, self._backends, ".backend")]
            self._add(name, command("gateway", *words, *settings(**tuned)))
        for n in range(1, self.sizes.web + 1 if self._http else 1):
            url = f"http://{HOST}:{self._http[(n - 1) % len(self._http)]}"
            program = [sys.executable, "-m", "longshore.testing.chaos.web_worker"]
            self._add(f"web-{n}", [*program, url, str(free_port())])

    def _client(self, name: str, n: int) -> str:
        """The addresses of a client. The last one speaks HTTP."""
        if self._http and n and n == self.sizes.clients - 1:
            port = self._link(name, "gateway-1", self._http[0])
            return f"http://{HOST}:{port}"
        return self._ways(name, self._frontends)


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon else (text, 5432)
