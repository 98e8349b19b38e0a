"""Real servers for tests and measurements: started in a moment, gone without a trace.

Each server runs in a temporary folder, on a free loopback port, as a direct child of this process,
never as root (both refuse that): root lends them the `postgres` account. A server ends when its
`with` block does. Should this process be killed first, the kernel ends the server too (see
`die_with`); only its folder then stays behind.

The kernel ties a child to the thread that started it: start servers from a thread that outlives
them, the main thread for instance.
"""

from __future__ import annotations

import abc
import ctypes
import functools
import os
import pwd
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

HOST = "127.0.0.1"
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 30.0

StopMode = Literal["fast", "immediate"]

_STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02
_LOG_TAIL_LINES = 30
_MEMORY_DISK = Path("/dev/shm")
_MEMORY_NEEDED_BYTES = 2 * 1024**3


class MissingServer(RuntimeError):
    """A server's program is not installed here; the message says what to install."""

    def __init__(
        self, program: str, how: str = "`apt-get install postgresql pgbouncer` as root"
    ) -> None:
        super().__init__(f"{program} is not installed: run {how}")


class ServerFailed(RuntimeError):
    """A server, or one of its programs, did not do what was asked; the message holds its log."""


def free_port() -> int:
    """Some loopback port that nobody listens on.

    It lies below the range from which the kernel takes the ports of outgoing connections: while a
    server restarts, nobody can be given its port, and no client can connect to itself.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free loopback port in 20000-31999 after 100 tries: is one leaking?")


def memory_disk(needed_bytes: int) -> Path | None:
    """A disk in memory with so much space, for data that need not survive the machine, or none."""
    if not os.access(_MEMORY_DISK, os.W_OK):
        return None
    return _MEMORY_DISK if shutil.disk_usage(_MEMORY_DISK).free >= needed_bytes else None


class _Server(abc.ABC):
    """What both servers share: a port, a place, one process, an end. Good for one `with` block."""

    def __init__(self) -> None:
        self.port = free_port()
        self._bin = postgres_bin()
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def start(self) -> None:
        """The server accepts connections; if it ran before, on the same port as then."""

    @abc.abstractmethod
    def close(self) -> None:
        """The server is down and its folder is gone."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the server; none while it is down."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def url(self, database: str = "postgres") -> str:
        """Where clients find a database."""
        return f"postgresql://postgres@{HOST}:{self.port}/{database}"

    @functools.cached_property
    def _place(self) -> Place:
        return Place.make(f"longshore-{type(self).__name__.lower()}-", self._disk)

    @property
    def _disk(self) -> Path | None:
        """Where the folder of the server goes; none is where temporary folders are."""
        return None

    def _launch(self, command: Sequence[Argument]) -> None:
        self._process = self._place.spawn(command)
        try:
            await_ready(self._process, self._accepts_connections, self._place.log)
        except BaseException:
            self._end(signal.SIGQUIT)
            raise

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, by)

    def _accepts_connections(self) -> bool:
        where = ["-h", HOST, "-p", str(self.port), "-U", "postgres", "-d", "postgres"]
        answer = self._place.run([self._bin / "pg_isready", "--timeout=5", *where])
        return answer.returncode == 0


