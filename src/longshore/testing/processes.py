"""Real `longshore` processes for tests and measurements: started, awaited, killed by their id."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

READY_S = 30.0
END_S = 30.0


class NotReady(RuntimeError):
    """A process did not become ready; the message holds what it wrote."""


def command(*words: str) -> list[str]:
    """The command line of a `longshore` command, run by this interpreter."""
    return [sys.executable, "-m", "longshore", *words]


def run(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Runs a `longshore` command to its end."""
    return subprocess.run(
        command(*words),
        env={**os.environ, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class Process:
    """A `longshore` process that stays: `up`, `dispatcher` or `worker`.

    `facts` is what it said of itself when it became ready (addresses, store, …).
    """

    def __init__(
        self,
        role: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log: Path | None = None,
    ) -> None:
        self.role = role
        self.facts: dict[str, Any] = {}
        self._log_path = log
        self._log = log.open("ab") if log else None
        self._process = subprocess.Popen(
            command(role, *words, "--json"),
            env={**os.environ, **(env or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ready(self, timeout_s: float = READY_S) -> Self:
        """Waits until it says that it is ready."""
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise NotReady(f"{self.role} was not ready after {timeout_s:g} s{self.said()}")
        line = stdout.readline()
        if not line:
            code = self._process.wait(END_S)
            raise NotReady(f"{self.role} ended with code {code}{self.said()}")
        self.facts = json.loads(line)
        return self

    def said(self) -> str:
        """What it wrote to its log so far."""
        return "\n" + self._log_path.read_text() if self._log_path else ""

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and waits for its end."""
        self._process.kill()
        self._process.wait(END_S)

    def terminate(self, timeout_s: float = END_S) -> int:
        """Asks it to drain, and waits for its end; answers its exit code."""
        self._process.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = END_S) -> int:
        """Waits for its end; answers its exit code."""
        return self._process.wait(timeout_s)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it, whatever it does: asked first, killed after a while."""
        if self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process.stdout:
            self._process.stdout.close()
        if self._log:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def settings(**values: object) -> list[str]:
    """Settings as the command line takes them."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def close_all(processes: Iterable[Process]) -> None:
    """Ends them all, the last one first."""
    for process in reversed(list(processes)):
        process.close()


def await_true(happened: Callable[[], bool], what: str, timeout_s: float = END_S) -> None:
    """Waits for something that another process does, by looking again and again."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: did not happen within {timeout_s:g} s")
        time.sleep(0.01)
