"""`--reload`: new worker processes start whenever a source file changes.

The old ones drain while the new ones start: their jobs end, or are handed back after `drain_s`. If
the new ones cannot start, they say why, and no job runs until the next change.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from longshore.errors import LongshoreError
from longshore.run.ready import note
from longshore.run.supervisor import Supervisor

POLL_S = 0.5
_OTHERS = frozenset({"__pycache__", "node_modules", "site-packages"})

Seen = Mapping[str, tuple[int, int]]


class Reloader:
    """Keeps a supervisor on the newest code of a folder.

    It calls `on_ready` at the first start, and `on_start` after each, with the error or None.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        folder: Path,
        on_ready: Callable[[], None],
        *,
        on_start: Callable[[LongshoreError | None], None] = lambda trouble: None,
        say: Callable[[str], None] = note,
        poll_s: float = POLL_S,
    ) -> None:
        self._crew = supervisor
        self._folder = folder
        self._on_ready = on_ready
        self._on_start = on_start
        self._is_announced = False
        self._say = say
        self._poll_s = poll_s

    async def run(self) -> NoReturn:
        """Starts the supervisor, and again after each change."""
        seen = await asyncio.to_thread(sources, self._folder)
        while True:
            starting = asyncio.create_task(self._start())
            try:
                seen = await self._next_change(seen)
            finally:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            self._crew.dismiss()

    async def _start(self) -> None:
        try:
            await self._crew.start(first_alone=True)
        except LongshoreError as error:
            self._on_start(error)
            self._say(f"longshore: {error}; waiting for the next change")
            return
        self._on_start(None)
        if not self._is_announced:
            self._is_announced = True
            self._on_ready()

    async def _next_change(self, seen: Seen) -> Seen:
        while True:
            await asyncio.sleep(self._poll_s)
            now = await asyncio.to_thread(sources, self._folder)
            if changed := sorted({path for path, _ in seen.items() ^ now.items()}):
                self._say(f"longshore: {self._named(changed)} changed; starting anew")
                return now

    def _named(self, paths: list[str]) -> str:
        first = os.path.relpath(paths[0], self._folder)
        return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"


def sources(folder: Path) -> Seen:
    """The Python files under a folder, each with its time and size, which change when it does.

    Hidden folders, installed packages and virtual environments are left out.
    """
    seen = {}
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_own(here, name)]
        for path in (os.path.join(here, name) for name in names if name.endswith(".py")):
            with suppress(OSError):  # it is being replaced: the next look finds it
                found = os.stat(path)
                seen[path] = found.st_mtime_ns, found.st_size
    return seen


def _is_own(parent: str, name: str) -> bool:
    is_other = name.startswith(".") or name in _OTHERS
    return not is_other and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
