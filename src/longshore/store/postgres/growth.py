"""What the ends of attempts add to their groups, on PostgreSQL.

The pump first locks the jobs of its batch, and the groups that grow. Then it checks, and turns ends
whose growth cannot be stored into failures. Then it records the ends, and stores what they add.

Another transaction may take a unique key between the check and the insert. Then the transaction is
repeated, and its check sees that. What the database itself refuses is remembered in `Refusals`, for
the repeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.dependencies import may_wake
from longshore.core.effects import Change
from longshore.core.growth import added, refused, why_not
from longshore.model.attempt import AttemptKey
from longshore.model.ends import End
from longshore.model.group import GroupState
from longshore.model.job import Finished, JobState, Verdict
from longshore.model.limits import JobLimit
from longshore.model.reports import OutboxNode
from longshore.model.worker import Lane
from longshore.payload.maps import grown_id
from longshore.store.group_limits import limited, unpack_limit
from longshore.store.postgres import growth_sql as sql
from longshore.store.postgres.added_nodes import (
    Taken,
    Wanted,
    find_taken,
    lanes_of,
    store_added,
    store_lanes,
    woken,
)
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Again, Transaction, is_data_error, is_held
from longshore.store.postgres.settling import Settling
from longshore.store.postgres.states import GROUP_STATES, STATES
from longshore.store.rows import INT64, Adder, NodeItem, grown_items, grown_taken

Refusals = dict[AttemptKey, str]
"""Why the database does not store what some attempts add."""


class _Adding(NamedTuple):
    """An end that adds jobs, and what its job's row says, which is locked."""

    place: int
    end: End
    nodes: Sequence[OutboxNode]
    state: JobState
    round: int
    group: UUID | None
    rank: int

    @property
    def key(self) -> AttemptKey:
        """The attempt that ended."""
        return self.end.job, self.end.token


class _Grown(NamedTuple):
    """What one adder adds. If it `is_cancelled`, so are the new jobs."""

    key: AttemptKey
    group: UUID
    adder: Adder
    items: Sequence[NodeItem]
    is_cancelled: bool


class _Room:
    """A group that grows, while its row is locked."""

    def __init__(self, state: GroupState, staged: int, limit: JobLimit | None) -> None:
        self.state = state
        self.staged = staged
        self.limit = limit
        self.next_place = 0


