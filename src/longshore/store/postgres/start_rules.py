"""Which ready jobs may start now: what holds jobs back although slots are free.

A submit asks for the queue of each new job that has a slot, an end for that of each job of a group
that it lets start (`groups_sql.WAKE`), a claim for each lane that it reads, and `explain` for one
job, to say why. All of them ask by SQL that stands within their own
statements, so a rule costs no round trip. Nothing starts from a paused queue. Jobs of kinds and
queues for which there are rules of limits, only claims start (`limited_claims`): submits and ends
make them ready, and the general claim stops before the first of them.

The gate. A rule must hold for all that starts once it is set, also for what a transaction starts
that is under way. So each statement that asks takes the table `limit_gate` in a mode that lets all
others in (`FOR KEY SHARE` of its rows, of which it has none), until its transaction ends. Who sets
such a rule locks that table (`limits_sql.LOCK_GATE`) and so waits for them. PostgreSQL locks tables
before it takes the snapshot of a statement: what comes after sees the rule, and what came before
has committed what it started. Backups that only read do not meet the gate.

A claim that passes over a ready job must not move the cursor past it (see `cursors`). Lanes that
are left out whole do not move it.
"""

from __future__ import annotations

from typing import Final

from longshore.core.why import HeldBack
from longshore.store.postgres.states import READY

HAS_RULES: Final = """coalesce(
            (SELECT true FROM longshore.limit_gate AS g WHERE g.id = 0 FOR KEY SHARE),
            (SELECT true FROM longshore.limit_rule AS r
                WHERE r.of_lanes AND r.pattern > '' LIMIT 1),
            false
        )"""
"""SQL for whether there are rules for kinds or queues. It is the same for all rows."""


def may_start(queue: str, kind: str) -> str:
    """SQL for whether jobs of a queue and a kind may start; both are SQL for its name."""
    return f"({_is_open(queue)} AND NOT {_is_ruled(queue, kind)})"


def _is_ruled(queue: str, kind: str) -> str:
    """SQL for whether there is a rule of limits for a queue or a kind."""
    return f"""CASE WHEN {HAS_RULES} THEN EXISTS (
            SELECT FROM longshore.limit_rule AS r
            CROSS JOIN (VALUES ('kind=' || {kind}), ('queue=' || {queue})) AS k (key)
            WHERE r.of_lanes AND r.pattern > '' AND CASE WHEN right(r.pattern, 1) = '*'
                THEN starts_with(k.key, left(r.pattern, -1)) ELSE r.pattern = k.key END
        ) ELSE false END"""


def lane_is_ruled(lane: str) -> str:
    """SQL for whether there is a rule of limits for the queue or the kind of a lane."""
    return f"""CASE WHEN {HAS_RULES} THEN EXISTS (
            SELECT FROM ({lane_named(lane)}) AS n WHERE {_is_ruled("n.queue", "n.kind")}
        ) ELSE false END"""


def lane_named(lane: str) -> str:
    """SQL that selects the queue and the kind of a lane that has ready jobs.

    If the lane is not stored, because it was forgotten at the moment its job came, one of its jobs
    names them.
    """
    return f"""(SELECT k.queue, k.kind FROM longshore.lane AS k WHERE k.hash = {lane})
            UNION ALL
            (SELECT k.queue, k.kind FROM longshore.job AS k
                WHERE k.state = {READY} AND k.blocked_on IS NULL AND k.lane = {lane} LIMIT 1)
            LIMIT 1"""


def lane_may_start(lane: str) -> str:
    """SQL for whether jobs of a lane may start; `lane` is SQL for its hash.

    If the lane is not stored, because it was forgotten at the moment its job came, one of its jobs
    names the queue. Whether there are rules of limits for it says `lane_is_ruled`.
    """
    return _is_open(f"""coalesce(
            (SELECT k.queue FROM longshore.lane AS k WHERE k.hash = {lane}),
            (SELECT k.queue FROM longshore.job AS k
                WHERE k.state = {READY} AND k.blocked_on IS NULL AND k.lane = {lane} LIMIT 1)
        )""")


def _is_open(queue: str) -> str:
    return f"{_paused(queue)} IS NOT TRUE"


def held_back(queue: str) -> str:
    """SQL for what holds a job of this queue back, a `HeldBack`; NULL if nothing does."""
    return f"CASE WHEN {_paused(queue)} THEN '{HeldBack.PAUSED_QUEUE}' END"


def _paused(queue: str) -> str:
    return f"(SELECT q.paused FROM longshore.queue AS q WHERE q.name = {queue})"
