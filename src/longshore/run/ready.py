"""How a process tells that it has begun to serve."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from longshore.core.text import visible
from longshore.errors import ConfigError
from longshore.model.worker import Pool, slot_words


def note(text: str) -> None:
    """Prints a line for the user, on standard error."""
    with suppress(OSError):
        print(visible(text), file=sys.stderr, flush=True)


def at_once(pools: Mapping[str, int]) -> str:
    """How many jobs a worker with these pools runs at once, in words."""
    counts = [f"{count:,} {_unit(pool, count)}" for pool, count in pools.items() if count]
    if not counts:
        return "runs no jobs"
    *most, last = counts
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"runs up to {listed} at once"


def _unit(pool: str, count: int) -> str:
    one, many = ("async job", "async jobs") if pool == Pool.COROUTINE else slot_words(pool)
    return one if count == 1 else many


class Ready(Struct, frozen=True):
    """How a process that has begun to serve is described, in words and as JSON."""

    words: str
    facts: dict[str, Any]


Announce = Callable[[Ready], None]
"""Says that a process is ready."""


class Announcer:
    """Says that a process is ready: in a line, as facts for JSON, by a byte on a descriptor."""

    def __init__(
        self,
        role: str,
        descriptor: int | None,
        on_facts: Callable[[dict[str, Any]], None] | None = None,
        say: Callable[[str], None] = note,
    ) -> None:
        self._role = role
        self._say = say
        self._descriptor = _checked(descriptor)
        self._on_facts = on_facts

    def __call__(self, ready: Ready) -> None:
        """Says it."""
        self._say(f"longshore {self._role} ready: {ready.words}")
        if self._on_facts is not None:
            self._on_facts({"ready": self._role, "pid": os.getpid(), **ready.facts})
        if self._descriptor is not None:
            with suppress(BrokenPipeError):  # the reader has given up waiting
                os.write(self._descriptor, b"1")
            os.close(self._descriptor)


def _checked(descriptor: int | None) -> int | None:
    """The descriptor, if it is open and not a standard one."""
    if descriptor is None:
        return None
    try:
        os.fstat(descriptor)
    except OSError:
        raise ConfigError(
            f"--ready-fd {descriptor} is not open; pass a descriptor that the caller opened"
        ) from None
    if descriptor < 3:
        raise ConfigError(f"--ready-fd {descriptor} is a standard one; pass another")
    os.set_inheritable(descriptor, False)
    return descriptor
