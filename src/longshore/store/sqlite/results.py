"""The results that attempts refer to, on SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from longshore.model.attempt import Attempt
from longshore.model.job import JobState
from longshore.payload.references import MAX_REFERENCED_BYTES, NodeResult
from longshore.store.filling import Wanted, by_job, fill, wanted_results
from longshore.store.sqlite.sql import Bulk
from longshore.store.sqlite.transaction import Snapshot

_SIZES: Final = Bulk(
    """SELECT v.column1, v.column2, j.state, coalesce(length(j.result), 0), j.number
    FROM {rows} AS v CROSS JOIN job AS own ON own.id = v.column1
    CROSS JOIN node ON node.group_id = own.group_id AND node.key = v.column2
    CROSS JOIN job AS j ON j.number = node.job""",
    2,
)


def with_results(tx: Snapshot, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts with the results that their arguments refer to."""
    return fill(attempts, by_job(_found(tx, wanted_results(attempts))))


def _found(tx: Snapshot, wanted: Wanted) -> Iterator[tuple[UUID, str, NodeResult]]:
    """What the referenced jobs have come to; no results where they take too much."""
    taken: dict[UUID, int] = {}
    for text, values in _SIZES.pieces([(job.bytes, key) for job, key in wanted]):
        for job, key, state, size, number in tx.connection.execute(text, values).fetchall():
            id = UUID(bytes=job)
            taken[id] = taken.get(id, 0) + size
            result = None
            if taken[id] <= MAX_REFERENCED_BYTES:
                query = "SELECT result FROM job WHERE number = ?"
                result = tx.execute(query, (number,)).fetchone()[0]
            yield id, key, NodeResult(JobState(state), size, result)
