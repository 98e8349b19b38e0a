"""What all verbs of the PostgreSQL store do that change jobs one by one: lock, decide, apply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import asyncpg

from longshore.core.effects import Change
from longshore.store.postgres import keeper_sql as sql
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.finish import change_row
from longshore.store.postgres.states import CODES, RUNS_SOON

Rows = list[asyncpg.Record]


async def locked(tx: Transaction, ids: Iterable[UUID | None], how: str = sql.LOCK) -> Rows:
    """Locks these jobs until the commit; answers their rows.

    PostgreSQL writes a lock to its log. So the commit waits for a synchronous standby, which then
    has the rows that the answer rests on.
    """
    wanted = sorted({id for id in ids if id is not None})
    return await tx.fetch(how, wanted) if wanted else []


async def apply(
    tx: Transaction,
    changes: Sequence[tuple[asyncpg.Record, Change]],
    by: str = "",
    statement: str = sql.APPLY,
) -> None:
    """Makes these changes to locked rows; equal changes are sent once."""
    if not changes:
        return
    places: dict[Change, int] = {}
    for row, change in changes:
        places.setdefault(change, len(places) + 1)
        tx.count(row["lane"], row["state"], CODES[change.state])
        if row["group_id"] is not None:
            if change.ends:
                tx.ended(row["group_id"], row["id"], CODES[change.state])
            elif change.state in RUNS_SOON:
                tx.woke(row["group_id"])
        elif change.ends and row["watched"]:
            tx.watched_end(row["id"])
    ids = [row["id"] for row, _ in changes]
    columns = zip(
        *(change_row(change, by, isolate_bad_items=tx.isolate_bad_items) for change in places),
        strict=True,
    )
    await tx.fetch(statement, ids, [places[change] for _, change in changes], *columns)
