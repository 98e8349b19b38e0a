"""What this process runs on: its clock, its name, its event loop, its log, its parent."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from longshore.errors import Unavailable

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1


class SystemClock:
    """The machine's clocks. `now` goes on while the machine sleeps, as leases do."""

    def __init__(self) -> None:
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.clock_gettime(self._clock)

    def utc(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)


def process_name() -> str:
    """How this process is called in histories and logs: its machine and its number there."""
    return f"{socket.gethostname()}:{os.getpid()}"


def machine_target() -> str:
    """What machine this is, like linux-x86_64."""
    return f"{platform.system()}-{platform.machine()}".lower()


def cpu_count() -> int:
    """How many CPUs this process may use."""
    allowed = getattr(os, "sched_getaffinity", lambda pid: range(os.cpu_count() or 1))
    return len(allowed(0))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop where there is one."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def log_to_stderr(level: str) -> None:
    """Sends what processes log to standard error, a line each, with times in UTC."""
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def die_with(parent: int) -> None:
    """Has the kernel end this process in good order (SIGTERM) when its parent dies."""
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
