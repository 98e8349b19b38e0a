"""Child processes of the benchmark: each in a group of its own, none outlives us, none hangs us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

END_S = 5.0

_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 15
_LOOK_S = 0.5
_LIBC = ctypes.CDLL(None, use_errno=True)


class ChildFailed(RuntimeError):
    """A child did not do what was asked in time; the message ends with what it wrote last."""


class Child:
    """One command, run until it ends or its `with` block does; its children end with it.

    Start it from a thread that outlives it: the kernel kills it when that thread ends.
    """

    def __init__(self, command: Sequence[str | Path], cwd: Path | None = None) -> None:
        self.name = " ".join(Path(word).name for word in command[:4])
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
        )

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group."""
        return self._process.pid

    def await_line(self, timeout_s: float) -> str:
        """The next line it writes to its standard output."""
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise self._failure(f"said nothing within {timeout_s:g} s")
        line = stdout.readline().decode(errors="replace")
        if not line:
            raise self._failure(f"ended with code {self._process.wait(END_S)}")
        return line.strip()

    def await_end(self, timeout_s: float, beside: Sequence[Child] = ()) -> str:
        """What it wrote to its standard output, once it has ended well.

        Should one of those beside it end before it, that is the failure.
        """
        deadline = time.monotonic() + timeout_s
        while (output := self._output_at_end()) is None:
            for other in beside:
                other.check_running()
            if time.monotonic() > deadline:
                raise self._failure(f"did not end within {timeout_s:g} s")
        if self._process.returncode:
            raise self._failure(f"ended with code {self._process.returncode}")
        return output.decode(errors="replace")

    def close(self) -> None:
        """It is over with all of its group: asked first, killed after a while."""
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def check_running(self) -> None:
        """Raises if it has ended."""
        if (code := self._process.poll()) is not None:
            raise self._failure(f"ended with code {code}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _output_at_end(self) -> bytes | None:
        try:
            return self._process.communicate(timeout=_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            return None

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _failure(self, what: str) -> ChildFailed:
        return ChildFailed("\n".join([f"{self.name}: {what}; it wrote last:", *self._tail()]))

    def _tail(self) -> list[str]:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        return [f"    {line}" for line in text.splitlines()[-_TAIL_LINES:]]


def await_true(happened: Callable[[], bool], child: Child, timeout_s: float) -> None:
    """Looks again and again until it happened; raises when the child ends or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        child.check_running()
        if time.monotonic() > deadline:
            raise ChildFailed(f"{child.name}: not ready within {timeout_s:g} s")
        time.sleep(0.02)


def _die_with(parent: int) -> Callable[[], None]:
    """For the child between fork and exec: be killed when the thread that started it ends."""

    def in_child() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
