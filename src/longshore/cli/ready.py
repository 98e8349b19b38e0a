"""How a process says that it has begun to serve."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from msgspec import Struct

from longshore.cli.show import json_line, note, print_text
from longshore.errors import ConfigError


class Ready(Struct, frozen=True):
    """A process that has begun to serve, and what to say of it: in words and as JSON."""

    words: str
    facts: dict[str, Any]


class Announcer:
    """Says that a process is ready: a line, a JSON document, a byte on a descriptor."""

    def __init__(self, role: str, descriptor: int | None, as_json: bool) -> None:
        self._role = role
        self._descriptor = _checked(descriptor)
        self._as_json = as_json

    def __call__(self, ready: Ready) -> None:
        """Says it."""
        note(f"longshore {self._role} ready: {ready.words}")
        if self._as_json:
            facts = {"ready": self._role, "pid": os.getpid(), **ready.facts}
            print_text(json_line(facts))
        if self._descriptor is not None:
            with suppress(BrokenPipeError):  # whoever wanted to know has given up waiting
                os.write(self._descriptor, b"1")
            os.close(self._descriptor)


def _checked(descriptor: int | None) -> int | None:
    """The descriptor, if it is open and not one that everybody uses."""
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
