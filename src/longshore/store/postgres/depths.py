"""How many jobs each lane holds, and since when the oldest ready one waits (PostgreSQL).

The counts come from the tally. The age comes from the index `job_ready`: for each priority that a
lane has, its first few jobs. So a lane with a million ready jobs costs as much as one with ten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
from longshore.store.postgres.connections import ConnectionPool
from longshore.store.postgres.states import READY, STATES

_DEPTHS: Final = """
SELECT l.hash, l.queue, l.kind, l.target, coalesce(q.paused, false), t.state, t.n
FROM longshore.lane AS l
JOIN (
    SELECT lane, state, sum(delta)::bigint AS n FROM longshore.tally GROUP BY lane, state
) AS t ON t.lane = l.hash AND t.n > 0
LEFT JOIN longshore.queue AS q ON q.name = l.queue
"""

_OF_LANE: Final = f"j.state = {READY} AND j.blocked_on IS NULL AND j.lane = i.lane"
_OLDEST: Final = f"""
SELECT i.lane, min(o.at) AS at
FROM unnest($1::bigint[]) AS i (lane)
CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (SELECT ~j.priority AS urgency FROM longshore.job AS j
        WHERE {_OF_LANE} ORDER BY ~j.priority LIMIT 1)
        UNION ALL
        SELECT n.urgency FROM level CROSS JOIN LATERAL (
            SELECT ~j.priority AS urgency FROM longshore.job AS j
            WHERE {_OF_LANE} AND ~j.priority > level.urgency ORDER BY ~j.priority LIMIT 1
        ) AS n
    )
    SELECT f.at FROM (SELECT urgency FROM level LIMIT {MOST_PRIORITIES}) AS u
    CROSS JOIN LATERAL (
        SELECT greatest(j.created_at, j.run_at) AS at FROM longshore.job AS j
        WHERE {_OF_LANE} AND ~j.priority = u.urgency ORDER BY j.rank, j.number LIMIT {OLDEST_OF}
    ) AS f
) AS o
GROUP BY i.lane
"""
_BEHIND: Final = f"""
SELECT lane, count(*) AS n FROM (
    SELECT lane FROM longshore.job WHERE state = {READY} AND blocked_on <> '{NEW}'
    ORDER BY blocked_on, lane LIMIT {MOST_BEHIND}
) AS behind
GROUP BY lane
"""


async def depths(reading: ConnectionPool) -> list[LaneDepth]:
    """Every lane that holds jobs."""
    counts: defaultdict[tuple[Lane, bool], Counter[JobState]] = defaultdict(Counter)
    for hash, queue, kind, target, paused, state, n in await reading.fetch(_DEPTHS):
        counts[Lane(hash, queue, kind, target), paused][STATES[state]] = n
    ready = {lane.hash: of[JobState.READY] for (lane, _), of in counts.items()}
    aged = nlargest(
        MOST_AGED_LANES, (lane for lane, n in ready.items() if n), key=ready.__getitem__
    )
    rows = await reading.fetch(_OLDEST, aged) if aged else []
    oldest = {row["lane"]: row["at"] for row in rows}
    behind = {row["lane"]: row["n"] for row in await reading.fetch(_BEHIND)}
    return [
        LaneDepth(lane, of, paused, oldest.get(lane.hash), behind.get(lane.hash, 0))
        for (lane, paused), of in counts.items()
    ]
