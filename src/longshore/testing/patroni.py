"""A highly available PostgreSQL for tests: Patroni with etcd, and three servers that follow it.

Each member is a Patroni and the PostgreSQL that it keeps. One is the primary; the synchronous
standby has every commit that was acknowledged; the third takes the standby's place if that is gone.
All of it runs as the account of `servers`, in one temporary folder, and ends by process ids: a
PostgreSQL outlives the Patroni that started it, so it is found by the file in which it keeps its
own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil

from longshore.testing.servers import (
    HOST,
    Place,
    ServerFailed,
    await_ready,
    end_process,
    find_program,
    free_port,
    log_tail,
    memory_disk,
    postgres_bin,
)

TTL_S: Final = 20
"""How long a primary keeps its right without renewing it: the least that Patroni takes."""
READY_S: Final = 120.0
LOOK_S: Final = 0.1
ASK_S: Final = 2.0
END_S: Final = 10.0
NEEDED_BYTES: Final = 2 * 1024**3
HOW: Final = "`scripts/setup patroni` as root"
_BESIDE_OURS: Final = Path(sys.prefix).parent / ".venvs" / "patroni" / "bin"
"""Where `scripts/setup patroni` puts it: an environment beside the one that runs this."""
_SERVER_SETTINGS: Final[Mapping[str, object]] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
    "max_connections": 200,
    "wal_keep_size": "256MB",
}


class Daemon:
    """One server that is no PostgreSQL: its command, its log, its process."""

    def __init__(
        self,
        name: str,
        place: Place,
        command: Sequence[str | Path],
        is_ready: Callable[[], bool],
        env: Mapping[str, str],
    ) -> None:
        self.log = place.folder / f"{name}.log"
        self._place = place
        self._command = command
        self._is_ready = is_ready
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """It runs and is ready."""
        self.begin()
        assert self._process is not None
        await_ready(self._process, self._is_ready, self.log)

    def begin(self) -> None:
        """It runs, unless it does already."""
        if self.pid is None:
            self._process = self._place.spawn(
                self._command, log=self.log, env=self._env, dies_by=signal.SIGTERM
            )

    @property
    def pid(self) -> int | None:
        """Its process id; none while it is down."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def end(self, by: signal.Signals = signal.SIGKILL) -> None:
        """It is over."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process, by)


class Member:
    """A PostgreSQL and the Patroni that keeps it. `etcd_port` may be that of a proxy."""

    def __init__(
        self, name: str, place: Place, scope: str, etcd_port: int, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.port = free_port()
        self.api_port = free_port()
        self.etcd_port = etcd_port
        self._place = place
        self._scope = scope
        self._data = place.folder / name
        program = find_program("patroni", [str(_BESIDE_OURS)], HOW)
        file = place.folder / f"{name}.yml"
        self.patroni = Daemon(name, place, [program, file], self._answers, env)

    def start(self) -> None:
        """Its Patroni runs, and will bring PostgreSQL up."""
        self._place.write(f"{self.name}.yml", json.dumps(self._configuration()))
        self.patroni.begin()

    def pids(self) -> list[int]:
        """Patroni and what it runs, then PostgreSQL and its processes."""
        found = [pid for pid in (self.patroni.pid, self.server_pid) if pid is not None]
        return list(dict.fromkeys(one for pid in found for one in (pid, *_descendants(pid))))

    @property
    def server_pid(self) -> int | None:
        """The process id of its PostgreSQL; none while it is down."""
        with suppress(OSError, ValueError, IndexError, psutil.Error):
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            if psutil.Process(pid).name() == "postgres":
                return pid
        return None

    def kill(self) -> None:
        """kill -9, Patroni first, so that it starts nothing again."""
        pids = self.pids()
        self.patroni.end(signal.SIGKILL)
        _signal(pids, signal.SIGKILL)
        _await_end(pids)

    def kill_server(self) -> None:
        """kill -9 of the server alone. Patroni sees it, and lets another one take over."""
        pid = self.server_pid
        if pid is not None:
            _signal([pid], signal.SIGKILL)

    def close(self) -> None:
        """Both are down."""
        _signal(self.pids(), signal.SIGCONT)
        pids = self.pids()
        self.patroni.end(signal.SIGKILL)
        if (server := self.server_pid) is not None:
            _signal([server], signal.SIGQUIT)  # which leaves no shared memory behind
        _await_end(pids)

    def ask(self, path: str, body: object = None, timeout_s: float = ASK_S) -> Any:
        """What its Patroni answers; None if it does not."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{HOST}:{self.api_port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                text = answer.read().decode()
        except (OSError, urllib.error.URLError, ValueError):
            return None
        with suppress(ValueError):
            return json.loads(text)
        return text

    def _answers(self) -> bool:
        return self.ask("/patroni") is not None

    def _configuration(self) -> dict[str, object]:
        api, server = f"{HOST}:{self.api_port}", f"{HOST}:{self.port}"
        return {
            "scope": self._scope,
            "name": self.name,
            "restapi": {"listen": api, "connect_address": api},
            # What etcd says of itself would lead past a proxy.
            "etcd3": {"hosts": [f"{HOST}:{self.etcd_port}"], "use_proxies": True},
            "bootstrap": {"dcs": _AGREED, "initdb": _INITDB},
            "postgresql": {
                "listen": server,
                "connect_address": server,
                "data_dir": str(self._data),
                "bin_dir": str(postgres_bin()),
                "pgpass": str(self._place.folder / f"{self.name}.pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres", "password": "-"},
                    "replication": {"username": "postgres", "password": "-"},
                },
                "pg_hba": [
                    "local all all trust",
                    f"host all all {HOST}/32 trust",
                    f"host replication all {HOST}/32 trust",
                ],
                "parameters": {"unix_socket_directories": str(self._place.folder)},
            },
            "watchdog": {"mode": "off"},
        }


