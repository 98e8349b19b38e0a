"""The groups of the PostgreSQL store: submitted, swept, closed and shown.

Three things happen to a group beside the ends of its jobs. An end reaches dependents (`settling`).
A *sweep* brings every job of the group to where the group's state wants it: when the group begins,
and when it is cancelled. It goes through the nodes in bounded steps, and begins anew for as long as
it met rows that others held. A group *closes* when as many jobs have ended as it has: the counts
are read first without any lock, then again under the lock of the group's row.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

import asyncpg
from msgspec import structs

from longshore.core import effects
from longshore.core.dependencies import BAD, Marks, Parent, becomes, group_end, may_wake
from longshore.core.effects import Change, Effect
from longshore.core.lifecycle import TERMINAL
from longshore.core.why import Facts
from longshore.model.attempt import Attempt
from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.group import (
    MOST_SHOWN,
    AddedNode,
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    Near,
    NodeFacts,
    NodeView,
    RetryPlan,
)
from longshore.model.job import Ended, Job, JobState, Refused
from longshore.payload.references import MAX_REFERENCED_BYTES
from longshore.ports import Hint, Settled
from longshore.store.additions import Addition
from longshore.store.filling import fill, wanted_results
from longshore.store.group_limits import unpack_limit
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres.additions import EDGES, AddToGroup
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.expanding import (
    ReadyMap,
    expand_map,
    expand_ready,
    found_results,
    open_gate,
)
from longshore.store.postgres.fair import fair_lanes_of
from longshore.store.postgres.group_reopening import (
    MOST_REOPENED,
    reopen_in_steps,
    take_step,
    take_steps,
)
from longshore.store.postgres.group_retry import GroupRetry
from longshore.store.postgres.hints import Sender
from longshore.store.postgres.keeper_sql import LOCK_FREE
from longshore.store.postgres.pauses import note_pause
from longshore.store.postgres.pump import Pump
from longshore.store.postgres.reads import PostgresReads
from longshore.store.postgres.settling import Settling, deliver_noted, waiting
from longshore.store.postgres.staging import NotAccepted, stage
from longshore.store.postgres.states import (
    BAD_CODES,
    CONDITION_OF,
    GROUP_CODES,
    GROUP_STATES,
    STATES,
)
from longshore.store.rows import (
    INT64,
    LARGEST_INT,
    clean,
    node_items,
    unpack_error,
    unpack_watchers,
)

MOST_CLOSED: Final = 100


class PostgresGroups(PostgresReads):
    """The verbs of groups."""

    _keeping: ConnectionPool
    _pump: Pump
    most_reopened: int = MOST_REOPENED
    """A group of more jobs is retried in steps of so many."""
    _sender: Sender
    _clock: Callable[[], float]

    def __init__(self) -> None:
        super().__init__()
        self._staging: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        """Stores some nodes of a group. With the last of them it runs, all or nothing."""
        items = node_items(part)
        if isinstance(items, Refused):
            return items
        self._pump.fair.with_new |= fair_lanes_of(node.job for node in part.nodes)

        async def work(tx: Transaction) -> tuple[GroupSubmitted | Refused, Settling]:
            settling = Settling(tx)
            try:
                async with tx.savepoint():
                    return await stage(tx, part, items, settling), settling
            except NotAccepted as error:
                return error.answer, Settling(tx)

        # Parts of one group would wait for each other on connections that leases need.
        async with self._staging.setdefault(part.head.id, asyncio.Lock()):
            answer, settling = await self._keeping.run(work)
        self._tell(settling)
        return answer

    async def add_to_group(
        self,
        ref: UUID | int,
        request: UUID,
        nodes: Sequence[AddedNode],
        *,
        max_group_jobs: int = MAX_GROUP_JOBS,
        max_group_edges: int = MAX_GROUP_EDGES,
    ) -> GroupSubmitted | Refused | None:
        """Adds jobs to a group that runs or is paused, all or none, once for each request."""
        group = await self.group(ref)
        if group is None:
            return None
        # Counted before anybody has to wait for it. Who adds next finds the sum in the group's row.
        counted = await self._keeping.fetch(EDGES, group.id, max_group_edges + 1)
        edges = counted[0]["n"] if counted else 0
        addition = Addition(request, nodes, max_group_jobs, max_group_edges)
        work = AddToGroup(group.id, addition, edges)
        answer, settling = await self._keeping.run(work.run)
        self._tell(settling)
        return answer

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        """Does some of what groups have to do, of at most so many jobs."""
        delivered = await self._keeping.run(lambda tx: deliver_noted(tx, most))
        swept, maps = await self._keeping.run(lambda tx: _sweep_and_expand(tx, most))
        steps = [delivered, swept]
        for one in maps:
            step = partial(expand_map, map=one, most=most, max_group_jobs=max_group_jobs)
            expanded, stored = await self._keeping.run(step)
            steps.append(expanded)
            most -= stored
            if most <= 0:
                break
        told = {group for step in steps for group in step.groups}
        named = list({*groups, *told}) if groups else None
        closed, again, watched = await self._keeping.run(lambda tx: _close(tx, named))
        settled = self._settled(steps, closed, told | again)
        return structs.replace(settled, watched=watched)

    def _settled(
        self, steps: Sequence[Settling], closed: Sequence[Ended], groups: set[UUID]
    ) -> Settled:
        for step in steps:
            self._tell(step)
        ended = (*(one for step in steps for one in step.ended), *closed)
        if ended:
            self._sender.tell(Hint.ENDED)
        ready = sum((step.ready for step in steps), Counter[int]())
        over = {one.id for one in closed}
        is_delayed = any(step.delayed for step in steps)
        return Settled(ready, is_delayed, ended, frozenset(groups - over), closed=len(closed))

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        """Ends a gate that has been reached as succeeded, with this result."""
        group = await self.group(ref)
        if group is None:
            return GateVerdict.NOT_FOUND
        opening = partial(open_gate, group=group.id, key=clean(key), value=value, by=by)
        verdict = await self._keeping.run(opening)
        if verdict is GateVerdict.OPENED:
            self._sender.tell(Hint.ENDED)
        return verdict

    def _tell(self, settling: Settling) -> None:
        """Makes the claims of this process find at once what became ready, and hints at it."""
        for lane, urgency, place in settling.places:
            self._pump.cursors.put_back(lane, urgency, place)
        if settling.ready:
            self._sender.tell(Hint.WORK)
        if settling.cancelling:
            self._sender.tell(Hint.CANCEL)

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        """Marks a group as cancelling; `settle` ends its jobs."""
        group = await self.group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        code, who = GROUP_CODES[GroupState.CANCELLING], clean(by) or "a client"

        async def work(tx: Transaction) -> Sequence[asyncpg.Record]:
            rows = await tx.fetch(sql.CANCEL_GROUP, group.id, code, who)
            if rows:
                await note_pause(tx, str(group.id), paused=False, is_group=True)
            return rows

        rows = await self._keeping.run(work)
        return GroupVerdict.CANCELLING if rows else GroupVerdict.ALREADY_ENDED

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        """Holds a group's jobs that have not begun, or lets them go on."""
        group = await self.group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        state = GroupState.PAUSED if paused else GroupState.RUNNING
        may = [GROUP_CODES[GroupState.RUNNING], GROUP_CODES[GroupState.PAUSED]]

        async def work(tx: Transaction) -> Sequence[asyncpg.Record]:
            rows = await tx.fetch(sql.PAUSE_GROUP, group.id, GROUP_CODES[state], may)
            if rows:
                await note_pause(tx, str(group.id), paused, is_group=True)
            return rows

        rows = await self._keeping.run(work)
        if rows:
            return GroupVerdict(state.value)
        again = await self.group(group.id)
        over = again is None or again.ended_at is not None
        return GroupVerdict.ALREADY_ENDED if over else GroupVerdict.NOT_RUNNING

    async def is_sweeping(self, ref: UUID | int) -> bool:
        """Whether jobs of a group may not be yet where its state wants them."""
        if isinstance(ref, int) and ref not in INT64:
            return False
        rows = await self._reading.fetch(sql.IS_SWEEPING.format(key=_key(ref)), ref)
        return any(row["sweeping"] for row in rows)

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        args: bytes | None = None,
        dry_run: bool = False,
    ) -> RetryPlan | None:
        """Opens a new round of what did not succeed, or of some jobs and all below them."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        found = await self._reading.fetch(sql.RETRIED_GROUP.format(key=_key(ref)), ref)
        if not found:
            return None
        [group], most = found, self.most_reopened
        asked = GroupRetry(group["id"], by, request, keys, args, dry_run)
        if group["reopening"]:
            await take_steps(self._keeping, group["id"], most)
        if group["staged"] <= most:
            return await self._keeping.run(asked.run)
        return await reopen_in_steps(self._keeping, self._reading, asked, most)

    async def _filled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts with the results that their arguments refer to."""
        wanted = wanted_results(attempts)
        rows: Sequence[asyncpg.Record] = ()
        if wanted:
            columns = zip(*wanted, strict=True)
            rows = await self._reading.fetch(sql.RESULTS, *columns, MAX_REFERENCED_BYTES)
        return fill(attempts, found_results(rows))

    # showing

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is; of a job of a group, also what it waits for."""
        facts = await super().explain(job)
        if job.group is None:
            return facts
        rows = await self._reading.fetch(sql.NODE_FACTS, job.id)
        groups = await self._reading.fetch(sql.GROUP_BY_ID, job.group)
        if not rows or not groups:
            return facts
        [row], [group] = rows, groups
        others = await self._reading.fetch(sql.WAITS_FOR, job.id, MOST_SHOWN)
        node = NodeFacts(
            key=row["key"],
            group=_shown(group, {}),
            on=CONDITION_OF[row["condition"]],
            after=row["after"],
            unmet=row["unmet"],
            waits_for=tuple((key, STATES[state]) for key, state in others),
            taken_from=row["taken_from"],
        )
        return structs.replace(facts, node=node)

    async def group(self, ref: UUID | int) -> Group | None:
        """One group, by its id or number."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        query = sql.GROUP_BY_NUMBER if isinstance(ref, int) else sql.GROUP_BY_ID
        for row in await self._reading.fetch(query, ref):
            counts = await self._reading.fetch(sql.GROUP_COUNTS, row["id"])
            of_states = {STATES[one["state"]].value: one["n"] for one in counts}
            shown = _shown(row, of_states, sum(one["open"] for one in counts))
            return structs.replace(shown, taken_over=sum(one["taken"] for one in counts))
        return None

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        """Groups, newest first, without counts."""
        states = [GROUP_CODES[state] for state in wanted.states] or None
        before = LARGEST_INT if wanted.before is None else max(0, min(wanted.before, LARGEST_INT))
        name = None if wanted.name is None else clean(wanted.name)
        rows = await self._reading.fetch(sql.LIST_GROUPS, states, name, before, wanted.limit)
        return [_shown(row, {}) for row in rows]

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        """The nodes of a group in its order, after the one with this index."""
        return list(map(_node_view, await self._reading.fetch(sql.NODES, group, after, most)))

    async def nodes_near(
        self, group: UUID, jobs: Sequence[UUID], near: Near, most: int = 1000
    ) -> list[NodeView]:
        """The first nodes of a group that are near these jobs of it."""
        query = sql.NODES_NEAR.format(near=sql.NEAR[near])
        return list(map(_node_view, await self._reading.fetch(query, group, jobs, most)))


