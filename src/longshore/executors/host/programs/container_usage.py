"""Measures what a container uses while it runs: engines tell it of no container that has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

from aiodocker import Docker, DockerError

from longshore.executors.host.programs.engine import CONNECTION_LOST
from longshore.model.usage import Usage

FIRST_LOOK_S: Final = 0.25
LOOK_EVERY_S: Final = 1.0
_NOT_SHOWN: Final = ("total_inactive_file", "inactive_file")
"""Pages of files that the kernel drops when it needs room: of cgroups of version 1, and of 2."""


class ContainerUsage:
    """The most that a container used so far; None if it ended before the first look."""

    def __init__(self, docker: Docker, name: str) -> None:
        self._docker = docker
        self._name = name
        self.most: Usage | None = None

    @contextlib.contextmanager
    def measured(self) -> Iterator[ContainerUsage]:
        """Looks now and then while the block runs. A look that fails is left out."""
        looking = asyncio.create_task(self._look())
        try:
            yield self
        finally:
            looking.cancel()

    async def _look(self) -> None:
        pause_s = FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_EVERY_S
            with contextlib.suppress(DockerError, *CONNECTION_LOST):
                path, given = f"containers/{self._name}/stats", {"stream": "0", "one-shot": "1"}
                stats = await self._docker._query_json(path, params=given)
                self.most = joined(self.most, usage_in(stats))


def usage_in(stats: dict[str, Any]) -> Usage | None:
    """What an engine says of a container; None if the container runs no more."""
    memory, cpu = stats.get("memory_stats") or {}, stats.get("cpu_stats") or {}
    if not memory.get("usage"):
        return None
    details = memory.get("stats") or {}
    cached = next((details[key] for key in _NOT_SHOWN if key in details), 0)
    used = max(int(memory["usage"]) - int(cached), int(memory.get("max_usage") or 0) - int(cached))
    nanoseconds = (cpu.get("cpu_usage") or {}).get("total_usage") or 0
    return Usage(max(0, used), nanoseconds / 1e9)


def joined(before: Usage | None, now: Usage | None) -> Usage | None:
    """The most of two looks."""
    if before is None or now is None:
        return before or now
    return Usage(max(before.memory_bytes, now.memory_bytes), max(before.cpu_s, now.cpu_s))
