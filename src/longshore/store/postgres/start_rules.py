"""Which ready jobs may start now: what holds jobs back although slots are free.

A submit asks for the queue of each new job that has a slot, an end for that of each job of a group
that it lets start (`groups_sql.WAKE`), a claim for each lane that it reads, and `explain` for one
job, to say why. All of them ask by SQL that stands within their own
statements, so a rule costs no round trip. There is one rule so far: nothing starts from a paused
queue.

A claim that passes over a ready job must not move the cursor past it (see `cursors`). Lanes that
are left out whole do not move it.
"""

from __future__ import annotations

from longshore.core.why import HeldBack
from longshore.store.postgres.states import READY


def may_start(queue: str) -> str:
    """SQL for whether jobs of a queue may start; `queue` is SQL for its name."""
    return f"{_paused(queue)} IS NOT TRUE"


def lane_may_start(lane: str) -> str:
    """SQL for whether jobs of a lane may start; `lane` is SQL for its hash.

    If the lane is not stored, because it was forgotten at the moment its job came, one of its jobs
    names the queue.
    """
    return may_start(f"""coalesce(
            (SELECT k.queue FROM longshore.lane AS k WHERE k.hash = {lane}),
            (SELECT k.queue FROM longshore.job AS k
                WHERE k.state = {READY} AND k.blocked_on IS NULL AND k.lane = {lane} LIMIT 1)
        )""")


def held_back(queue: str) -> str:
    """SQL for what holds a job of this queue back, a `HeldBack`; NULL if nothing does."""
    return f"CASE WHEN {_paused(queue)} THEN '{HeldBack.PAUSED_QUEUE}' END"


def _paused(queue: str) -> str:
    return f"(SELECT q.paused FROM longshore.queue AS q WHERE q.name = {queue})"