# upkeep


async def _sweep_and_expand(tx: Transaction, most: int) -> tuple[Settling, list[ReadyMap]]:
    """Sweeps, and ends sub-groups that are ready; answers the maps that are."""
    settling = await _sweep(tx, most)
    return settling, await expand_ready(tx, most, settling)


async def _sweep(tx: Transaction, most: int) -> Settling:
    """Brings some jobs of one group to where the group's state wants them.

    Of groups that are being reopened it takes a step of that instead.
    """
    settling = Settling(tx)
    found = await tx.fetch(sql.NEXT_SWEEP)
    # Also the group after this one: whoever settles then goes on with it at once.
    named = found or await tx.fetch(sql.HELD_SWEEPS)
    settling.groups.update(group["id"] for group in named)
    for group in found:
        if not group["reopening"]:
            await _sweep_group(tx, group, most, settling)
            break
        await take_step(tx, group["id"], most, if_free=True)
    return settling


async def _sweep_group(
    tx: Transaction, group: asyncpg.Record, most: int, settling: Settling
) -> None:
    """Brings the next jobs of a group, which is locked, to where its state wants them."""
    state, first = GROUP_STATES[group["state"]], group["sweep_from"]
    every = not may_wake(state)
    rows = await tx.fetch(sql.SWEPT_NODES, group["id"], first, most, every)
    live = [row for row in rows if STATES[row["state"]] not in TERMINAL]
    free = [row for row in live if row["condition"] is not None]
    missed = await _bring(tx, state, free, group, settling)
    again = len(free) < len(live) or missed > 0
    if len(rows) < most:
        again = again or group["sweep_again"]
        next_place, again = (0 if again else None), False
    else:
        next_place, again = rows[-1]["place"] + 1, again or group["sweep_again"]
    await tx.fetch(sql.SWEEP_ON, group["id"], next_place, again)


