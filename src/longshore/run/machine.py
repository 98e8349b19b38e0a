"""What a process needs of its machine: clock, name, event loop, log, parent."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil

from longshore.core.resources import parse
from longshore.errors import Unavailable
from longshore.executors.process_marks import has_ended as has_ended
from longshore.executors.process_marks import process_mark as process_mark

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


def own_address(towards: str) -> str:
    """The address of this machine on the way to another; empty if there is no way."""
    there = urlsplit(towards if "://" in towards else f"tcp://{towards}")
    if not there.hostname or not there.port:
        return ""
    try:
        kind, _, _, _, address = socket.getaddrinfo(
            there.hostname, there.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as link:
            link.connect(address)  # sends nothing
            return str(link.getsockname()[0])
    except OSError:
        return ""


def machine_target() -> str:
    """The system and processor of this machine, like linux-x86_64."""
    return f"{platform.system()}-{platform.machine()}".lower()


def machine_resources(given: str, share: int = 1) -> dict[str, float]:
    """What the jobs of a worker share: what was given, and else what this machine has.

    Rounded down, so that machines of one sort say the same. Of several workers each has a share.
    """
    memory = psutil.virtual_memory().total // share
    step = 1 << max(0, memory.bit_length() - 4)
    own = {"cpu": float(max(1, cpu_count() // share)), "memory": float(memory // step * step)}
    return {**own, **parse(given)}


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
