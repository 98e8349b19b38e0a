"""Jobs that hold unique keys on PostgreSQL, and of which it is not certain that they will run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from longshore.model.group import GroupState
from longshore.model.job import Submitted
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.states import GROUP_CODES

_STAGING: Final = f"""
SELECT id FROM longshore.job_group
WHERE id = ANY($1::uuid[]) AND state = {GROUP_CODES[GroupState.STAGING]}
"""


async def staging_of(tx: Transaction, holders: Sequence[asyncpg.Record]) -> set[UUID]:
    """The groups of these rows of `HOLDERS` that are not whole yet."""
    groups = {row["group_id"] for row in holders if row["group_id"] is not None}
    rows = await tx.fetch(_STAGING, list(groups)) if groups else []
    return {row["id"] for row in rows}


def holder_of(row: asyncpg.Record, staging: set[UUID]) -> Submitted | UUID:
    """The job that holds a key; or its group, while that may still come to nothing."""
    group: UUID | None = row["group_id"]
    if group is not None and group in staging:
        return group
    return Submitted(row["id"], row["number"], existing=True)
