"""What a run was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from msgspec import Struct

from bench.sql import ask_one
from longshore import __version__
from longshore.testing.servers import PostgresServer


class Machine(Struct, frozen=True):
    """Named well enough to measure on the like."""

    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    postgres: str
    longshore: str
    commit: str

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gb:.0f} GB, Linux {self.kernel}, "
            f"Python {self.python}, {self.postgres}, Longshore {self.longshore} ({self.commit})"
        )


def this_machine(server: PostgresServer) -> Machine:
    """The one this runs on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 1e9, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        postgres="PostgreSQL "
        + ask_one(server.url(), "SHOW server_version")["server_version"].split()[0],
        longshore=__version__,
        commit=_said(["git", "describe", "--always", "--dirty"]) or "no git",
    )


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _said(command: list[str]) -> str:
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
        )
    except OSError:
        return ""
    return answer.stdout.strip()