_AGREED: Final[Mapping[str, object]] = {
    "ttl": TTL_S,
    "loop_wait": 1,
    "retry_timeout": 3,
    "maximum_lag_on_failover": 1024**3,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "postgresql": {"use_pg_rewind": True, "parameters": dict(_SERVER_SETTINGS)},
}
"""What the members agree on. A server that crashed is not waited for: another one takes over."""
_INITDB: Final = [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums", "no-sync"]


class PatroniCluster:
    """Three members and an etcd, good for one `with` block. It starts when that is entered."""

    def __init__(self, *, members: int = 3, env: Mapping[str, str] | None = None) -> None:
        env = dict(env or {})
        self.place = Place.make("longshore-patroni-", memory_disk(NEEDED_BYTES))
        try:
            self.etcd_port = free_port()
            self._etcd = Daemon("etcd", self.place, self._etcd_command(), self._etcd_is_well, env)
            self.members = [
                Member(f"node-{n}", self.place, "longshore", self.etcd_port, env)
                for n in range(1, members + 1)
            ]
        except BaseException:
            self.place.remove()
            raise

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """There is a primary, and the others follow it."""
        self._etcd.start()
        self.start_all()
        self.await_whole()

    def start_all(self) -> None:
        """Every member runs that does not."""
        for member in self.members:
            member.start()

    def close(self) -> None:
        """All is down and the folder is gone."""
        for member in self.members:
            member.close()
        self._etcd.end(signal.SIGTERM)
        self.place.remove()

    def url(self, ports: Sequence[int] = ()) -> str:
        """One URL for all members."""
        hosts = ",".join(f"{HOST}:{port}" for port in ports or [m.port for m in self.members])
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def roles(self) -> dict[str, str]:
        """By member: leader, sync_standby or replica; only those that run well."""
        for member in self.members:
            answer = member.ask("/cluster")
            if isinstance(answer, dict):
                return {
                    one["name"]: one["role"]
                    for one in answer["members"]
                    if one["state"] in ("running", "streaming")
                }
        return {}

    def primary(self) -> Member | None:
        """Who has the right to write, as far as is known."""
        return self._of("leader")

    def standby(self) -> Member | None:
        """Who has every acknowledged commit, too."""
        return self._of("sync_standby")

    def _of(self, role: str) -> Member | None:
        roles = self.roles()
        return next((one for one in self.members if roles.get(one.name) == role), None)

    def switch_over(self) -> None:
        """The synchronous standby becomes the primary, in good order."""
        leader, candidate = self.primary(), self.standby()
        if leader is not None and candidate is not None:
            names = {"leader": leader.name, "candidate": candidate.name}
            leader.ask("/switchover", names, timeout_s=30)

    def await_whole(self) -> None:
        """A primary, a synchronous standby, and the rest follow."""
        wanted = sorted(["leader", "sync_standby", *["replica"] * (len(self.members) - 2)])
        deadline = time.monotonic() + READY_S
        while sorted(self.roles().values()) != wanted:
            if time.monotonic() > deadline:
                said = "\n".join(log_tail(one.patroni.log) for one in self.members)
                raise ServerFailed(f"not whole within {READY_S:g} s: {self.roles()}\n{said}")
            time.sleep(LOOK_S)

    def _etcd_command(self) -> list[str | Path]:
        here, peers = f"http://{HOST}:{self.etcd_port}", f"http://{HOST}:{free_port()}"
        options = {
            "name": "etcd",
            "data-dir": str(self.place.folder / "etcd"),
            "listen-client-urls": here,
            "advertise-client-urls": here,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"etcd={peers}",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        return [find_program("etcd", ["/usr/bin"], HOW), *words]

    def _etcd_is_well(self) -> bool:
        with suppress(OSError, ValueError):
            url = f"http://{HOST}:{self.etcd_port}/health"
            with urllib.request.urlopen(url, timeout=ASK_S) as answer:
                return bool(json.loads(answer.read())["health"] == "true")
        return False


class Haproxy:
    """An haproxy that leads to whichever member is the primary, as their Patronis say."""

    def __init__(self, cluster: PatroniCluster) -> None:
        self.port = free_port()
        self._cluster = cluster
        place = cluster.place
        program = find_program("haproxy", ["/usr/sbin"], HOW)
        command: list[str | Path] = [program, "-db", "-f", place.folder / "haproxy.cfg"]
        self._daemon = Daemon("haproxy", place, command, self._listens, {})

    def start(self) -> None:
        """It listens."""
        self._cluster.place.write("haproxy.cfg", self._configuration())
        self._daemon.start()

    def close(self) -> None:
        """It is down."""
        self._daemon.end(signal.SIGTERM)

    @property
    def url(self) -> str:
        """Where clients find the primary."""
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self.port), ASK_S):
            return True
        return False

    def _configuration(self) -> str:
        servers = [
            f"    server {one.name} {HOST}:{one.port} check port {one.api_port}"
            for one in self._cluster.members
        ]
        return "\n".join([_HAPROXY.format(host=HOST, port=self.port), *servers, ""])


_HAPROXY: Final = """\
defaults
    mode tcp
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 2s

listen primary
    bind {host}:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions"""


def _descendants(pid: int) -> Iterator[int]:
    with suppress(psutil.Error):
        yield from (child.pid for child in psutil.Process(pid).children(recursive=True))


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _await_end(pids: Sequence[int]) -> None:
    """None of these runs any more. They may be nobody's children: only a look can tell."""
    some = []
    for pid in pids:
        with suppress(psutil.Error):
            some.append(psutil.Process(pid))
    _, left = psutil.wait_procs(some, timeout=END_S)
    for one in left:
        with suppress(psutil.Error):
            one.kill()
