"""Marks of processes: texts by which any process of this machine can tell whether one has ended."""

from __future__ import annotations

import os
import re
import socket
from functools import cache
from pathlib import Path


def process_mark(pid: int | None = None) -> str:
    """A text that no other process has: machine, number, start; empty if the system hides them."""
    number = os.getpid() if pid is None else pid
    try:
        return f"{place()} {number} {_started(number)[0]}"
    except (OSError, ValueError, IndexError):
        return ""


def has_ended(mark: str) -> bool:
    """Whether the process of this mark, on this machine, has ended; False if in doubt."""
    found = re.fullmatch(r"(.+) ([1-9]\d{0,9}) (\d{1,19})", mark)
    try:
        if found is None or found[1] != place():
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
def place() -> str:
    """Where a process number names one process: this host, boot and namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> tuple[int, str]:
    """When a process started, in ticks since the machine did, and its state."""
    # The second field is the program's name in brackets, and may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[19]), fields[0]
