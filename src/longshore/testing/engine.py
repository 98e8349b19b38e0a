"""A real container engine for tests and measurements: Debian's dockerd, started for them alone.

It has its own socket, data folder and containerd, touches no firewall and makes no bridge, so that
it runs beside an engine of the machine. Only root can start one. It ends by its own process id and
that of its containerd; whatever it still ran ends with it. Should this process be killed first, the
kernel asks both to end.

    with Engine() as engine:
        engine.add_image("tools:1")     # busybox, nothing pulled
        engine.url                      # unix:///…/docker.sock

`Registry` is a real registry beside it (Debian's docker-registry), to push to and to pull from.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from longshore.testing.servers import HOST, ServerFailed, die_with, free_port

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 30.0
IMAGE: Final = "longshore/tools:1"
USER: Final = "longshore"
PASSWORD: Final = "keelhaul"

_POLL_S = 0.02
_SBIN = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
_BUSYBOX = ("/bin/busybox", "/usr/bin/busybox")
_CONTAINERD: Final = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
_DOCKERD: Final = '{"shutdown-timeout": 1}'
_PACKAGES: Final = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "docker.io",
    "docker-registry": "docker-registry",
    "busybox": "busybox-static",
}
# bcrypt of PASSWORD: all that a registry takes.
_HTPASSWD: Final = f"{USER}:$2b$05$SitMxl8A/XI7QfLZML8/mOTyvJRd4sjswH3vzIv85HnXbfIWmiHae\n"


class MissingEngine(RuntimeError):
    """No engine can run here; the message says what is missing."""


class Engine:
    """A dockerd of its own. `data` is its folder for images and containers, a temporary one if
    none is given; `storage` is its storage driver, the first that works if none is given.
    """

    def __init__(self, *, data: Path | None = None, storage: str = "") -> None:
        _refuse_missing()
        self.folder = Path(tempfile.mkdtemp(prefix="longshore-engine-"))
        self._data = data or self.folder / "data"
        self._drivers = [storage] if storage else ["overlay2", "vfs"]
        self._containerd: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "docker.sock"

    @property
    def pid(self) -> int | None:
        """The process id of dockerd; none while it is down."""
        process = self._dockerd
        return process.pid if process is not None and process.poll() is None else None

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
        """It answers; if it ran before, on the same socket with the same images."""
        if self.pid is not None:
            return
        if self._containerd is None:
            self._launch_containerd()
        for driver in list(self._drivers):
            self._launch(driver)
            if self._answers_in_time():
                self._drivers = [driver]
                return
            self._end_dockerd()
        raise ServerFailed(f"dockerd did not start:\n{self._log_tail()}")

    def stop(self) -> None:
        """It is down in good order, and so is all that it ran."""
        self._end_dockerd()
        process, self._containerd = self._containerd, None
        if process is not None:
            _end(process)
        self._end_processes()

    def kill(self) -> None:
        """dockerd dies at once (kill -9), as if it had crashed; its containers may go on."""
        process, self._dockerd = self._dockerd, None
        assert process is not None, "it does not run"
        process.kill()
        process.wait()

    def close(self) -> None:
        """It is down, and its folders are gone."""
        self.stop()
        _unmount_below(self.folder)
        _unmount_below(self._data)
        shutil.rmtree(self.folder, ignore_errors=True)

    def docker(self, *words: str, stdin: bytes = b"") -> str:
        """Runs a command of Docker's own client against it; answers what it printed."""
        answer = subprocess.run(
            [_program("docker"), "--host", self.url, *words],
            input=stdin,
            capture_output=True,
            timeout=START_DEADLINE_S,
            check=False,
            env={**os.environ, "DOCKER_CONFIG": str(self.folder / "client")},
        )
        if answer.returncode != 0:
            said = answer.stderr.decode(errors="replace").strip()
            raise ServerFailed(f"docker {' '.join(words)} failed: {said}")
        return answer.stdout.decode(errors="replace").strip()

    def add_image(self, name: str = IMAGE, *changes: str, more: Mapping[str, bytes] = {}) -> str:
        """It has an image with busybox in it; answers its name.

        `changes` are as in a Dockerfile ("USER 1000"); `more` are files for it.
        """
        options = [word for change in changes for word in ("--change", change)]
        self.docker("import", *options, "-", name, stdin=_root_file_system(more))
        return name

    def containers(self, *filters: str) -> list[str]:
        """The names of its containers, also of those that do not run."""
        words = [word for one in filters for word in ("--filter", one)]
        return self.docker("ps", "--all", "--format", "{{.Names}}", *words).split()

    def _end_dockerd(self) -> None:
        process, self._dockerd = self._dockerd, None
        if process is not None:
            _end(process)

    def _launch_containerd(self) -> None:
        """Of its own, so that containers go on if dockerd dies, as on a machine with systemd."""
        self._containerd = self._spawn(
            [
                _program("containerd"),
                *("--config", self._written("containerd.toml", _CONTAINERD)),
                *("--root", self.folder / "containerd"),
                *("--state", self._state),
                *("--address", self._state / "containerd.sock"),
            ]
        )
        _await((self._state / "containerd.sock").exists, "containerd")

    @property
    def _state(self) -> Path:
        return self.folder / "exec" / "containerd"

    def _launch(self, driver: str) -> None:
        self._dockerd = self._spawn(
            [
                _program("dockerd"),
                *("--host", self.url),
                *("--containerd", self._state / "containerd.sock"),
                *("--data-root", self._data),
                *("--exec-root", self.folder / "exec"),
                *("--pidfile", self.folder / "docker.pid"),
                # One of its own: else it would read that of the machine's engine.
                *("--config-file", self._written("daemon.json", _DOCKERD)),
                *("--storage-driver", driver),
                "--iptables=false",
                "--ip6tables=false",
                "--ip-masq=false",
                "--bridge=none",
            ]
        )

    def _spawn(self, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with(os.getpid(), signal.SIGTERM),
            )

    def _written(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _answers_in_time(self) -> bool:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline and self.pid is not None:
            if self._answers():
                return True
            time.sleep(_POLL_S)
        return False

    def _answers(self) -> bool:
        request = b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n"
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(5.0)
                link.connect(str(self.socket))
                link.sendall(request)
                return b" 200 " in link.recv(64)
        except OSError:
            return False

    @property
    def _log(self) -> Path:
        return self.folder / "dockerd.log"

    def _log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def _end_processes(self) -> None:
        """Kills what a killed dockerd left: its containerd, and all that this ran."""
        left = _trees(_processes_naming(str(self.folder / "exec")))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _await(lambda: not any(map(_runs, left)), "its processes to end")


class Registry:
    """A registry of its own on loopback, which asks for `USER` and `PASSWORD` if it is `closed`."""

    def __init__(self, *, closed: bool = False) -> None:
        self._program = _program("docker-registry")
        self.address = f"{HOST}:{free_port()}"
        self._folder = Path(tempfile.mkdtemp(prefix="longshore-registry-"))
        self._closed = closed
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """It answers, with the images that it has."""
        configuration = self._folder / "config.yml"
        configuration.write_text(json.dumps(self._configuration()))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "serve", configuration], stdout=log, stderr=log
            )
        _await(self._accepts, f"a registry at {self.address}")

    def stop(self) -> None:
        """It is down: pulls from it find nobody."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def push(self, engine: Engine, image: str, name: str) -> str:
        """It has an image of the engine, which then has it no more; answers its whole name."""
        whole = f"{self.address}/{name}"
        if self._closed:
            words = ["--username", USER, "--password-stdin", self.address]
            engine.docker("login", *words, stdin=PASSWORD.encode())
        engine.docker("tag", image, whole)
        engine.docker("push", "--quiet", whole)
        engine.docker("rmi", whole)
        return whole

    def _configuration(self) -> dict[str, object]:
        stored = {"filesystem": {"rootdirectory": str(self._folder / "images")}}
        configuration: dict[str, object] = {
            "version": "0.1",
            "log": {"level": "error"},
            "storage": stored,
            "http": {"addr": self.address},
        }
        if self._closed:
            users = self._folder / "users"
            users.write_text(_HTPASSWD)
            configuration["auth"] = {"htpasswd": {"realm": "longshore", "path": str(users)}}
        return configuration

    def _accepts(self) -> bool:
        host, _, port = self.address.partition(":")
        try:
            socket.create_connection((host, int(port)), 5.0).close()
        except OSError:
            return False
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process is over: asked to end, or killed if that takes too long."""
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _root_file_system(more: Mapping[str, bytes]) -> bytes:
    """A tar archive of a system that has busybox, under the name of each of its commands."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            _add(tar, folder, mode=mode, kind=tarfile.DIRTYPE)
        _add(tar, "bin/busybox", _busybox().read_bytes(), mode=0o755)
        for command in _busybox_commands():
            _add(tar, f"bin/{command}", kind=tarfile.SYMTYPE, target="busybox")
        _add(tar, "etc/passwd", b"root:x:0:0::/:/bin/sh\nsailor:x:1000:1000::/tmp:/bin/sh\n")
        for path, data in more.items():
            _add(tar, path, data, mode=0o755)
    return packed.getvalue()


def _add(
    tar: tarfile.TarFile,
    path: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode, entry.type, entry.linkname = len(data), mode, kind, target
    tar.addfile(entry, io.BytesIO(data))


@functools.cache
def _busybox_commands() -> Sequence[str]:
    listed = subprocess.run([_busybox(), "--list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name != "busybox"]


def _busybox() -> Path:
    for path in map(Path, _BUSYBOX):
        if path.exists():
            return path
    raise _missing("busybox")


def _program(name: str) -> Path:
    # Debian's own first: a client from elsewhere may be too new for Debian's engine.
    found = shutil.which(name, path=os.pathsep.join([*_SBIN, *os.get_exec_path()]))
    if found is None:
        raise _missing(name)
    return Path(found)


def _missing(program: str) -> MissingEngine:
    return MissingEngine(
        f"{program} is not installed: run `apt-get install {_PACKAGES[program]}` as root"
    )


def _refuse_missing() -> None:
    """Says what is missing before a test waits for an engine that cannot start."""
    for program in ("dockerd", "docker", "containerd"):
        _program(program)
    if os.geteuid() != 0:
        raise MissingEngine("only root can start a container engine: run these tests as root")
    if not Path("/sys/fs/cgroup").is_dir() or not os.listdir("/sys/fs/cgroup"):
        raise MissingEngine("there are no cgroups in /sys/fs/cgroup: an engine needs them")


def _processes_naming(text: str) -> set[int]:
    """The processes that have a text in their command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (path / "cmdline").read_bytes() and int(path.name) != os.getpid():
                found.add(int(path.name))
    return found


def _trees(roots: set[int]) -> set[int]:
    """These processes and all that they started."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if (stat := _stat(int(path.name))) is not None:
            children.setdefault(int(stat[1]), []).append(int(path.name))
    found, ahead = set(roots), list(roots)
    while ahead:
        new = [pid for pid in children.get(ahead.pop(), []) if pid not in found]
        found.update(new)
        ahead += new
    return found


def _runs(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def _stat(pid: int) -> list[str] | None:
    """The state of a process, its parent and so on; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def _unmount_below(folder: Path) -> None:
    """Nothing is mounted below a folder any more."""
    for place in reversed(list(_mounts_below(folder))):
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)


def _mounts_below(folder: Path) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            yield place


def _await(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ServerFailed(f"waited {START_DEADLINE_S:g} s for {what}")
        time.sleep(_POLL_S)
