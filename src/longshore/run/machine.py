"""What a process needs of its machine: clock, name, event loop, log, parent."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import platform
import re
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from longshore.core.text import visible_entry
from longshore.errors import Unavailable

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks. `now` goes on while the machine sleeps, as leases do."""

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.clock_gettime(_CLOCK)

    def utc(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)


def process_name() -> str:
    """The name of this process in histories and logs: its machine and its number there."""
    return f"{socket.gethostname()}:{os.getpid()}"


def process_mark(pid: int | None = None) -> str:
    """A text that no other process has: machine, number, start; empty if the system hides them."""
    number = os.getpid() if pid is None else pid
    try:
        return f"{_place()} {number} {_started(number)[0]}"
    except (OSError, ValueError, IndexError):
        return ""


def has_ended(mark: str) -> bool:
    """Whether the process of this mark, on this machine, has ended; False if in doubt."""
    found = re.fullmatch(r"(.+) ([1-9]\d{0,9}) (\d{1,19})", mark)
    try:
        if found is None or found[1] != _place():
            return False
        # Where /proc hides what others run, a signal still says whether there is such a process.
        os.kill(int(found[2]), 0)
        started, state = _started(int(found[2]))
    except ProcessLookupError:
        return True
    except (OSError, ValueError, IndexError):
        return False
    return started != int(found[3]) or state in "ZX"


@cache
def _place() -> str:
    """Where a process number names one process: this host, boot and namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> tuple[int, str]:
    """When a process started, in ticks since the machine did, and its state."""
    # The second field is the program's name in brackets, and may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[19]), fields[0]


def machine_target() -> str:
    """The system and processor of this machine, like linux-x86_64."""
    return f"{platform.system()}-{platform.machine()}".lower()


def cpu_count() -> int:
    """How many CPUs this process may use."""
    allowed = getattr(os, "sched_getaffinity", lambda pid: range(os.cpu_count() or 1))
    return len(allowed(0))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop if it is installed."""
    _collect_less()
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def _collect_less() -> None:
    """Makes garbage collection rarer: the many objects of a busy process form no cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


class _Entries(logging.Formatter):
    """Formats entries so that text from outside cannot forge a line of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = visible_entry(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return visible_entry(super().formatException(ei))


def log_to_stderr(level: str) -> None:
    """Sends the log to standard error, a line for each entry, with times in UTC."""
    formatter = _Entries(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def die_with(parent: int) -> None:
    """Makes the kernel stop this process (SIGTERM) when its parent dies."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    refuse_orphan(parent)


def refuse_orphan(parent: int) -> None:
    """Raises if the parent died before the kernel could be asked to watch it."""
    if os.getppid() != parent:
        raise Unavailable(
            f"the process that started this worker ({parent}) is gone; start it again"
        )