class PostgresServer(_Server):
    """A PostgreSQL of its own, empty at first, superuser `postgres`, no password.

    `fsync=False` is quicker and still keeps every commit through `stop("immediate")`; only a crash
    of the whole machine could lose some. Its data is in memory then, if there is enough.
    `settings` are as in postgresql.conf and win over ours.
    """

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._fsync = fsync
        self.settings = _postgres_settings(fsync) | dict(settings or {})

    def start(self) -> None:
        """The server accepts connections; if it ran before, on the same port with the same data."""
        if self.pid is not None:
            return
        data = self._place.folder / "data"
        if not data.exists():
            self._initdb(data)
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        where = ["-h", HOST, "-p", str(self.port), "-k", str(self._place.folder)]
        self._launch([self._bin / "postgres", "-D", data, *where, *options])

    def stop(self, mode: StopMode = "fast") -> None:
        """The server is down: `fast` in good order, `immediate` as if it had crashed."""
        self._end(_STOP_SIGNALS[mode])

    def restart(self, mode: StopMode = "fast") -> None:
        """The server went down and is back, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """The server is down and its folder is gone."""
        self.stop("immediate")
        self._place.remove()

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """A new database exists; answers its url."""
        self._tool("createdb", "--template", template, name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """The database is gone, whoever was connected to it."""
        self._tool("dropdb", "--force", "--if-exists", name)

    @property
    def _disk(self) -> Path | None:
        return None if self._fsync else memory_disk(_MEMORY_NEEDED_BYTES)

    def _initdb(self, data: Path) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        _check(self._place.run([self._bin / "initdb", "--no-sync", *options, "-D", data]))

    def _tool(self, program: str, *arguments: str) -> None:
        where = ["--host", HOST, "--port", str(self.port), "--username", "postgres"]
        _check(self._place.run([self._bin / program, *where, *arguments]))


class PostgresStandby(PostgresServer):
    """A standby that streams from a primary, begun from a copy of it.

    The primary's commits wait for it once its `synchronous_standby_names` is `*`: set that when
    the standby has started, or nothing can be written before.
    """

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(fsync=False)
        self._primary = primary

    def freeze(self) -> None:
        """The standby takes and acknowledges nothing, and keeps its connections."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """The standby goes on from where it was frozen."""
        self._signal(signal.SIGCONT)

    def crash(self) -> None:
        """The standby is down, and what had come to it but was not taken yet is lost."""
        processes = [os.pidfd_open(pid) for pid in self._pids()]
        for process in processes:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        for process in processes:
            select.select([process], [], [], STOP_DEADLINE_S)
            os.close(process)
        self._end(signal.SIGKILL)

    def promote(self) -> None:
        """The standby is a primary of its own; it takes part in nothing that the old one does."""
        data = self._place.folder / "data"
        _check(self._place.run([self._bin / "pg_ctl", "promote", "--wait", "-D", data]))

    def stop(self, mode: StopMode = "fast") -> None:
        """The standby is down, even if it was frozen."""
        self.thaw()
        super().stop(mode)

    def _initdb(self, data: Path) -> None:
        where = ["-h", HOST, "-p", str(self._primary.port), "-U", "postgres"]
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        _check(self._place.run([self._bin / "pg_basebackup", *where, *options, "-D", data]))

    def _signal(self, by: signal.Signals) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):  # a worker process of the server may end by itself
                os.kill(pid, by)

    def _pids(self) -> list[int]:
        """Its processes; the server first, which might start another in place of a stopped one."""
        return [self.pid, *_children(self.pid)] if self.pid is not None else []


class PgBouncer(_Server):
    """A pgbouncer in transaction mode before a PostgresServer, for every database it has.

    Successive transactions of one client may run on different connections of the server: clients
    must keep no session state and, since pgbouncer 1.18 does not carry them, name no prepared
    statement. While the server behind is down, pgbouncer lets a query wait for it, two minutes
    unless `settings`, which are as in pgbouncer.ini and win over ours, say otherwise.
    """

    def __init__(
        self, server: PostgresServer, *, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._program = find_program("pgbouncer", ["/usr/sbin", "/usr/bin"])
        self._server_port = server.port
        self.settings = _pgbouncer_settings() | dict(settings or {})

    def start(self) -> None:
        """It accepts connections; if it ran before, on the same port as then."""
        if self.pid is None:
            configuration = self._place.write("pgbouncer.ini", self._configuration())
            self._launch([self._program, configuration])

    def stop(self) -> None:
        """It is down, and its clients are cut off."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """It is down and its folder is gone."""
        self.stop()
        self._place.remove()

    def _configuration(self) -> str:
        databases = f"* = host={HOST} port={self._server_port} user=postgres"
        settings = {"listen_addr": HOST, "listen_port": str(self.port)} | self.settings
        lines = [f"{name} = {value}" for name, value in settings.items()]
        return "\n".join(["[databases]", databases, "[pgbouncer]", *lines, ""])


Argument = str | Path


@dataclass(frozen=True)
class Place:
    """A temporary folder, the account that owns it, and programs run there by that account."""

    folder: Path
    account: pwd.struct_passwd | None

    @classmethod
    def make(cls, prefix: str, disk: Path | None) -> Place:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=disk))
        account = _unprivileged_account()
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        return cls(folder, account)

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def write(self, name: str, text: str) -> Path:
        """The folder holds this file, readable by the account."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o644)
        return path

    def run(self, command: Sequence[Argument]) -> subprocess.CompletedProcess[str]:
        """The command ran to its end, well or not; its output is one text."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=START_DEADLINE_S,
            check=False,
            user=self._uid,
            group=self._gid,
            extra_groups=self._extra_groups,
        )

    def spawn(
        self,
        command: Sequence[Argument],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        dies_by: signal.Signals = signal.SIGQUIT,
    ) -> subprocess.Popen[bytes]:
        """A server runs, writes to the log, and ends at once should this process die.

        A session of its own keeps a Ctrl-C at the terminal for this process alone.
        """
        with (log or self.log).open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment() | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with(os.getpid(), dies_by),
                user=self._uid,
                group=self._gid,
                extra_groups=self._extra_groups,
            )

    def remove(self) -> None:
        """The folder is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _uid(self) -> int | None:
        return self.account.pw_uid if self.account else None

    @property
    def _gid(self) -> int | None:
        return self.account.pw_gid if self.account else None

    @property
    def _extra_groups(self) -> list[int] | None:
        return [] if self.account else None