async def _bring(
    tx: Transaction,
    state: GroupState,
    nodes: Sequence[asyncpg.Record],
    group: asyncpg.Record,
    settling: Settling,
) -> int:
    """Brings the jobs of these nodes to where the group's state wants them; answers the missed."""
    match state:
        case GroupState.CANCELLING:
            return await _change(tx, nodes, effects.CANCEL, settling, group["cancelled_by"])
        case GroupState.PAUSED:
            return await _change(tx, nodes, effects.HOLD, settling)
        case _:
            await settling.wake(await _wakes(tx, nodes))
            return 0


async def _wakes(tx: Transaction, nodes: Sequence[asyncpg.Record]) -> dict[UUID, Change]:
    """What becomes of the jobs of these nodes, if they do not wait on."""
    wakes = {row["job"]: change for row in nodes if (change := becomes(waiting(row)))}
    lost = [job for job, change in wakes.items() if change.state is JobState.DEPENDENCY_FAILED]
    if lost:
        # Their counters were made anew: who failed must be looked for.
        rows = await tx.fetch(sql.FIRST_FAILED, lost, int(BAD), sorted(BAD_CODES))
        failed = {row["child"]: _parent(row) for row in rows}
        of_nodes = {row["job"]: waiting(row) for row in nodes if row["job"] in failed}
        for job, node in of_nodes.items():
            wakes[job] = becomes(node, [failed[job]]) or wakes[job]
    return wakes


