"""Real processes on real stores. Every story here runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.testing.processes import Process, await_true, settings

__all__ = ["Fleet", "await_true", "lines"]

APPS = Path(__file__).parent / "apps"
ANY = "127.0.0.1:0"
QUICK = {
    "lease_s": 1.5,
    "ping_s": 0.1,
    "renew_s": 0.2,
    "dispatcher_lease_s": 1.0,
    "takeover_margin_s": 1.0,
    "poll_s": 0.2,
    "promote_s": 0.1,
    "cancel_poll_s": 0.1,
    "expire_s": 0.3,
    "sweep_s": 0.5,
    "group_poll_s": 0.2,
}
QUICK_WORKER = {"broker_timeout_s": 0.2, "abort_grace_s": 0.5, "drain_s": 5}


class Fleet:
    """Dispatchers and workers of one test, over one store."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.processes: list[Process] = []
        self.apps: list[longshore.App] = []

    def start(self, role: str, *words: str) -> Process:
        """Starts a process and waits until it is ready."""
        log = self.folder / f"{role}-{len(self.processes)}.log"
        process = Process(role, *words, cwd=APPS, log=log)
        self.processes.append(process)
        return process.ready()

    def dispatcher(self, backend: str = ANY, frontend: str = ANY, **more: object) -> Process:
        """A dispatcher with short intervals."""
        words = ["--store", self.store, "--backend", backend, "--frontend", frontend]
        return self.start("dispatcher", *words, *settings(**{**QUICK, **more}))

    def worker(self, *dispatchers: Process, **more: object) -> Process:
        """A worker of the harbour app, with short intervals."""
        addresses = ",".join(one.facts["backend"] for one in dispatchers)
        words = ["--app", "harbour:app", "--connect", addresses]
        return self.start("worker", *words, *settings(**{**QUICK_WORKER, **more}))

    def client(self, dispatcher: Process) -> longshore.App:
        """An app that only submits: it has no jobs of its own."""
        app = longshore.App("client", connect=dispatcher.facts["frontend"])
        self.apps.append(app)
        return app

    def close(self) -> None:
        """Ends everything that was started."""
        for app in self.apps:
            app.close()
        for process in reversed(self.processes):
            process.close()


def lines(path: Path) -> list[str]:
    """What jobs noted in a file so far."""
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty, migrated store."""
    return str(request.getfixturevalue(f"migrated_{request.param}_url"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A dispatcher and a worker that the tests of one file share: only for tests that end none.

    The lease is long: on a slow machine too, no worker is taken for lost.
    """
    store = str(request.getfixturevalue(f"module_{request.param}_url"))
    fleet = Fleet(store, tmp_path_factory.mktemp("fleet"))
    fleet.worker(fleet.dispatcher(lease_s=20))
    yield fleet
    fleet.close()


@pytest.fixture
def fleet(store_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """A store, and whoever the test starts on it."""
    fleet = Fleet(store_url, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def counters() -> Iterator[Any]:
    """The app with the actors, connected to nobody yet."""
    sys.path.insert(0, str(APPS))
    module = importlib.import_module("counters")
    yield module
    module.app.close()
    sys.path.remove(str(APPS))
