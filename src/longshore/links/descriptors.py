"""File descriptors: how many a process may have, and whether it is about to run out of them.

Without a free descriptor a listening socket cannot accept, and the kernel tells it of the waiting
connection again and again: its thread spins in silence. So sockets stop listening before that.
"""

from __future__ import annotations

import os
import resource
from typing import Final

WANTED: Final = 65_536
"""A process asks for so many, if its hard limit allows it."""
MOST_SPARE: Final = 64
LEAST_SPARE: Final = 4
MOST_BACKLOG: Final = 100
_OPEN: Final = "/dev/fd"


def raise_limit() -> None:
    """Raises the soft limit of this process towards the hard one; never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int | None:
    """How many descriptors this process may have; None if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def backlog() -> int:
    """How many connections may wait to be accepted; few, if the limit is low."""
    most = limit()
    return MOST_BACKLOG if most is None else max(LEAST_SPARE, min(MOST_BACKLOG, most // 8))


def are_short() -> bool:
    """Whether so few are left that the process needs them for itself."""
    most = limit()
    if most is None:
        return False
    spare = max(LEAST_SPARE, min(MOST_SPARE, most // 20))
    try:
        return most - len(os.listdir(_OPEN)) < spare
    except OSError:
        # It takes a descriptor to count them, and there is none.
        return True
