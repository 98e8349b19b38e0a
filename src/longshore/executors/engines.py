"""Where the engine of containers listens."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from typing import Final

USUAL_SOCKET: Final = "/var/run/docker.sock"
NO_ENGINE: Final = "off"
_ANSWER_S: Final = 5.0


def engine_of(setting: str) -> str:
    """The address of the engine: as set, else `DOCKER_HOST`, else the usual socket.

    Empty if there is none: a socket that nobody set counts only if an engine answers there.
    """
    if setting == NO_ENGINE:
        return ""
    if chosen := setting or os.environ.get("DOCKER_HOST", ""):
        return chosen
    return f"unix://{USUAL_SOCKET}" if _answers(USUAL_SOCKET) and _has_client() else ""


def _answers(path: str) -> bool:
    """Whether this process may connect to an engine there: one that nobody chose must be usable."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_ANSWER_S)
            link.connect(path)
    except OSError:
        return False
    return True


def _has_client() -> bool:
    return find_spec("aiodocker") is not None