def _children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _environment() -> dict[str, str]:
    """Ours, less what would make PostgreSQL's programs speak to another server or language."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _check(answer: subprocess.CompletedProcess[str]) -> None:
    if answer.returncode != 0:
        name = Path(answer.args[0]).name
        raise ServerFailed(f"{name} exited with {answer.returncode}: {answer.stdout.strip()}")


def _postgres_settings(fsync: bool) -> dict[str, str]:
    switch = "on" if fsync else "off"
    settings = {"max_connections": "200", "fsync": switch, "full_page_writes": switch}
    return settings if fsync else settings | {"max_wal_size": "256MB"}


def _pgbouncer_settings() -> dict[str, str]:
    return {
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "max_client_conn": "200",
        "ignore_startup_parameters": "extra_float_digits",
        "server_login_retry": "0.1",
    }


def await_ready(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], log: Path) -> None:
    """Waits until a server that was just started is ready; raises if it ends instead."""
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if _has_exited(process):
            raise ServerFailed(f"exited with {process.returncode} at start: {log_tail(log)}")
        if is_ready():
            return
    raise ServerFailed(f"not ready within {START_DEADLINE_S:g} s: {log_tail(log)}")


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ended, after giving it a moment to."""
    try:
        process.wait(timeout=_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_process(process: subprocess.Popen[bytes], by: signal.Signals) -> None:
    """The process is over: by this signal, or killed if it takes too long."""
    process.send_signal(by)
    try:
        process.wait(timeout=STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tail(log: Path) -> str:
    """The last lines of a server's log, for an error."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return "\n".join([f"the end of {log.parent.name}'s log follows", *lines])


def die_with(parent: int, by: signal.Signals) -> Callable[[], None]:
    """For the child between fork and exec: be sent this signal when the parent's thread ends.

    The kernel forgets the wish when a process changes its user, so it must come after that:
    subprocess calls this last of all. A parent that died before is noticed by the new parent.
    A shell has what it runs in the background ignore SIGQUIT, and children inherit that: pgbouncer
    1.18, which has no handler of its own, would never end by it.
    """
    libc = _libc()

    def in_child() -> None:
        if by is not signal.SIGKILL:  # which nobody can ignore, nor say so
            signal.signal(by, signal.SIG_DFL)
        libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _unprivileged_account() -> pwd.struct_passwd | None:
    """Whom servers run as, when we are root; none when we can run them ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


@functools.cache
def postgres_bin() -> Path:
    """The folder of PostgreSQL's programs, the newest version first."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    for folder in [*versions, *_bin_of_pg_config(), *map(Path, os.get_exec_path())]:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise MissingServer("PostgreSQL")


def _version(bin_folder: Path) -> float:
    try:
        return float(bin_folder.parent.name)
    except ValueError:
        return 0.0


def _bin_of_pg_config() -> list[Path]:
    program = shutil.which("pg_config")
    if program is None:
        return []
    answer = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=False)
    return [Path(answer.stdout.strip())] if answer.returncode == 0 else []


def find_program(name: str, folders: Sequence[str], *how: str) -> Path:
    """Where a program is; raises `MissingServer`, which says how it is installed."""
    found = shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), *folders]))
    if found is None:
        raise MissingServer(name, *how)
    return Path(found)