class Growth:
    """What the ends of one batch add to their groups."""

    def __init__(self, tx: Transaction, max_group_jobs: int, refusals: Refusals) -> None:
        self.unclosed: dict[UUID, int] = {}
        """The adders whose scopes are open now, and how many nodes are in these."""
        self.woken: dict[UUID, Change] = {}
        """What becomes of the new jobs that depend on nothing."""
        self._cancelled: list[UUID] = []
        self._planned: dict[int, _Grown] = {}
        self._rooms: dict[UUID, _Room] = {}
        self._lanes: dict[int, Lane] = {}
        self._tx = tx
        self._max_group_jobs = max_group_jobs
        self._refusals = refusals

    # before the ends are recorded

    async def checked(self, ends: Sequence[End]) -> Sequence[End]:
        """The ends, those as failures that add what cannot be stored."""
        if not any(added(end) for end in ends):
            return ends
        owned = await self._owned(ends)
        adding = {
            place: _Adding(
                place,
                end,
                added(end),
                STATES[row["state"]],
                row["round"],
                row["group_id"],
                row["rank"],
            )
            for place, end in enumerate(ends)
            if (row := owned.get(place)) is not None and added(end)
        }
        await self._hold_groups(ends, owned, adding)
        adders = await self._adders([*adding.values()])
        taken = await self._taken([*adding.values()], adders)
        answer = list(ends)
        for place, row in sorted(owned.items()):
            if place in adding and (why := self._plan(adding[place], adders.get(place), taken)):
                answer[place] = refused(ends[place], why)
            if effects.of_end(answer[place])[STATES[row["state"]]].ends:
                taken.free(ends[place].job)
        return answer

    async def _owned(self, ends: Sequence[End]) -> dict[int, asyncpg.Record]:
        """Locks the jobs of all ends that count, in one statement; answers their rows by place."""
        sound = [(place, end) for place, end in enumerate(ends) if end.token in INT64]
        ids, tokens = [end.job for _, end in sound], [end.token for _, end in sound]
        rows = await self._tx.fetch(sql.HOLD_OWNED, ids, tokens)
        return {sound[row["place"] - 1][0]: row for row in rows}

    async def _hold_groups(
        self, ends: Sequence[End], owned: Mapping[int, asyncpg.Record], adding: Collection[int]
    ) -> None:
        """Locks the groups that grow, in one statement with those whose jobs are to run again."""
        groups = {
            row["group_id"]
            for place, row in owned.items()
            if place in adding or not effects.of_end(ends[place])[STATES[row["state"]]].ends
        }
        groups.discard(None)
        if groups:
            for row in await self._tx.fetch(sql.HOLD_GROWING, sorted(groups)):
                state, limit = GROUP_STATES[row["state"]], unpack_limit(row["own_limit"])
                self._rooms[row["id"]] = _Room(state, row["staged"], limit)

    async def _adders(self, adding: Sequence[_Adding]) -> dict[int, Adder]:
        """The nodes that add to groups."""
        if not self._rooms:
            return {}
        rows = await self._tx.fetch(sql.ADDERS, [one.end.job for one in adding])
        nodes = {row["job"]: row for row in rows}
        found = {}
        for one in adding:
            if one.group in self._rooms and (node := nodes.get(one.end.job)) is not None:
                self._rooms[one.group].next_place = node["last"] + 1
                where = node["key"], node["place"], one.rank
                found[one.place] = Adder(one.end.job, one.round, *where)
        return found

    async def _taken(self, adding: Sequence[_Adding], adders: Mapping[int, Adder]) -> Taken:
        wanted = [
            Wanted(one.group, f"{adder.key}/{node.key}", grown_id(adder.job, adder.round, index))
            for one in adding
            if one.group is not None and (adder := adders.get(one.place)) is not None
            for index, node in enumerate(one.nodes)
        ]
        jobs = [node.job for one in adding for node in one.nodes]
        return await find_taken(self._tx, wanted, jobs)

    def _plan(self, one: _Adding, adder: Adder | None, taken: Taken) -> str:
        """Plans what an end adds; answers why that cannot be stored, or nothing."""
        if one.key in self._refusals:
            return self._refusals[one.key]
        if adder is None or one.group is None:
            return why_not(None, one.nodes, 0, self._max_group_jobs)
        room = self._rooms[one.group]
        if why := why_not(adder.key, one.nodes, room.staged, self._max_group_jobs):
            return why
        items = grown_items(adder, one.nodes, room.next_place)
        if isinstance(items, str):
            return items
        if (item := taken.first(items)) is not None:
            return grown_taken(item.node)
        taken.take(items)
        room.staged += len(items)
        room.next_place += len(items)
        items = limited(items, one.group, room.limit)
        is_cancelled = one.state is JobState.CANCELLING
        self._planned[one.place] = _Grown(one.key, one.group, adder, items, is_cancelled)
        return ""

    # after they are recorded

    async def add(self, ends: Sequence[End], finished: Sequence[Finished]) -> None:
        """Stores what the recorded ends add."""
        recorded = [
            place
            for place, (end, answer) in enumerate(zip(ends, finished, strict=True))
            if answer.verdict is Verdict.RECORDED and added(end)
        ]
        if any(place not in self._planned for place in recorded):
            raise Again("a job changed while it was finished")
        by_group: dict[UUID, list[_Grown]] = {}
        for place in recorded:
            by_group.setdefault(self._planned[place].group, []).append(self._planned[place])
        for group, grown in by_group.items():
            await self._store(group, grown)
        if any(one.key in self._refusals for grown in by_group.values() for one in grown):
            raise Again("the database does not store some of what attempts add")

    async def _store(self, group: UUID, grown: Sequence[_Grown]) -> None:
        if self._tx.isolate_bad_items:
            for one in grown:
                await self._try_to_store(one)
        else:
            items = [item for one in grown for item in one.items]
            await store_added(self._tx, group, items, _ids(grown))
        places = [item.place for one in grown for item in one.items]
        edges = sum(len(item.parents) for one in grown for item in one.items)
        await self._tx.fetch(sql.GROW, group, len(places), min(places), edges, None)
        for one in grown:
            self._note(one)

    async def _try_to_store(self, one: _Grown) -> None:
        try:
            async with self._tx.savepoint():
                await store_added(self._tx, one.group, one.items, _ids([one]))
        except Exception as error:
            if not (is_data_error(error) or is_held(error)):
                raise
            why = "a transaction that has not ended holds a unique key" if is_held(error) else error
            self._refusals[one.key] = f"the jobs that it adds cannot be stored: {why}"

    def _note(self, one: _Grown) -> None:
        self._lanes |= lanes_of(one.items)
        in_scope = sum(item.node.scope is not None for item in one.items)
        if in_scope:
            self.unclosed[one.adder.job] = in_scope
        if one.is_cancelled:
            self._cancelled += [item.node.job.id for item in one.items]
        elif may_wake(self._rooms[one.group].state):
            self.woken |= woken(one.items)

    async def complete(self, settling: Settling, known: set[int]) -> set[int]:
        """Does what is left once the nodes are told; answers the new lanes beside those known."""
        swept = {one for one, room in self._rooms.items() if room.state is GroupState.CANCELLING}
        settling.groups |= swept
        rows = await locked(self._tx, self._cancelled)
        changes = [(row, effects.CANCEL[STATES[row["state"]]]) for row in rows]
        await apply(self._tx, changes)
        settling.ended += [effects.outcome(row["id"], change) for row, change in changes]
        settling.groups.update(row["group_id"] for row in rows)
        new = {hash: lane for hash, lane in self._lanes.items() if hash not in known}
        await store_lanes(self._tx, new)
        return set(new)


def _ids(grown: Sequence[_Grown]) -> dict[int, UUID]:
    """The jobs at the places of adders and of what they add."""
    ids = {one.adder.place: one.adder.job for one in grown}
    return ids | {item.place: item.node.job.id for one in grown for item in one.items}
