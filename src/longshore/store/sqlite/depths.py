"""How many jobs each lane holds, and since when the oldest ready one waits (SQLite).

The counts come from the tally. The age comes from the index `job_ready`: for each priority that a
lane has, its first few jobs. So a lane with a million ready jobs costs as much as one with ten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from heapq import nlargest
from typing import Final

from longshore.core.fairness import NEW
from longshore.model.depth import (
    MOST_AGED_LANES,
    MOST_BEHIND,
    MOST_PRIORITIES,
    OLDEST_OF,
    LaneDepth,
)
from longshore.model.job import JobState
from longshore.model.worker import Lane
from longshore.store.rows import moment
from longshore.store.sqlite.transaction import Snapshot

_DEPTHS: Final = """
SELECT lane.hash, lane.queue, lane.kind, lane.target, coalesce(queue.paused, 0), tally.state,
    tally.n
FROM lane JOIN tally ON tally.lane = lane.hash AND tally.n > 0
LEFT JOIN queue ON queue.name = lane.queue
"""
_LEVEL: Final = """
SELECT priority FROM job INDEXED BY job_ready
WHERE state = 'ready' AND blocked_on IS NULL AND lane = ? AND priority < ?
ORDER BY priority DESC LIMIT 1
"""
_FIRST: Final = f"""
SELECT min(at) FROM (
    SELECT max(created_at, coalesce(run_at, 0)) AS at FROM job INDEXED BY job_ready
    WHERE state = 'ready' AND blocked_on IS NULL AND lane = ? AND priority = ?
    ORDER BY rank, number LIMIT {OLDEST_OF})
"""
_BEHIND: Final = f"""
SELECT lane, count(*) FROM (
    SELECT lane FROM job INDEXED BY job_blocked
    WHERE state = 'ready' AND blocked_on IS NOT NULL AND blocked_on <> '{NEW}'
    LIMIT {MOST_BEHIND})
GROUP BY lane
"""
_ABOVE_ALL: Final = 1 << 62


def depths(tx: Snapshot) -> list[LaneDepth]:
    """Every lane that holds jobs."""
    counts: defaultdict[tuple[Lane, bool], Counter[JobState]] = defaultdict(Counter)
    for hash, queue, kind, target, paused, state, n in tx.execute(_DEPTHS):
        counts[Lane(hash, queue, kind, target), bool(paused)][JobState(state)] = n
    ready = {lane.hash: of[JobState.READY] for (lane, _), of in counts.items()}
    aged = nlargest(
        MOST_AGED_LANES, (lane for lane, n in ready.items() if n), key=ready.__getitem__
    )
    oldest = {lane: _oldest(tx, lane) for lane in aged}
    behind = dict(tx.execute(_BEHIND).fetchall())
    return [
        LaneDepth(lane, of, paused, oldest.get(lane.hash), behind.get(lane.hash, 0))
        for (lane, paused), of in counts.items()
    ]


def _oldest(tx: Snapshot, lane: int) -> datetime | None:
    """Since when the longest-waiting of the first ready jobs of a lane waits."""
    found: list[int] = []
    priority = _ABOVE_ALL
    for _ in range(MOST_PRIORITIES):
        level = tx.execute(_LEVEL, (lane, priority)).fetchone()
        if level is None:
            break
        [priority] = level
        found.append(tx.execute(_FIRST, (lane, priority)).fetchone()[0])
    return moment(min(found)) if found else None