def _parent(row: asyncpg.Record) -> Parent:
    """A job on which others depend, as they would hear of it now."""
    return Parent(
        row["job"],
        row["group_id"],
        row["key"],
        row["number"],
        STATES[row["state"]],
        unpack_error(row["error"]),
        Marks(row["scope_marks"]),
        unpack_error(row["cause"]),
        row["is_early"],
    )


async def _change(
    tx: Transaction,
    nodes: Sequence[asyncpg.Record],
    effect: Effect,
    settling: Settling,
    by: str = "",
) -> int:
    """Changes the jobs of these nodes; answers how many were held by others."""
    wanted = [row["job"] for row in nodes if STATES[row["state"]] in effect]
    rows = await locked(tx, wanted, LOCK_FREE)
    made = [
        (row, change) for row in rows if (change := effect.get(STATES[row["state"]])) is not None
    ]
    await apply(tx, made, by)
    for row, change in made:
        if change.ends:
            settling.ended.append(effects.outcome(row["id"], change))
        elif change.state is JobState.CANCELLING:
            settling.cancelling = True
    return len(wanted) - len(rows)


async def _close(tx: Transaction, named: list[UUID] | None) -> tuple[list[Ended], set[UUID], bool]:
    """Ends groups without a live job; answers also those that need another look.

    These are groups whose rest a failure cancels, and such that others hold. It answers too whether
    some of those that ended are watched.
    """
    running, staging = GROUP_CODES[GroupState.RUNNING], GROUP_CODES[GroupState.STAGING]
    found = await tx.fetch(sql.MAY_BE_OVER, running, staging, named, MOST_CLOSED)
    if not found:
        return [], set(), False
    held = await tx.fetch(sql.HOLD_GROUPS, [row["id"] for row in found])
    # Whoever holds a group's row may not close it: a job may be adding others to it.
    missed = {row["id"] for row in found} - {row["id"] for row in held}
    rows = await tx.fetch(sql.ARE_OVER, running, [row["id"] for row in held])
    over = {
        row["id"]: group_end(row["failed"], row["cancelled"], by_user=bool(row["cancelled_by"]))
        for row in rows
        if row["ended"] >= row["staged"]
    }
    codes = [GROUP_CODES[state] for state in over.values()]
    noted = await tx.fetch(sql.CLOSE, list(over), codes) if over else []
    failing = {row["id"] for row in rows if row["id"] not in over}
    if failing:
        code = GROUP_CODES[GroupState.CANCELLING]
        await tx.fetch(sql.CANCEL_ALL, list(failing), code)
    closed = [Ended(id, JobState(state.value)) for id, state in over.items()]
    return closed, failing | missed, bool(noted)


def _key(ref: UUID | int) -> str:
    """The column by which a group is found."""
    return "number" if isinstance(ref, int) else "id"


def _shown(row: asyncpg.Record, counts: dict[str, int], open: int = 0) -> Group:
    values = {**row, "state": GROUP_STATES[row["state"]], "labels": tuple(row["labels"])}
    values["watchers"] = unpack_watchers(row["watchers"])
    values["limit"] = unpack_limit(row["limit"])
    return Group(**values, counts=counts, open=open)


def _node_view(row: asyncpg.Record) -> NodeView:
    state, on = STATES[row["state"]], CONDITION_OF[row["condition"]]
    values = {name: value for name, value in row.items() if name != "condition"}
    return NodeView(**{**values, "state": state, "on": on, "after": tuple(row["after"])})
