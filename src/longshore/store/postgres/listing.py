"""SQL for the jobs that a filter finds, newest first.

A walk back through the numbers answers any filter. It is quick if the wanted jobs are common among
the newest. States that jobs leave again, and bad ends, also have indexes. The index of bad ends is
in the order of numbers. Owned jobs must be sorted, but they are never many. Ready or delayed jobs
may be many: for these a short walk comes first, then the index.

`store.listing` bounds how far a walk goes, through all numbers or those of a bad end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from longshore.core.lifecycle import MAY_BE_MANY
from longshore.model.job import JobFilter
from longshore.store.listing import (
    Contents,
    contents,
    most_looked_at,
    must_walk,
    page_size,
)
from longshore.store.postgres.states import CODES, IN_ORDER, READY
from longshore.store.rows import clean

NEWEST: Final = 1000
"""How many jobs a first, short walk looks at."""

LISTED: Final = """
    j.id, j.number, j.kind, j.queue, j.target, j.priority, j.state, j.options, j.unique_key,
    j.created_at, j.run_at, j.started_at, j.ended_at, j.round, j.attempt, j.failures, j.crashes,
    j.token, j.worker, j.error, j.group_id, j.deadline_at
"""

LAST: Final = "SELECT max(number) AS number FROM longshore.job_number WHERE number <= $1"

FLOOR: Final = """
SELECT max(n.number) AS number
FROM unnest($1::bigint[]) AS i (number)
CROSS JOIN LATERAL (
    SELECT number, id FROM longshore.job_number
    WHERE number <= i.number ORDER BY number DESC LIMIT 1
) AS n
CROSS JOIN LATERAL (
    SELECT FROM longshore.job WHERE id = n.id AND created_at < $2 OFFSET 0
) AS j
"""
"""Of jobs near these numbers, the newest that came before a time."""

AT_TIMES: Final = """
SELECT i.number, n.created_at
FROM unnest($1::bigint[]) AS i (number)
CROSS JOIN LATERAL (
    SELECT j.created_at
    FROM (
        SELECT id FROM longshore.job_number WHERE number <= i.number ORDER BY number DESC LIMIT 1
    ) AS n
    CROSS JOIN LATERAL (SELECT created_at FROM longshore.job WHERE id = n.id OFFSET 0) AS j
) AS n
ORDER BY i.number
"""
"""When the jobs at these numbers came, or the next older ones."""


class Listing(NamedTuple):
    """A statement with its values; if it walks, `stopped` asks where the walk had to stop.

    `stopped` takes the first two values. Where several walks are `merged`, one may have stopped
    although the page is full.
    """

    sql: str
    stopped: str | None
    values: list[object]
    merged: bool = False


class _Conditions:
    """Conditions on a job j, and the values of their statement."""

    def __init__(self, values: list[object]) -> None:
        self.values = values
        self.conditions: list[str] = []

    def add(self, condition: str, *values: object) -> None:
        """Adds a condition, in which {} stands for each value."""
        places = range(len(self.values) + 1, len(self.values) + len(values) + 1)
        self.values += values
        self.conditions.append(condition.format(*(f"${place}" for place in places)))

    def add_contents(self, wanted: Contents) -> None:
        """Adds what columns must contain."""
        for label in wanted.labels:
            self.add("position({}::bytea IN j.options) > 0", label)
        if wanted.error is not None:
            self.add("position({}::bytea IN j.error) > 0", wanted.error)
        for key in wanted.keys:
            self.add("position({}::bytea IN j.args) > 0", key)
        for forms in wanted.values:
            either = " OR ".join(["position({}::bytea IN j.args) > 0"] * len(forms))
            self.add(f"({either})", *forms)

    def add_times(self, wanted: JobFilter) -> None:
        """Adds when a job came, and how long it ran."""
        if wanted.since is not None:
            self.add("j.created_at >= {}", wanted.since)
        if wanted.until is not None:
            self.add("j.created_at < {}", wanted.until)
        if wanted.slower_s is not None:
            ran = "extract(epoch FROM coalesce(j.ended_at, statement_timestamp()) - j.started_at)"
            self.add(f"{ran} >= {{}}::float8", wanted.slower_s)


def listings(wanted: JobFilter, last: int, floor: int = 0) -> list[Listing]:
    """Statements to try in turn, until one fills the limit.

    None finds a job past `last`, or up to `floor`.
    """
    inside = contents(wanted)
    texts = (wanted.kind, wanted.queue)
    if inside is None or any(text is not None and clean(text) != text for text in texts):
        return []
    with_values = _Conditions([last, floor, page_size(wanted)])
    values, conditions, add = with_values.values, with_values.conditions, with_values.add
    for column in ("kind", "queue", "worker"):
        if (value := getattr(wanted, column)) is not None:
            add(f"j.{column} = {{}}", value)
    with_values.add_contents(inside)
    with_values.add_times(wanted)
    states = [CODES[state] for state in dict.fromkeys(wanted.states)]
    most = most_looked_at(wanted)
    if wanted.ids:
        if wanted.group is not None:
            add("j.group_id = {}", wanted.group)
        values.append([*dict.fromkeys(wanted.ids)])
        source = f"unnest(${len(values)}::uuid[]) AS n (job)"
        return [Listing(_among(source, states, conditions), None, values)]
    if wanted.group is not None:
        values.append(wanted.group)
        source = f"(SELECT job FROM longshore.node WHERE group_id = ${len(values)}) AS n"
        return [Listing(_among(source, states, conditions), None, values)]
    if must_walk(wanted):
        return [Listing(_walk(states, conditions, most), _stopped(most), values)]
    by_index = Listing(
        _by_index(states, conditions, most), _stopped_in(states, most), values, len(states) > 1
    )
    if MAY_BE_MANY.isdisjoint(wanted.states):
        return [by_index]
    return [Listing(_walk(states, conditions, NEWEST), None, values), by_index]


def _walk(states: Sequence[int], conditions: Sequence[str], most: int) -> str:
    in_state = [f"j.state IN ({', '.join(map(str, states))})"] if states else []
    return f"""
