"""Ids of new jobs."""

from __future__ import annotations

import os
import time
from typing import Final
from uuid import UUID

from longshore.model.ids import make_id

_BYTES: Final = 10
_AT_ONCE: Final = 256

_noise: list[bytes] = []
# A fork of this process must not make the ids that this one is going to make.
os.register_at_fork(after_in_child=_noise.clear)


def fresh_id() -> UUID:
    """An id that no other job has, and that sorts by the time it was made."""
    return make_id(time.time_ns() // 1_000_000, _random())


def _random() -> bytes:
    """Asks the system for many random bytes at once: that takes no longer than a few."""
    try:
        return _noise.pop()
    except IndexError:
        drawn = os.urandom(_BYTES * _AT_ONCE)
        first, *more = (drawn[at : at + _BYTES] for at in range(0, len(drawn), _BYTES))
        _noise.extend(more)
        return first
