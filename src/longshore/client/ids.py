"""Ids of new jobs."""

from __future__ import annotations

import os
import time
from typing import Final
from uuid import UUID

from longshore.model.ids import NOISE_BYTES, noises, timed_id

_AT_ONCE: Final = 256

_noise: list[bytes] = []
# A fork of this process must not make the ids that this one is going to make.
os.register_at_fork(after_in_child=_noise.clear)


def fresh_id() -> UUID:
    """An id that no other job has, and that sorts by the time it was made."""
    return timed_id(time.time_ns() // 1_000_000, _random())


def _random() -> bytes:
    """Asks the system for many random bytes at once: that takes no longer than a few."""
    try:
        return _noise.pop()
    except IndexError:
        first, *more = noises(os.urandom(NOISE_BYTES * _AT_ONCE))
        _noise.extend(more)
        return first