SELECT j.*
FROM (
    SELECT id, number FROM longshore.job_number
    WHERE number <= $1 AND number > $2 ORDER BY number DESC LIMIT {most}
) AS n
CROSS JOIN LATERAL (
    SELECT {LISTED} FROM longshore.job AS j
    WHERE {" AND ".join(["j.id = n.id", *in_state, *conditions])} OFFSET 0
) AS j
ORDER BY n.number DESC LIMIT $3
"""


def _among(source: str, states: Sequence[int], conditions: Sequence[str]) -> str:
    """SQL for those of the jobs with the ids `n.job` that a source gives."""
    in_state = [f"j.state IN ({', '.join(map(str, states))})"] if states else []
    bounds = ["j.id = n.job", "j.number <= $1", "j.number > $2"]
    return f"""
SELECT j.*
FROM {source}
CROSS JOIN LATERAL (
    SELECT {LISTED} FROM longshore.job AS j
    WHERE {" AND ".join([*bounds, *in_state, *conditions])} OFFSET 0
) AS j
ORDER BY j.number DESC LIMIT $3
"""


def _stopped(most: int) -> str:
    return f"""
SELECT number FROM longshore.job_number
WHERE number <= $1 AND number > $2 ORDER BY number DESC LIMIT 1 OFFSET {most - 1}
"""


def _by_index(states: Sequence[int], conditions: Sequence[str], most: int) -> str:
    """States are written out, so that the planner can tell which of the indexes hold them."""
    parts = []
    for state in states:
        source, also = "longshore.job", [*_in_stretch(state), *conditions]
        if state in IN_ORDER:
            also = [*conditions] or ["true"]
            source = f"""(
        SELECT {LISTED} FROM longshore.job AS j
        WHERE {" AND ".join(_in_stretch(state))} ORDER BY j.number DESC LIMIT {most}
    )"""
        parts.append(f"""(
    SELECT {LISTED} FROM {source} AS j
    WHERE {" AND ".join(also)}
    ORDER BY j.number DESC LIMIT $3
)""")
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS j ORDER BY number DESC LIMIT $3"


def _stopped_in(states: Sequence[int], most: int) -> str | None:
    parts = [
        f"""(
    SELECT j.number FROM longshore.job AS j
    WHERE {" AND ".join(_in_stretch(state))} ORDER BY j.number DESC LIMIT 1 OFFSET {most - 1}
)"""
        for state in states
        if state in IN_ORDER
    ]
    return (
        f"SELECT max(number) AS number FROM ({' UNION ALL '.join(parts)}) AS j" if parts else None
    )


def _in_stretch(state: int) -> list[str]:
    stretch = [f"j.state = {state}", "j.number <= $1", "j.number > $2"]
    # Two indexes hold the ready jobs: the planner takes both only if the condition names both.
    either = ["(j.blocked_on IS NULL OR j.blocked_on IS NOT NULL)"] if state == READY else []
    return [*stretch, *either]
