"""Nodes that no worker runs, on PostgreSQL: sub-groups, maps and gates.

`settle` finds the sub-groups and maps that are ready by the index of claims. A sub-group ends at
once. A map becomes jobs in steps, each in a transaction of its own: it holds the group's row, then
the map's job unless others hold it, then the map's node. Whatever ends such a node notes that, as a
cancel does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.dependencies import may_wake
from longshore.core.effects import Effect
from longshore.core.growth import too_many, why_not
from longshore.core.lanes import lane_of
from longshore.core.lifecycle import TERMINAL
from longshore.errors import LongshoreError
from longshore.model.group import GATE, MAP, SCOPE, GateVerdict
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, JobState
from longshore.model.limits import JobLimit
from longshore.model.reports import OutboxNode
from longshore.payload.maps import Elements, elements
from longshore.payload.references import MAX_REFERENCED_BYTES, NodeResult, Results, references
from longshore.payload.values import are_same
from longshore.store.filling import Found, by_job, too_large
from longshore.store.group_limits import limited, unpack_limit
from longshore.store.postgres import groups_sql
from longshore.store.postgres import growth_sql as sql
from longshore.store.postgres.added_nodes import (
    Wanted,
    find_taken,
    lanes_of,
    store_added,
    store_lanes,
    woken,
)
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Transaction, is_data_error, is_held
from longshore.store.postgres.keeper_sql import LOCK_FREE
from longshore.store.postgres.settling import Settling
from longshore.store.postgres.states import GROUP_STATES, STATES
from longshore.store.rows import Adder, NodeItem, clean, grown_items, grown_taken, unpack_options

_LANES: Final = [lane_of(DEFAULT_QUEUE, kind, ANY_TARGET).hash for kind in (SCOPE, MAP)]

MOST_MAPS: Final = 50
"""How many maps one `settle` expands: each in a transaction of its own, and ends must not wait."""


class ReadyMap(NamedTuple):
    """A map that is to become jobs, and its group."""

    job: UUID
    group: UUID


async def expand_ready(tx: Transaction, most: int, settling: Settling) -> list[ReadyMap]:
    """Ends the sub-groups that are ready; answers some of the maps that are."""
    rows = await tx.fetch(sql.EXPANDABLE, _LANES, most)
    settling.groups.update(row["group_id"] for row in rows)
    held = await locked(tx, [row["id"] for row in rows if row["kind"] == SCOPE], LOCK_FREE)
    await _end(tx, held, effects.EXPANDED, settling)
    maps = [ReadyMap(row["id"], row["group_id"]) for row in rows if row["kind"] == MAP]
    return maps[:MOST_MAPS]


async def expand_map(
    tx: Transaction, map: ReadyMap, most: int, max_group_jobs: int
) -> tuple[Settling, int]:
    """Makes at most so many jobs of a map; answers how many."""
    settling = Settling(tx)
    groups = await tx.fetch(groups_sql.LOCK_GROUP, map.group)
    if not groups or not may_wake(GROUP_STATES[groups[0]["state"]]):
        return settling, 0
    rows = await tx.fetch(sql.HOLD_MAP, map.job)
    nodes = await tx.fetch(sql.HOLD_NODE, map.job) if rows else []
    if not nodes:
        return settling, 0
    settling.groups.add(map.group)
    left = max_group_jobs - groups[0]["staged"]
    expanded, staged, limit = nodes[0]["expanded"], groups[0]["staged"], groups[0]["own_limit"]
    step = _Step(tx, rows[0], expanded, staged, left, unpack_limit(limit), settling)
    return settling, await step.run(most)


class _Step(NamedTuple):
    """One step of a map: the next elements after a place in its list become jobs."""

    tx: Transaction
    map: asyncpg.Record
    first: int
    staged: int
    room: int
    limit: JobLimit | None
    settling: Settling

    async def run(self, most: int) -> int:
        found = await self._elements(most)
        items = found if isinstance(found, str) else await self._items(found)
        if isinstance(items, str) or isinstance(found, str):
            await self._fail(str(items))
            return 0
        if not await self._store(items):
            return 0
        if self.first + len(items) >= found.total:
            await _end(self.tx, [self.map], effects.EXPANDED, self.settling)
        return len(items)

    async def _elements(self, most: int) -> Elements | str:
        """The next elements, or why there are none."""
        try:
            results = await self._results()
            if why := too_large(results):
                return why
            place = self.map["id"], self.map["round"], self.first, most
            # Python's own work: a large list would stop the event loop for long.
            found = await asyncio.to_thread(elements, self.map["args"], results, *place)
        except LongshoreError as error:
            return str(error)
        new = found.total - self.first
        return too_many(new, self.staged, self.staged + self.room) if new > self.room else found

    async def _results(self) -> Results:
        if not unpack_options(self.map["options"]).references:
            return {}
        keys = list({one.wanted for one in references(self.map["args"])})
        jobs = [self.map["id"]] * len(keys)
        rows = await self.tx.fetch(groups_sql.RESULTS, jobs, keys, MAX_REFERENCED_BYTES)
        return found_results(rows).get(self.map["id"], {})

    async def _items(self, found: Elements) -> list[NodeItem] | str:
        """The elements as nodes, or why they cannot be stored."""
        [node] = await self.tx.fetch(sql.ADDERS, [self.map["id"]])
        where = node["key"], node["place"], self.map["rank"]
        adder = Adder(self.map["id"], self.map["round"], *where)
        nodes = [OutboxNode(one.key, one.job) for one in found.jobs]
        if why := self._keys_too_long(adder, found):
            return why
        items = grown_items(adder, nodes, node["last"] + 1, self.first)
        if isinstance(items, str):
            return items
        group = self.map["group_id"]
        wanted = [Wanted(group, item.node.key, item.node.job.id) for item in items]
        taken = await find_taken(self.tx, wanted, [item.node.job for item in items])
        item = taken.first(items)
        return limited(items, group, self.limit) if item is None else grown_taken(item.node)

    def _keys_too_long(self, adder: Adder, found: Elements) -> str:
        """Why the key of the last element is too long, before the first of them is stored."""
        if not found.jobs:
            return ""
        last = OutboxNode(str(found.total - 1), found.jobs[0].job)
        return why_not(adder.key, [last], self.staged, self.staged + self.room)

    async def _store(self, items: Sequence[NodeItem]) -> bool:
        """Stores the new nodes, if the database takes them, and wakes their jobs."""
        if not items:
            return True
        group, id = self.map["group_id"], self.map["id"]
        ids = {item.node.scope: id for item in items if item.node.scope is not None}
        try:
            if self.tx.isolate_bad_items:
                async with self.tx.savepoint():
                    await store_added(self.tx, group, items, ids)
            else:
                await store_added(self.tx, group, items, ids)
        except Exception as error:
            if not self.tx.isolate_bad_items or not (is_data_error(error) or is_held(error)):
                raise
            await self._fail(f"its elements cannot be stored: {error}")
            return False
        await self.tx.fetch(sql.GROW, group, len(items), items[0].place, 0, None)
        await self.tx.fetch(sql.EXPAND, id, len(items))
        await self.settling.wake(woken(items))
        await store_lanes(self.tx, lanes_of(items))
        return True

    async def _fail(self, why: str) -> None:
        await _end(self.tx, [self.map], effects.of_no_expansion(why), self.settling)


async def _end(
    tx: Transaction, rows: Sequence[asyncpg.Record], effect: Effect, settling: Settling
) -> None:
    """Ends nodes that no worker runs, those that are still ready."""
    changes = [
        (row, effect[STATES[row["state"]]]) for row in rows if STATES[row["state"]] in effect
    ]
    await apply(tx, changes)
    settling.ended += [effects.outcome(row["id"], change) for row, change in changes]


def found_results(rows: Iterable[asyncpg.Record]) -> Found:
    """The rows of `RESULTS`, for those who fill in results."""
    return by_job(
        (row["job"], row["key"], NodeResult(STATES[row["state"]], row["size"], row["result"]))
        for row in rows
    )


async def open_gate(
    tx: Transaction, group: UUID, key: str, value: bytes | None, by: str
) -> GateVerdict:
    """Opens a gate of a group, if it has been reached. It locks nothing but the gate's job."""
    rows = await tx.fetch(sql.GATE, group, key)
    if not rows:
        return GateVerdict.NOT_FOUND
    [row] = rows
    state = STATES[row["state"]]
    if row["kind"] != GATE:
        return GateVerdict.NOT_A_GATE
    change = effects.of_opening(clean(by) or "a client").get(state)
    if change is not None:
        await apply(tx, [(row, change)], by)
        await tx.fetch(sql.GIVE_RESULT, row["id"], value)
        return GateVerdict.OPENED
    if state not in TERMINAL:
        return GateVerdict.NOT_REACHED
    is_open = state is JobState.SUCCEEDED and are_same(row["result"], value)
    return GateVerdict.ALREADY_OPEN if is_open else GateVerdict.ALREADY_ENDED
