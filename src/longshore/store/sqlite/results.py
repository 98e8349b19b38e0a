"""The results that attempts refer to, on SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from longshore.model.attempt import Attempt
from longshore.model.job import JobState
from longshore.payload.references import (
    BESIDE,
    EVERY,
    MAX_REFERENCED_BYTES,
    RESULT,
    NodeResult,
    Results,
    references,
)
from longshore.store.filling import Wanted, by_job, fill, wanted_results
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Snapshot

_FOUND: Final = """SELECT v.column1, v.column2, j.state, coalesce(length(j.result), 0), j.number
    FROM {rows} AS v CROSS JOIN job AS own ON own.id = v.column1
    CROSS JOIN node ON node.group_id = own.group_id AND node.key = v.column3"""
_SIZES: Final = Bulk(f"{_FOUND} CROSS JOIN job AS j ON j.number = node.job", 3)
_ELEMENT_SIZES: Final = Bulk(
    f"""{_FOUND} CROSS JOIN node AS one INDEXED BY node_scope
    ON one.group_id = node.group_id AND one.scope = node.place AND one.scope IS NOT NULL
    CROSS JOIN job AS j ON j.number = one.job ORDER BY one.place""",
    3,
)
_OWN_KEY: Final = """SELECT node.key FROM job CROSS JOIN node ON node.job = job.number
    WHERE job.id = ?"""
_REFERENCE: Final = RESULT.encode()
"""What arguments hold that refer to a result, or to those of a map."""


def with_results(tx: Snapshot, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts with the results that their arguments refer to."""
    return fill(attempts, by_job(_found(tx, wanted_results(attempts))))


def referenced(tx: Snapshot, job: UUID, args: bytes) -> Results:
    """The results that the arguments of one job refer to.

    Raises `InvalidArguments` if a reference is malformed.
    """
    if _REFERENCE not in args:
        return {}
    wanted = dict.fromkeys((job, one.wanted) for one in references(args))
    return by_job(_found(tx, list(wanted))).get(job, {})


def _found(tx: Snapshot, wanted: Wanted) -> Iterator[tuple[UUID, str, NodeResult]]:
    """What the referenced jobs have come to; no results where they take too much."""
    taken: dict[UUID, int] = {}
    for job, key, state, size, number in _sizes(tx, wanted):
        id = UUID(bytes=job)
        taken[id] = taken.get(id, 0) + size
        result = None
        if taken[id] <= MAX_REFERENCED_BYTES:
            query = "SELECT result FROM job WHERE number = ?"
            result = tx.execute(query, (number,)).fetchone()[0]
        yield id, key, NodeResult(JobState(state), size, result)


def _sizes(tx: Snapshot, wanted: Wanted) -> Iterator[tuple[bytes, str, str, int, int]]:
    single: list[Row] = []
    every: list[Row] = []
    for job, key in wanted:
        whole = whole_key(tx, job, key)
        rows = every if key.endswith(EVERY) else single
        rows.append((job.bytes, key, whole.removesuffix(EVERY)))
    for bulk, rows in ((_SIZES, single), (_ELEMENT_SIZES, every)):
        for text, values in bulk.pieces(rows):
            yield from tx.connection.execute(text, values).fetchall()


def whole_key(tx: Snapshot, job: UUID, key: str) -> str:
    """The key in its group of what this job names, which may be one that was added with it."""
    if not key.startswith(BESIDE):
        return key
    own = tx.execute(_OWN_KEY, (job.bytes,)).fetchone()
    prefix = own[0].rpartition("/")[0] if own else ""
    name = key.removeprefix(BESIDE)
    return f"{prefix}/{name}" if prefix else name
