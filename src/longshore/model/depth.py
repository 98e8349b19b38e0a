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

MOST_BEHIND: Final = 10_000
"""So many of the jobs behind keys, of all lanes together, are counted."""


class LaneDepth(Struct, frozen=True):
    """The jobs of one lane, by state. Ended jobs count until they are pruned.

    `oldest_at` is since when the longest-waiting of its first ready jobs waits: since its submit,
    or since it was due.
    """

    lane: Lane
    counts: Mapping[JobState, int]
    paused: bool = False
    oldest_at: datetime | None = None
    behind: int = 0
    """How many of its ready jobs wait behind keys, of the first `MOST_BEHIND` that do."""


class LaneView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lane that holds jobs, as it is shown: `counts` by state, ended jobs until they are pruned.

    `held_back` says what keeps its ready jobs from running (`core.blocking`); empty if none is
    ready. `oldest_at` is as in `LaneDepth`, `paused_at` as in `QueueView`.
    """

    queue: str
    kind: str
    target: str = ""
    paused: bool = False
    counts: dict[str, int] = {}
    oldest_at: datetime | None = None
    held_back: str = ""
    paused_at: datetime | None = None
