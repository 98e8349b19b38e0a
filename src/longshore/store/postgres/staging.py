"""How groups come into the PostgreSQL store: part by part, or whole with the turn of an actor."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from longshore.core.dependencies import becomes
from longshore.core.same_body import is_node
from longshore.errors import StoreUnavailable
from longshore.model.group import (
    MOST_AT_ONCE,
    SCOPE,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
)
from longshore.model.ids import derive_ids
from longshore.model.job import Refused
from longshore.store.group_limits import limited, pack_limit
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres import growth_sql
from longshore.store.postgres.added_nodes import lanes_of, store_lanes, store_nodes
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.key_holders import staging_of
from longshore.store.postgres.known_sql import HOLDERS
from longshore.store.postgres.settling import Settling, waiting
from longshore.store.postgres.states import GROUP_CODES, GROUP_STATES
from longshore.store.rows import (
    NodeItem,
    group_conflict,
    key_taken,
    node_items,
    node_not_accepted,
    pack_watchers,
    wrong_scopes,
)


class NotAccepted(Exception):
    """Undoes what a refused part of a group has stored."""

    def __init__(self, answer: Refused) -> None:
        super().__init__(answer.message)
        self.answer = answer


async def stage(
    tx: Transaction, part: GroupPart, items: Sequence[NodeItem], settling: Settling
) -> GroupSubmitted | Refused:
    """Stores some nodes of a group. With the last of them the group runs.

    Raises `NotAccepted` if it cannot: then nothing of this part may stay.
    """
    head = part.head
    values = (head.jobs, GROUP_CODES[GroupState.STAGING], head.fail_fast, head.name)
    watchers, limit = pack_watchers(head.watchers), pack_limit(head.limit)
    await tx.fetch(sql.ADD_GROUP, head.id, *values, list(head.labels), watchers, limit)
    locked_group = await tx.fetch(sql.LOCK_GROUP, head.id)
    if not locked_group:
        raise StoreUnavailable(f"group {head.id} was pruned just now; try again")
    [group] = locked_group
    if not _is_same(group, head):
        return group_conflict(head.id)
    state, staged = GROUP_STATES[group["state"]], group["staged"]
    if state is GroupState.STAGING:
        new = await _unknown(tx, part, items)
        if new:
            await _add(tx, head.id, limited(new, head.id, head.limit))
        staged += len(new)
        if staged == head.jobs:
            await _count_scopes(tx, part)
            state = GroupState.RUNNING if head.jobs else GroupState.SUCCEEDED
        await tx.fetch(sql.NOW_STAGED, head.id, len(new), GROUP_CODES[state])
        if state is GroupState.RUNNING:
            await _begin(tx, head.id, settling)
        elif state is GroupState.SUCCEEDED and watchers is not None:
            await tx.fetch(sql.NOTE_WATCHED, [head.id])
            tx.has_noted_groups = True
    return GroupSubmitted(head.id, group["number"], state, staged)


def _is_same(row: asyncpg.Record, head: GroupHead) -> bool:
    stored = row["name"], row["jobs"], row["fail_fast"], tuple(row["labels"]), row["watchers"]
    same = head.name, head.jobs, head.fail_fast, head.labels, pack_watchers(head.watchers)
    is_limited_so = row["own_limit"] == pack_limit(head.limit)
    return row["run_of"] is None and stored == same and is_limited_so


async def _unknown(
    tx: Transaction, part: GroupPart, items: Sequence[NodeItem]
) -> Sequence[NodeItem]:
    """The nodes of a part that are not stored yet; those that are must be the same."""
    last = part.first + len(part.nodes)
    rows = await tx.fetch(sql.STAGED, part.head.id, part.first, last)
    stored = {row["place"]: row["body_hash"] for row in rows}
    there = (item for item in items if item.place in stored)
    if not all(is_node(item.node, item.body, stored[item.place]) for item in there):
        raise NotAccepted(group_conflict(part.head.id))
    return [item for item in items if item.place not in stored]


async def _add(tx: Transaction, group: UUID, items: Sequence[NodeItem]) -> None:
    ids = {item.place: item.node.job.id for item in items}
    named = {at for item in items for at in (*item.parents, item.node.scope) if at is not None}
    elsewhere = list(named.difference(ids))
    ids.update(zip(elsewhere, derive_ids(group, elsewhere), strict=True))
    if not await store_nodes(tx, group, items, ids):
        raise NotAccepted(await _taken(tx, group, items))
    await store_lanes(tx, lanes_of(items))


async def _count_scopes(tx: Transaction, part: GroupPart) -> None:
    """Counts the members of each sub-group, of a group that is whole; refuses a wrong scope."""
    group, is_whole = part.head.id, len(part.nodes) == part.head.jobs
    if is_whole and all(node.scope is None for node in part.nodes):
        return
    members = {row["scope"]: row["key"] for row in await tx.fetch(growth_sql.SCOPES, group)}
    if not members:
        return
    rows = await tx.fetch(growth_sql.SUB_GROUPS, list(members), group, SCOPE)
    places = {row["job"]: row["place"] for row in rows}
    for scope, key in members.items():
        if scope not in places:
            why = "its scope is not the place of a sub-group"
            raise NotAccepted(node_not_accepted(group, key, why))
    inner = {row["place"]: places.get(row["scope"]) for row in rows}
    wrong = wrong_scopes(group, {places[scope]: key for scope, key in members.items()}, inner)
    if wrong is not None:
        raise NotAccepted(wrong)
    await tx.fetch(growth_sql.COUNT_SCOPES, group)


async def _taken(tx: Transaction, group: UUID, items: Sequence[NodeItem]) -> Refused:
    """The refusal of a group, naming the first job whose id or unique key is taken."""
    own = {item.node.job.id for item in items}
    keyed = [item.node.job for item in items if item.node.job.unique_key is not None]
    keys = [(job.kind, job.unique_key) for job in keyed]
    rows = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
    staging = await staging_of(tx, rows)
    held: dict[tuple[str, str | None], UUID | None] = {
        (row["kind"], row["unique_key"]): row["group_id"] if row["group_id"] in staging else None
        for row in rows
        if row["id"] not in own
    }
    held |= {key: None for key in keys if keys.count(key) > 1}
    for item in items:
        key = item.node.job.kind, item.node.job.unique_key
        if key in held:
            return key_taken(group, item.node.key, item.node.job, held[key])
    return key_taken(group, items[0].node.key, items[0].node.job)


async def _begin(tx: Transaction, group: UUID, settling: Settling) -> None:
    """Makes the jobs ready that depend on nothing; if they are many, a sweep does the rest."""
    rows = await tx.fetch(sql.SWEPT_NODES, group, 0, MOST_AT_ONCE, False)
    await settling.wake({row["job"]: change for row in rows if (change := becomes(waiting(row)))})
    if len(rows) == MOST_AT_ONCE:
        await tx.fetch(sql.SWEEP_ON, group, rows[-1]["place"] + 1, False)
        settling.groups.add(group)


async def submit_whole(tx: Transaction, part: GroupPart, settling: Settling) -> Refused | None:
    """Stores a whole group within a transaction; answers why it cannot, if so."""
    items = node_items(part)
    if isinstance(items, Refused):
        return items
    try:
        async with tx.savepoint():
            answer = await stage(tx, part, items, settling)
    except NotAccepted as error:
        return error.answer
    settling.groups.add(part.head.id)
    return answer if isinstance(answer, Refused) else None
