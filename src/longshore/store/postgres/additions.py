"""What clients add to groups from outside, on PostgreSQL.

Theory. The transaction locks the group's row first, and waits for nothing after that: so it is in
nobody's way for long, and in no circle of those who wait for each other. What else it needs to hold
it takes only if it is free. Otherwise it gives up all that it holds, and is repeated.

- *The jobs that the new ones depend on*, shared: none of them ends before the commit. Whoever ends
  one afterwards reads the edges in a later statement, and finds the new one. `plain_ends` reads
  edges by an older view. It sees by the group's row that this has changed, and notes its ends.
- *Their nodes*, shared: no scope among them closes before the commit.
- *The notes of those that have ended*: what is still to be told of them is told to the new nodes
  too. Without such a note all was told, and the new nodes must hear of it from here.
- *The nodes of sub-groups that the new ones join*, which count them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core.additions import KnownNode, keys_asked
from longshore.core.dependencies import Delivered, Marks, Parent, deliver
from longshore.core.lifecycle import TERMINAL
from longshore.errors import Conflict, StoreUnavailable
from longshore.model.group import AddedNode, GroupSubmitted
from longshore.model.job import Refused
from longshore.store.additions import Addition, Growable, added_items, is_repeat, not_added, taken
from longshore.store.group_limits import limited, unpack_limit
from longshore.store.postgres import groups_sql
from longshore.store.postgres import growth_sql as sql
from longshore.store.postgres.added_nodes import (
    Wanted,
    find_taken,
    lanes_of,
    new_waiting,
    store_added,
    store_lanes,
)
from longshore.store.postgres.connections import Again, Transaction
from longshore.store.postgres.settling import Settling
from longshore.store.postgres.states import GROUP_STATES, STATES
from longshore.store.rows import NodeItem, clean, unpack_error

_STORED: Final = """
SELECT j.id, n.key, j.body_hash
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (SELECT id, body_hash FROM longshore.job WHERE id = i.id OFFSET 0) AS j
CROSS JOIN LATERAL (
    SELECT key FROM longshore.node WHERE job = i.id AND group_id = $2 OFFSET 0
) AS n
"""
EDGES: Final = """
SELECT coalesce(g.edges, (
    SELECT count(*) FROM (
        SELECT FROM longshore.node AS n JOIN longshore.edge AS e ON e.child = n.job
        WHERE n.group_id = g.id LIMIT $2
    ) AS found
)) AS n
FROM longshore.job_group AS g WHERE g.id = $1
"""
"""How many dependencies a group has, at most $2 if they must be counted."""
_ROOM: Final = """
SELECT edges, coalesce((
    SELECT place FROM longshore.node
    WHERE group_id = g.id ORDER BY group_id DESC, place DESC LIMIT 1
), -1) AS last
FROM longshore.job_group AS g WHERE g.id = $1
"""
_HOLD_KNOWN: Final = """
SELECT n.key, n.job, n.place, j.kind, j.number, j.state, j.error, l.open, l.scope_marks, l.cause
FROM (
    SELECT key, job, place FROM longshore.node
    WHERE group_id = $1 AND key = ANY ($2::text[]) ORDER BY job OFFSET 0
) AS n
LEFT JOIN LATERAL (
    SELECT kind, number, state, error FROM longshore.job WHERE id = n.job FOR SHARE SKIP LOCKED
) AS j ON true
LEFT JOIN LATERAL (
    SELECT open, scope_marks, cause FROM longshore.node WHERE job = n.job FOR SHARE SKIP LOCKED
) AS l ON true
"""
"""Nodes with these keys, held with their jobs; without a state or `open` if others hold them."""
_HOLD_NOTES: Final = """
SELECT u.job, u.after_child, l.number IS NULL AS is_held
FROM longshore.unsettled AS u
LEFT JOIN LATERAL (
    SELECT number FROM longshore.unsettled WHERE number = u.number FOR UPDATE SKIP LOCKED
) AS l ON true
WHERE u.job = ANY ($1::uuid[]) AND NOT u.is_early
"""
_JOIN: Final = """
UPDATE longshore.node AS n SET open = n.open + i.more
FROM unnest($1::uuid[], $2::integer[]) AS i (job, more) WHERE n.job = i.job
"""


class AddToGroup(NamedTuple):
    """What a client asked for. `edges` is how many dependencies the group had just before."""

    group: UUID
    addition: Addition
    edges: int

    async def run(self, tx: Transaction) -> tuple[GroupSubmitted | Refused | None, Settling]:
        """Adds the jobs, or says why not; None if the group was pruned."""
        settling = Settling(tx)
        found = await tx.fetch(groups_sql.LOCK_GROUP, self.group)
        if not found or found[0]["is_gone"]:
            return None, settling
        [group] = found
        state, staged = GROUP_STATES[group["state"]], group["staged"]
        try:
            if is_repeat(self.addition, await self._stored(tx)):
                tx.rest_on_found()
                return GroupSubmitted(self.group, group["number"], state, staged), settling
        except Conflict as error:
            return not_added(self.group, error), settling
        if group["reopening"]:
            raise StoreUnavailable("the group is being retried; try again in a moment")
        [room] = await tx.fetch(_ROOM, self.group)
        edges = self.edges if room["edges"] is None else room["edges"]
        rows = await self._hold_known(tx, self.addition.nodes)
        into = Growable(self.group, state, staged, edges, room["last"] + 1, group["number"])
        items = added_items(self.addition, into, {row["key"]: _known(row) for row in rows})
        if not isinstance(items, Refused):
            items = await self._unless_taken(tx, items)
        if isinstance(items, Refused):
            return items, settling
        items = limited(items, self.group, unpack_limit(group["own_limit"]))
        await self._store(tx, items, {row["place"]: row for row in rows}, settling)
        await tx.fetch(sql.GROW, self.group, len(items), into.first, self.addition.edges, edges)
        answer = GroupSubmitted(self.group, group["number"], state, staged + len(items))
        return answer, settling

    async def _stored(self, tx: Transaction) -> dict[UUID, tuple[str, int]]:
        """Those of the new jobs that are there."""
        rows = await tx.fetch(_STORED, self.addition.ids, self.group)
        return {row["id"]: (row["key"], row["body_hash"]) for row in rows}

    async def _hold_known(
        self, tx: Transaction, nodes: Sequence[AddedNode]
    ) -> list[asyncpg.Record]:
        asked = sorted({clean(key) for key in keys_asked(nodes)})
        rows = await tx.fetch(_HOLD_KNOWN, self.group, asked)
        if any(row["state"] is None or row["open"] is None for row in rows):
            raise Again("a job that new ones depend on is changing just now")
        return rows

    async def _unless_taken(
        self, tx: Transaction, items: list[NodeItem]
    ) -> list[NodeItem] | Refused:
        """The new nodes, unless another job has an id or a unique key of theirs."""
        wanted = [Wanted(self.group, item.node.key, item.node.job.id) for item in items]
        others = await find_taken(tx, wanted, [item.node.job for item in items])
        item = others.first(items)
        return items if item is None else taken(self.group, item.node)

    async def _store(
        self,
        tx: Transaction,
        items: Sequence[NodeItem],
        there: Mapping[int, asyncpg.Record],
        settling: Settling,
    ) -> None:
        """Stores new nodes, which hear of what has ended, and lets those begin that can."""
        ids = {place: row["job"] for place, row in there.items()}
        ids |= {item.place: item.node.job.id for item in items}
        told = await self._told(tx, items, there)
        await store_added(tx, self.group, items, ids)
        await store_lanes(tx, lanes_of(items))
        inside: dict[UUID, int] = {}
        for item in items:
            if item.node.scope is not None:
                scope = ids[item.node.scope]
                inside[scope] = inside.get(scope, 0) + 1
        if inside:
            await tx.fetch(_JOIN, list(inside), list(inside.values()))
        counters = [(id, one.unmet, int(one.marks)) for id, one in told.items()]
        await tx.fetch(groups_sql.COUNT_DOWN, *zip(*counters, strict=True))
        changes = {id: one.change for id, one in told.items() if one.change is not None}
        await settling.wake(changes)
        settling.groups.add(self.group)

    async def _told(
        self, tx: Transaction, items: Sequence[NodeItem], there: Mapping[int, asyncpg.Record]
    ) -> dict[UUID, Delivered]:
        """What new nodes hear of those that they depend on."""
        named = {place for item in items for place in item.parents if place in there}
        ended = [there[at]["job"] for at in named if STATES[there[at]["state"]] in TERMINAL]
        notes = await tx.fetch(_HOLD_NOTES, ended) if ended else []
        if any(note["is_held"] for note in notes):
            raise Again("the end of a job that new ones depend on is being told just now")
        found = {}
        for item in items:
            id = item.node.job.id
            later = {one["job"] for one in notes if _comes_later(one["after_child"], id)}
            heard = [_parent(self.group, there[at], later) for at in item.parents if at in there]
            found[id] = deliver(new_waiting(item), heard)
        return found


def _known(row: asyncpg.Record) -> KnownNode:
    is_closed = STATES[row["state"]] in TERMINAL and not row["open"]
    return KnownNode(row["place"], row["kind"], is_closed)


def _comes_later(after_child: UUID | None, child: UUID) -> bool:
    """Whether a note reaches this child. Dependents are told by their ids."""
    return after_child is None or child > after_child


def _parent(group: UUID, row: asyncpg.Record, later: set[UUID]) -> Parent:
    """A node on which new ones depend, as they hear of it now."""
    state = STATES[row["state"]]
    is_early = state not in TERMINAL or row["open"] > 0 or row["job"] in later
    own = (row["job"], group, row["key"], row["number"], state, unpack_error(row["error"]))
    return Parent(*own, Marks(row["scope_marks"]), unpack_error(row["cause"]), is_early)
