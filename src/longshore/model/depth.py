"""How many jobs a lane holds, as metrics show it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from longshore.model.job import JobState
from longshore.model.worker import Lane

OLDEST_OF: Final = 10
"""So many jobs of a priority are looked at, those next in line."""
MOST_PRIORITIES: Final = 20
"""So many priorities of a lane are looked at, the highest first."""
MOST_AGED_LANES: Final = 1_000
"""So many lanes have an `oldest_at`, those with the most ready jobs."""


class LaneDepth(Struct, frozen=True):
    """The jobs of one lane, by state. Ended jobs count until they are pruned.

    `oldest_at` is since when the longest-waiting of its first ready jobs waits: since its submit,
    or since it was due.
    """

    lane: Lane
    counts: Mapping[JobState, int]
    paused: bool = False
    oldest_at: datetime | None = None
