"""Nodes of a group on PostgreSQL, counted anew while the group runs: see `core.recounting`.

Who counts first locks the nodes, by id, and counts in a later statement. Whoever tells such a node
something meanwhile waits for its lock, and is not counted: either it has not committed yet, and the
job is live or its note is there, or it has, and then it has told the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.dependencies import Marks
from longshore.core.recounting import Others, recounted
from longshore.store.postgres import groups_sql
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.growth_sql import COUNT_ANEW
from longshore.store.postgres.states import ENDED, STATES

Counters = dict[UUID, tuple[int, Marks]]
"""What nodes have left to hear of, and what they were told."""

_HOLD: Final = """
SELECT n.*
FROM unnest($1::uuid[]) AS i (job)
CROSS JOIN LATERAL (
    SELECT job, unmet, marks, open, scope_marks, expanded FROM longshore.node
    WHERE job = i.job FOR UPDATE
) AS n
"""
_NOTED: Final = """EXISTS (
    SELECT FROM longshore.unsettled AS u WHERE u.job = {job} AND NOT u.is_early AND {also}
)"""
IS_AMONG: Final = "CASE WHEN {place} < 8 * length({bits}) THEN get_bit({bits}, {place}) = 1 END"
"""SQL for whether the bit of a place is set."""
_OTHERS: Final = f"""
SELECT i.job, {{other}} AS other, j.state, n.open > 0 AS has_open, n.scope_marks AS marks,
    {{is_on_its_way}} AS is_on_its_way,
    coalesce({IS_AMONG.format(place="n.place", bits="$2::bytea")}, false) AS opens_again,
    count(*) AS how_many
FROM unnest($1::uuid[]) AS i (job)
CROSS JOIN LATERAL ({{others}}) AS n
CROSS JOIN LATERAL (SELECT state FROM longshore.job WHERE id = n.job OFFSET 0) AS j
GROUP BY 1, 2, 3, 4, 5, 6, 7
"""
_PARENTS: Final = _OTHERS.format(
    other="NULL::uuid",
    others="""
    SELECT p.*
    FROM (SELECT parent FROM longshore.edge WHERE child = i.job OFFSET 0) AS e
    CROSS JOIN LATERAL (
        SELECT job, place, open, scope_marks FROM longshore.node WHERE job = e.parent OFFSET 0
    ) AS p
""",
    is_on_its_way=_NOTED.format(
        job="n.job", also="(u.after_child IS NULL OR i.job > u.after_child)"
    ),
)
"""What these nodes depend on. A note tells those that come after its `after_child`."""
_MEMBERS: Final = _OTHERS.format(
    other="CASE WHEN n.open > 0 OR n.scope_marks <> 0 THEN n.job END",
    others="""
    SELECT m.*
    FROM (SELECT group_id FROM longshore.node WHERE job = i.job OFFSET 0) AS s
    CROSS JOIN LATERAL (
        SELECT job, place, open, scope_marks FROM longshore.node
        WHERE group_id = s.group_id AND scope = i.job OFFSET 0
    ) AS m
""",
    is_on_its_way=_NOTED.format(job="n.job", also="u.after_child IS NULL"),
)
"""What is in the scopes of these nodes. A note tells the scope first of all."""
_ENDED: Final = f"""
SELECT i.job
FROM unnest($1::uuid[]) AS i (job)
CROSS JOIN LATERAL (SELECT state FROM longshore.job WHERE id = i.job OFFSET 0) AS j
WHERE j.state >= {ENDED} AND NOT {_NOTED.format(job="i.job", also="true")}
"""
"""Those of these nodes that were told of their own ends."""


async def hold_nodes(tx: Transaction, jobs: Iterable[UUID]) -> dict[UUID, asyncpg.Record]:
    """Locks these nodes; waits for those who are counting them down."""
    wanted = sorted(set(jobs))
    return {row["job"]: row for row in await tx.fetch(_HOLD, wanted)} if wanted else {}


async def count_parents(tx: Transaction, jobs: Collection[UUID], again: bytes = b"") -> Counters:
    """The right counters of these nodes, which are locked.

    What is at the places in `again` is going to run again.
    """
    return await _counted(tx, _PARENTS, jobs, again, {})


async def count_members(
    tx: Transaction,
    jobs: Collection[UUID],
    again: bytes = b"",
    known: Mapping[UUID, tuple[int, Marks]] = {},
) -> Counters:
    """What these nodes, which are locked, should have of their scopes.

    Inner ones come first: what they should have counts for those around them. So does what is
    `known` of others.
    """
    return await _counted(tx, _MEMBERS, jobs, again, known)


async def _counted(
    tx: Transaction,
    query: str,
    jobs: Collection[UUID],
    again: bytes,
    known: Mapping[UUID, tuple[int, Marks]],
) -> Counters:
    rows: dict[UUID, list[asyncpg.Record]] = {job: [] for job in jobs}
    for row in await tx.fetch(query, list(jobs), again) if jobs else ():
        rows[row["job"]].append(row)
    found = dict(known)
    for job, others in rows.items():
        found[job] = recounted(_others(row, found) for row in others)
    return {job: found[job] for job in rows}


def _others(row: asyncpg.Record, counted: Counters) -> Others:
    has_open, marks = row["has_open"], Marks(row["marks"])
    if row["other"] in counted:
        left, marks = counted[row["other"]]
        has_open = left > 0
    told = row["is_on_its_way"], row["opens_again"], row["how_many"]
    return Others(STATES[row["state"]], has_open, marks, *told)


async def write_counters(tx: Transaction, counters: Counters) -> None:
    """Gives nodes, which are locked, these counters."""
    columns = [(job, unmet, int(marks)) for job, (unmet, marks) in counters.items()]
    if columns:
        await tx.fetch(groups_sql.COUNT_DOWN, *zip(*columns, strict=True))


async def write_scopes(
    tx: Transaction, scopes: Mapping[UUID, tuple[int, Marks]], opened: Collection[UUID] = ()
) -> set[UUID]:
    """Gives nodes, which are locked, these counters of their scopes; some are `opened` again.

    It answers those of them that were told of their own ends.
    """
    if not scopes:
        return set()
    ended = {row["job"] for row in await tx.fetch(_ENDED, list(scopes))}.difference(opened)
    columns: Sequence[tuple[object, ...]] = [
        (job, left, int(marks), job in ended) for job, (left, marks) in scopes.items()
    ]
    await tx.fetch(COUNT_ANEW, *zip(*columns, strict=True))
    return ended
