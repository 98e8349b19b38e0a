"""Kills what dead host processes left running.

Every program has a variable in its environment that names the host that started it, and what it
starts has that too. A program that takes the variable away is not found here; while its host lives
it is, as a descendant (`host.programs.process_tree`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

from longshore.executors.process_marks import has_ended

HOST_VARIABLE: Final = "LONGSHORE_WORKER_PROCESS"
_PASSES: Final = 200
_PAUSE_S: Final = 0.01

_log = logging.getLogger(__name__)


def kill_left_behind(mark: str) -> int:
    """Kills what the host of this mark left running, if it has ended; answers how many."""
    return _kill_all(lambda found: found == mark) if mark and has_ended(mark) else 0


def kill_orphans() -> int:
    """Kills what any dead host of this machine left running; answers how many."""
    return _kill_all(has_ended)


def _kill_all(is_left: Callable[[str], bool]) -> int:
    """Repeats until none is found: a process may have started another meanwhile."""
    killed: set[int] = set()
    for _ in range(_PASSES):
        found = [pid for pid, mark in _marked() if is_left(mark)]
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(_PAUSE_S)
    if killed:
        _log.warning("killed %d processes that a dead process of a worker left", len(killed))
    return len(killed)


def _marked() -> Iterator[tuple[int, str]]:
    """The live processes that a host started, and the mark of that host."""
    prefix = f"{HOST_VARIABLE}=".encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            for entry in environment_of(int(name)):
                if entry.startswith(prefix):
                    yield int(name), entry[len(prefix) :].decode("utf-8", "replace")


def environment_of(pid: int) -> list[bytes]:
    """The environment with which a process was started; empty if it is gone, or not ours to see."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
