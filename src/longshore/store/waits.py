"""What every SQL store keeps of the waiting of a job beside its history, as columns (`READ`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import structs

from longshore.core.waits import waited
from longshore.model.job import Job
from longshore.model.waited import Kept, Pause, Stay
from longshore.store.rows import moment

COLUMNS: Final = ("blocked_on", "blocked_at", "stays", "pauses")
"""The key that it is behind, since when; the times that it was, and pauses, as JSON."""

_stays = msgspec.json.Decoder(list[tuple[str, int, int]])
_pauses = msgspec.json.Decoder(list[tuple[bool, int, int | None]])


def with_waits(row: dict[str, Any], read: Callable[[dict[str, Any]], Job], now: datetime) -> Job:
    """The job of a row, with how long it waited for what until now."""
    blocked_on, blocked_at, stays, pauses = [row.pop(name) for name in COLUMNS]
    kept = [Stay(key, moment(a), moment(b)) for key, a, b in _stays.decode(stays or "[]")]
    if blocked_on is not None and blocked_at is not None:
        kept.append(Stay(blocked_on, blocked_at))
    paused = sorted(_pauses.decode(pauses), key=lambda one: one[1])
    of_pauses = tuple(
        Pause(is_group, moment(since), None if until is None else moment(until))
        for is_group, since, until in paused
    )
    job = read(row)
    return structs.replace(job, waited=waited(job, Kept(tuple(kept), of_pauses), now))
