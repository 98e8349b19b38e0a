"""Programs that share no code with Longshore, against real dispatchers over real sockets."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from longshore.testing.processes import Process
from tests.interop.programs.full_client import Client
from tests.system.conftest import Fleet, await_true, lines

PROGRAMS = Path(__file__).parent / "programs"
ANY = "127.0.0.1:0"
PERIOD_S = 0.1
QUICK_PLAIN = {"plain_expire_s": 0.5, "plain_probe_s": 0.3, "zeromq_heartbeat_s": 0.3}
END_S = 30.0


class Program:
    """One of the programs, running."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=file)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def said(self) -> str:
        """What it wrote to standard error so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """kill -9, and waits for its end. A stopped one dies too."""
        self.process.kill()
        self.process.wait(END_S)


class Harbour(Fleet):
    """Longshore's own processes, and the strangers that talk to them."""

    def __init__(self, store: str, folder: Path, compiled: Path) -> None:
        super().__init__(store, folder)
        self._compiled = compiled
        self._programs: list[Program] = []
        self._clients: dict[Process, Client] = {}

    def dispatcher(self, backend: str = ANY, frontend: str = ANY, **more: object) -> Process:
        """A dispatcher with short intervals."""
        return super().dispatcher(backend, frontend, **{**QUICK_PLAIN, **more})

    def again(self, dispatcher: Process, **more: object) -> Process:
        """Another dispatcher where this one was."""
        backend = dispatcher.facts["backend"].removeprefix("tcp://")
        frontend = dispatcher.facts["frontend"].removeprefix("tcp://")
        return self.dispatcher(backend, frontend, **more)

    # workers

    def _program(self, *words: str) -> Program:
        log = self.folder / f"program-{len(self._programs)}.log"
        self._programs.append(Program(list(words), log))
        return self._programs[-1]

    def plain_worker(self, language: str, at: Process, name: str = "") -> Program:
        """A plain worker in C or in Python."""
        backend = at.facts["backend"]
        if language == "c":
            return self._program(str(self._compiled), backend, f"{PERIOD_S * 1000:.0f}", name)
        script = str(PROGRAMS / "plain_worker.py")
        words = ["--period", str(PERIOD_S), *(["--name", name] if name else [])]
        return self._program(sys.executable, script, backend, *words)

    def full_worker(self, at: Process) -> Program:
        """A full worker in Python, by hand."""
        words = ["--period", str(PERIOD_S), at.facts["backend"]]
        return self._program(sys.executable, str(PROGRAMS / "full_worker.py"), *words)

    def workers(self, at: Process) -> list[str]:
        """The names of the live workers."""
        return [one["info"]["name"] for one in self.at(at).ask("LISTWORKERS") if one["alive"]]

    def await_workers(self, at: Process, number: int) -> None:
        """Waits until there are so many live workers."""
        await_true(lambda: len(self.workers(at)) == number, f"{number} workers")

    # clients

    def at(self, dispatcher: Process) -> Client:
        """A full client by hand, connected to this dispatcher."""
        if dispatcher not in self._clients:
            self._clients[dispatcher] = Client(dispatcher.facts["frontend"])
        return self._clients[dispatcher]

    def ask(self, at: Process, *jobs: str) -> list[list[str]]:
        """The answers that a plain client gets to these jobs, one after the other."""
        words = [sys.executable, str(PROGRAMS / "plain_client.py"), at.facts["frontend"], *jobs]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def submit(self, at: Process, data: str) -> UUID:
        """Submits a raw job; answers its id."""
        return self.at(at).submit("raw", data.encode(), raw=True)

    def ended(self, at: Process, id: UUID) -> dict[str, Any]:
        """The job as it is shown, once it has succeeded."""
        assert self.at(at).ended(id)["state"] == "succeeded"
        return self.at(at).show(id)

    def close(self) -> None:
        """Ends everything that was started."""
        for client in self._clients.values():
            client.close()
        for program in self._programs:
            program.kill()
        super().close()


class Hold:
    """A job that begins, and ends when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.started, self.until = folder / "started", folder / "until"
        self.job = f"hold {self.started} {self.until}"

    def starts(self, times: int = 1, within_s: float = 10.0) -> int:
        """Waits until it was begun so often; answers the number that the last one noted."""
        what = f"begun {times} times"
        await_true(lambda: len(lines(self.started)) >= times, what, within_s)
        return int(lines(self.started)[-1])

    def end(self) -> None:
        """Lets it end."""
        self.until.touch()


@pytest.fixture
def hold(tmp_path: Path) -> Hold:
    """A job of this test alone."""
    return Hold(tmp_path)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker in C, compiled. `make test` sees to it that there is a compiler."""
    compiler = shutil.which("cc")
    assert compiler is not None, "there is no C compiler; run scripts/setup compiler"
    made = tmp_path_factory.mktemp("compiled") / "plain_worker"
    source = str(PROGRAMS / "plain_worker.c")
    words = [compiler, "-Wall", "-Wextra", "-Werror", "-o", str(made), source, "-lzmq"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def harbour(migrated_sqlite_url: str, compiled: Path, tmp_path: Path) -> Iterator[Harbour]:
    """An empty SQLite store, and whoever the test starts on it."""
    harbour = Harbour(migrated_sqlite_url, tmp_path, compiled)
    yield harbour
    harbour.close()


@pytest.fixture
def postgres_harbour(
    migrated_postgres_url: str, compiled: Path, tmp_path: Path
) -> Iterator[Harbour]:
    """The same on PostgreSQL."""
    harbour = Harbour(migrated_postgres_url, tmp_path, compiled)
    yield harbour
    harbour.close()
