"""What all verbs of the PostgreSQL store do that change jobs one by one: lock, decide, apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.effects import Change
from longshore.core.fairness import NEW
from longshore.model.group import GroupState
from longshore.store.postgres import keeper_sql as sql
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.finish import change_row
from longshore.store.postgres.limits_sql import LEAVE
from longshore.store.postgres.states import CODES, GROUP_CODES, RUNS_SOON, STATES

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
    *,
    holds_nodes: bool = False,
) -> None:
    """Makes these changes to locked rows; equal changes are sent once.

    If the transaction `holds_nodes` of theirs, a sweep that comes by begins anew. Otherwise one is
    asked for, if a group is paused.
    """
    if not changes:
        return
    places: dict[Change, int] = {}
    for row, change in changes:
        places.setdefault(change, len(places) + 1)
        tx.count(row["lane"], row["state"], CODES[change.state])
        if row["group_id"] is not None:
            if change.ends:
                tx.ended(row["group_id"], row["id"], CODES[change.state])
            elif change.state in RUNS_SOON and not holds_nodes:
                tx.woke(row["group_id"])
        elif change.ends and row["watched"]:
            tx.watched_end(row["id"])
    ids = [row["id"] for row, _ in changes]
    columns = zip(
        *(change_row(change, by, isolate_bad_items=tx.isolate_bad_items) for change in places),
        strict=True,
    )
    # Whoever waited behind a key does so no more, for it is ready no more. That is noted first, so
    # that the time behind its key is part of the time that it was ready.
    left = [row["id"] for row, _ in changes if row.get("blocked_on") not in (None, NEW)]
    if left:
        await tx.fetch(LEAVE, left)
    await tx.fetch(statement, ids, [places[change] for _, change in changes], *columns)


async def hold_if_paused(tx: Transaction, woken: Mapping[UUID, UUID]) -> None:
    """Jobs that are to run again wait, if their groups are paused; `woken` has their groups.

    No pause begins from now on until the commit. Afterwards its sweep sees these jobs. The groups'
    rows are locked before any node is: those who add to a group hold its row, and wait for nodes.
    """
    if not woken:
        return
    rows = await tx.fetch(sql.HOLD_WOKEN, sorted(set(woken.values())))
    paused = {row["id"] for row in rows if row["state"] == GROUP_CODES[GroupState.PAUSED]}
    jobs = await locked(tx, [job for job, group in woken.items() if group in paused])
    await apply(tx, [(row, effects.HOLD[STATES[row["state"]]]) for row in jobs])
