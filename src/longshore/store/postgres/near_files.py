"""The claim for lanes of jobs with files: a job goes to a worker that has them at hand.

Which files a job needs stands in its arguments, which no statement looks into. So a statement
before the claim reads the first jobs, without a lock, and the core says who has their files. The
claim then places by job. If other jobs have come first meanwhile, these go by the order of slots.
Claims of other lanes, and those that nobody has files for, use `CLAIM`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core.placement import kept_slots
from longshore.model.worker import Claim, FilesAtHand, SessionKey
from longshore.payload.needed_files import MAX_ARGS_BYTES, MOST_PARENTS, Needing, wishes
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.cursors import Range
from longshore.store.postgres.kept_turns import CLAIM_KEEPING, PLACED
from longshore.store.postgres.sql import CLAIM, CLAIM_FORM
from longshore.store.postgres.states import READY

_FIRST: Final = f"""
SELECT l.*
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::smallint[])
    AS i (lane, urgency, rank, number, last_urgency)
CROSS JOIN LATERAL (
    SELECT j.id, j.kind, j.args, j.attempt, ~j.priority AS urgency, j.rank, j.number,
        CASE WHEN j.group_id IS NOT NULL THEN ARRAY(
            SELECT e.parent FROM longshore.edge AS e WHERE e.child = j.id LIMIT {MOST_PARENTS}
        ) END AS parents
    FROM longshore.job AS j
    WHERE j.state = {READY} AND j.blocked_on IS NULL
        AND j.lane = i.lane
        AND (~j.priority, j.rank, j.number) > (i.urgency, i.rank, i.number)
        AND ~j.priority <= i.last_urgency
        AND octet_length(j.args) <= {MAX_ARGS_BYTES}
    ORDER BY ~j.priority, j.rank, j.number
    LIMIT $6
) AS l
ORDER BY l.urgency, l.rank, l.number
LIMIT $6
"""
_NEAR: Final = """,
            (
                SELECT array_position($1::uuid[], w.worker)
                FROM unnest($13::uuid[], $14::uuid[]) AS w (job, worker) WHERE w.job = j.id
            ) AS kept"""
CLAIM_NEAR: Final = CLAIM_FORM.format(
    last=_NEAR, also=", l.kept", placing=PLACED, place="(SELECT places FROM placed)[l.turn]"
)

Near = Mapping[UUID, UUID]
"""The workers that have the files of jobs."""
NOBODY: Final[Near] = MappingProxyType({})


class Way(NamedTuple):
    """How to claim: which statement, with which values beside the usual ones, and who is near."""

    statement: str
    values: tuple[object, ...] = ()
    near: Near = NOBODY


async def way_of(
    tx: Transaction, claim: Claim, ranges: Sequence[Range], slots: Sequence[SessionKey]
) -> Way:
    """How to serve a claim that reads these ranges."""
    if claim.at_hand is None:
        return Way(CLAIM_KEEPING if claim.keeps else CLAIM)
    near = await _near_files(tx, claim.at_hand, ranges, slots)
    return Way(CLAIM_NEAR, ([*near], [*near.values()]), near) if near else Way(CLAIM)


async def _near_files(
    tx: Transaction, at_hand: FilesAtHand, ranges: Sequence[Range], slots: Sequence[SessionKey]
) -> dict[UUID, UUID]:
    """Which of these workers have the files of the first jobs that a claim will find."""
    rows = await tx.fetch(_FIRST, *zip(*ranges, strict=True), len(slots))
    parents = {row["id"]: row["parents"] or () for row in rows}
    needing = [Needing(row["id"], row["kind"], row["args"], row["attempt"]) for row in rows]
    found = wishes(at_hand, needing, slots, parents.__getitem__)
    pairs = zip(needing, found, strict=True)
    return {job.id: worker for job, worker in pairs if worker is not None}


def near_slots(
    near: Near, jobs: Sequence[UUID], slots: Sequence[SessionKey]
) -> Sequence[SessionKey]:
    """The slots in the order of these jobs, of which there are no more."""
    return kept_slots([near.get(job) for job in jobs], slots) if near else slots
