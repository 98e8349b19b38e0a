"""The processes of a run: each with a name, started again and again, ended by their ids."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from longshore.testing.chaos.history import WORKER_VARIABLE
from longshore.testing.servers import PostgresServer, die_with

RUN_VARIABLE = "CHAOS_RUN"
"""Marks all processes of a run, and what they start: by it the last ones are found."""
END_S = 10.0
_EVERYTHING = psutil.RLIM_INFINITY


class Part:
    """One process of a fleet, or rather: its place, and who has it now."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.started = 0
        self._command = list(command)
        self._env = dict(env)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving: list[subprocess.Popen[bytes]] = []

    @property
    def sort(self) -> str:
        """What it is: dispatcher, worker, …"""
        return self.name.partition("-")[0]

    @property
    def label(self) -> str:
        """By which its bodies know it: another one after each start."""
        return f"{self.name}.{self.started}"

    def start(self) -> None:
        """It runs, unless it does already. It dies with this process."""
        if self.is_running:
            return
        self._see_off()  # the old one may hold its port until it has ended
        self.started += 1
        env = {**os.environ, **self._env, WORKER_VARIABLE: self.label}
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=env,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with(os.getpid(), signal.SIGKILL),
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def pids(self, *, children: bool) -> list[int]:
        """Its process id first, then those of all that it started; none if it does not run."""
        if self._process is None or not self.is_running:
            return []
        own = self._process.pid
        return [own, *(_descendants(own) if children else ())]

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)
            self._process = None

    def leave(self) -> None:
        """Asks it to stop in good order. Another one may start meanwhile."""
        if self._process is not None and self.is_running:
            self._process.terminate()
            self._leaving.append(self._process)
            self._process = None

    @property
    def ended_by_itself(self) -> int | None:
        """Its exit code, if it is not running although nobody ended it."""
        return None if self._process is None or self.is_running else self._process.returncode

    def close(self) -> None:
        """Ends it, whatever it does."""
        self.leave()
        self._see_off()

    def _see_off(self) -> None:
        """Those that were asked to stop have ended."""
        deadline = time.monotonic() + END_S
        for process in self._leaving:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
                continue
            process.kill()
            process.wait(END_S)
        self._leaving.clear()


class Database:
    """The PostgreSQL of a run, as a part of its fleet."""

    name = sort = label = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    ended_by_itself = None

    def start(self) -> None:
        """It accepts connections."""
        self.server.start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.server.pid is not None

    def pids(self, *, children: bool) -> list[int]:
        """The postmaster first, then the server's other processes."""
        own = self.server.pid
        return [] if own is None else [own, *(_descendants(own) if children else ())]

    def kill(self) -> None:
        """It goes down as if it had crashed."""
        signal_all(self.pids(children=True), signal.SIGCONT)
        self.server.stop("immediate")

    def leave(self) -> None:
        """It goes down in good order."""
        signal_all(self.pids(children=True), signal.SIGCONT)
        self.server.stop("fast")

    def close(self) -> None:
        """It is down and its folder is gone."""
        signal_all(self.pids(children=True), signal.SIGCONT)
        self.server.close()


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal to those that still run."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def forbid_growth(pids: Iterable[int], *, forbidden: bool) -> None:
    """No file of these processes can grow, or all can again."""
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            _, most = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (0 if forbidden else _EVERYTHING, most))


def end_marked(run: str) -> list[int]:
    """Kills what is left of a run, found by the mark in its environment; answers whom."""
    left = list(_marked(run))
    signal_all(left, signal.SIGKILL)
    return left


def _marked(run: str) -> Iterator[int]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == run:
                yield process.pid


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
