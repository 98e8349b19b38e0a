"""Which jobs a filter finds, newest first, and by which way to them.

Any filter can be answered by walking back through the numbers; that is quick if what is wanted is
common among the newest jobs. States that jobs leave again, and bad ends, also have indexes. There,
bad ends are in the order of numbers; what is owned must be sorted, but is never much. What is ready
or delayed may be much: so for these the walk is tried first, for a bounded stretch, then the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.model.job import JobFilter, JobState
from longshore.store.postgres_sql import CODES
from longshore.store.rows import clean

NEWEST: Final = 1000
"""How many jobs a bounded walk looks at."""

LISTED: Final = """
    j.id, j.number, j.kind, j.queue, j.target, j.priority, j.state, j.options, j.unique_key,
    j.created_at, j.run_at, j.started_at, j.ended_at, j.round, j.attempt, j.failures, j.crashes,
    j.token, j.worker, j.error
"""

_MAY_BE_MANY: Final = frozenset({JobState.READY, JobState.DELAYED})
_LAST_NUMBER: Final = 2**63 - 1

Statement = tuple[str, list[object]]


def listings(wanted: JobFilter) -> list[Statement]:
    """Statements to try in turn, until one fills the limit."""
    if any(text is not None and clean(text) != text for text in (wanted.kind, wanted.queue)):
        return []
    last = _LAST_NUMBER if wanted.before is None else min(wanted.before - 1, _LAST_NUMBER)
    values: list[object] = [max(0, wanted.limit), max(last, 0)]
    conditions = []
    for column in ("kind", "queue", "worker"):
        value = getattr(wanted, column)
        if value is not None:
            values.append(value)
            conditions.append(f"j.{column} = ${len(values)}")
    states = [CODES[state] for state in dict.fromkeys(wanted.states)]
    if not states or JobState.SUCCEEDED in wanted.states:
        return [(_walk(states, conditions), values)]
    by_index = (_by_index(states, conditions), values)
    if _MAY_BE_MANY.isdisjoint(wanted.states):
        return [by_index]
    return [(_walk(states, conditions, NEWEST), values), by_index]


def _walk(states: Sequence[int], conditions: Sequence[str], most: int | None = None) -> str:
    in_state = [f"j.state IN ({', '.join(map(str, states))})"] if states else []
    return f"""
SELECT j.*
FROM (
    SELECT id, number FROM longshore.job_number
    WHERE number <= $2 ORDER BY number DESC {f"LIMIT {most}" if most else ""}
) AS n
CROSS JOIN LATERAL (
    SELECT {LISTED} FROM longshore.job AS j
    WHERE {" AND ".join(["j.id = n.id", *in_state, *conditions])} OFFSET 0
) AS j
ORDER BY n.number DESC LIMIT $1
"""


def _by_index(states: Sequence[int], conditions: Sequence[str]) -> str:
    """States are written out, so that the planner can tell which of the indexes hold them."""
    parts = [
        f"""(
    SELECT {LISTED} FROM longshore.job AS j
    WHERE {" AND ".join([f"j.state = {state}", "j.number <= $2", *conditions])}
    ORDER BY j.number DESC LIMIT $1
)"""
        for state in states
    ]
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS j ORDER BY number DESC LIMIT $1"
